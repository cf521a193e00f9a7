"""What a plugin was handed, and at what its own acts count because of it.

A plugin acts only in sessions that it was handed (with an event, the call of a tool, a hook), for the
causality window after the last time. Everything it does, in whichever of them, counts at the highest hook
generation and depth that it was handed within that window, and goes back to a root that it was handed: the
mesh cannot see which of them made it act, so that it takes the worst. Standard library only.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

# Of one plugin at once. A session that falls out has to be handed over again; generations and depths are few.
MAX_SESSIONS: Final = 5_000
MAX_ROOTS: Final = 64
# A window shorter than the longest call of a tool would end while the plugin is still at work.
LEAST_SECONDS: Final = 60.0

# What is remembered, each with how long it counts.
SESSION: Final = "session"
GENERATION: Final = "generation"
DEPTH: Final = "depth"
ROOT: Final = "root"


@dataclass(frozen=True, slots=True)
class Handed:
    """A session as it is handed to a plugin, and where what it is handed with stands."""

    session_id: str
    depth: int
    root_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class Standing:
    """At what the acts of a plugin count: one further on than this. `roots`: the latest first."""

    generation: int = 0
    depth: int = 0
    roots: tuple[str, ...] = ()

    def is_withheld(self, limit: int) -> bool:
        """Tell whether an act would be too many hook generations away from what it all began with."""
        return self.generation + 1 > limit


@dataclass(frozen=True, slots=True)
class By:
    """The plugin that does something in an agent's name, and at what that counts."""

    plugin_id: str
    standing: Standing


@dataclass(slots=True)
class Ledger:
    """What one plugin was handed; each entry with the time until which it counts."""

    kept: dict[str, OrderedDict[str, float]] = field(
        default_factory=lambda: {kind: OrderedDict() for kind in (SESSION, GENERATION, DEPTH, ROOT)}
    )

    def hand(self, handed: Handed, until: float) -> None:
        """Remember what is handed over."""
        for kind, value in entries(handed):
            self.put(kind, value, until)

    def put(self, kind: str, value: str, until: float) -> None:
        """Remember one entry; it is the latest of its kind."""
        kept = self.kept[kind]
        kept[value] = max(until, kept.get(value, until))
        kept.move_to_end(value)
        most = MAX_SESSIONS if kind == SESSION else MAX_ROOTS
        # Of generations and depths none may be forgotten early: they are what holds a loop.
        if kind in (SESSION, ROOT) and len(kept) > most:
            kept.popitem(last=False)

    def has(self, session_id: str, now: float, seconds: float) -> bool:
        """Tell whether a session was handed over within the last `seconds`."""
        self.prune(now, seconds)
        return session_id in self.kept[SESSION]

    def standing(self, now: float, seconds: float) -> Standing:
        """Return at what the plugin's acts count now, by what it was handed within the last `seconds`."""
        self.prune(now, seconds)
        return Standing(
            max(map(int, self.kept[GENERATION]), default=0),
            max(map(int, self.kept[DEPTH]), default=0),
            tuple(reversed(self.kept[ROOT])),
        )

    def generation(self, now: float) -> int:
        """Return the highest generation that counts now."""
        return max((int(value) for value, until in self.kept[GENERATION].items() if until > now), default=0)

    def prune(self, now: float, seconds: float) -> None:
        """Forget what counts no more; nothing counts for longer than `seconds` from now.

        A clock that was ahead, or a policy that has changed, would else keep it.
        """
        for kept in self.kept.values():
            for value, until in list(kept.items()):
                if until <= now:
                    del kept[value]
                elif until > now + seconds:
                    kept[value] = now + seconds

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing is left."""
        return not any(self.kept.values())


def entries(handed: Handed) -> Iterator[tuple[str, str]]:
    """Yield what is remembered of a session that is handed over, as (kind, value)."""
    if handed.session_id:
        yield SESSION, handed.session_id
    yield GENERATION, str(handed.generation)
    yield DEPTH, str(handed.depth)
    if handed.root_id:
        yield ROOT, handed.root_id


def counts_for(window_seconds: float) -> float:
    """Return for how long what is handed over now counts."""
    return max(window_seconds, LEAST_SECONDS)
