"""The times of a cron expression in a time zone, as unix seconds.

The expression is read by cronsim, which knows no clock changes here: it gives local times, and this module
says when they are. A local time that does not exist comes right after the change; one that comes twice is
meant the first time. An expression that names every hour of the day is about a distance and not about a time
of day: it is followed through clock changes as if there were none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources
from typing import Final, NoReturn
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from hopline_rpc.errors import invalid

_EVERY_HOUR: Final = frozenset(range(24))
_MINUTE: Final = timedelta(minutes=1)
# Missed times are counted up to here.
MOST_COUNTED: Final = 1000


@dataclass(frozen=True, slots=True)
class Cron:
    """A cron expression of five fields, in a time zone."""

    expression: str
    zone: ZoneInfo
    # It names every hour of the day.
    hourly: bool

    def after(self, moment: float) -> Iterator[float]:
        """Yield the times after a moment, in order, each once; ends where none comes within 50 years."""
        local = datetime.fromtimestamp(moment, self.zone)
        start = local if self.hourly else local.replace(tzinfo=None)
        last = moment
        for found in CronSim(self.expression, start):
            at = found.timestamp() if self.hourly else self._at(found)
            if at > last:
                last = at
                yield at

    def next(self, moment: float) -> float | None:
        """Return the first time after a moment; None where there is none."""
        return next(self.after(moment), None)

    def passed(self, due: float, now: float) -> tuple[int, float | None]:
        """Return how many times came after `due` and up to `now`, counted to 1000, and the first ahead."""
        count = 0
        for at in self.after(due):
            if at > now:
                return count, at
            count += 1
            if count == MOST_COUNTED:
                break
        return count, self.next(now)

    def _at(self, local: datetime) -> float:
        """Return when a local time is."""
        while True:
            at = local.replace(tzinfo=self.zone, fold=0).timestamp()
            if datetime.fromtimestamp(at, self.zone).replace(tzinfo=None) == local:
                return at
            # The clock passes it over.
            local = local.replace(second=0) + _MINUTE


def read_cron(expression: str, timezone: str) -> Cron:
    """Read an expression; what is wrong with it, or with the zone, is refused by name."""
    fields = expression.split()
    if len(fields) != 5:
        count = f"{len(fields)} field{'' if len(fields) == 1 else 's'}"
        _refuse(f"has {count} instead of five (minute, hour, day of month, month, day of week)")
    try:
        hours = CronSim(expression, datetime(2000, 1, 1, tzinfo=UTC)).hours
    except (CronSimError, ValueError, AssertionError) as error:
        _refuse(str(error).replace("Bad ", "has no valid ") or "is not valid")
    hourly = hours == _EVERY_HOUR
    if hourly:
        fields[1] = "*"  # what cronsim itself goes by
    cron = Cron(" ".join(fields), _zone(timezone), hourly)
    if cron.next(0.0) is None:
        _refuse("names a day that never comes")
    return cron


def _zone(name: str) -> ZoneInfo:
    # Not whatever file there is: `localtime` is another zone on another machine, `right/UTC` counts leap
    # seconds, and where names are found whatever their case, `utc` is one on this machine alone.
    if name not in _zones():
        raise invalid("timezone", f"{name!r} is no time zone; give an IANA name such as Europe/Berlin")
    return ZoneInfo(name)


@cache
def _zones() -> frozenset[str]:
    """Return all IANA names, wherever the rules themselves are read from."""
    return frozenset((resources.files("tzdata") / "zones").read_text().split())


def _refuse(problem: str) -> NoReturn:
    raise invalid("cron", f"{problem}; for example '*/5 * * * *' or '30 9 * * MON-FRI'")
