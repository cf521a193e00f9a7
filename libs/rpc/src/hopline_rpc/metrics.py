"""What a process measures: one way to count (`stats`), two ways out (`metrics_text`, `metrics_otlp`).

Names, units and labels are those of the OpenTelemetry conventions where one fits, `hopline.*` elsewhere.
No label ever names an agent, a person, a thread or a workspace: who may read a scrape may not know of those,
and a time series for each would have no bound.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, Protocol, runtime_checkable

from hopline_rpc.clock import Clock
from hopline_rpc.stats import Histogram, RpcStats

log = logging.getLogger("hopline.metrics")

Kind = Literal["counter", "gauge", "histogram"]
Labels = Mapping[str, str]

# How long one service may take over what it is asked for; without an answer a scrape is without its part.
_SECONDS: Final = 3.0
# What a scrape reads from a database is read once in this time, whoever asks how often.
KEPT_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Buckets:
    """A histogram at one moment."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    count: int
    total: float


@dataclass(frozen=True, slots=True)
class Point:
    """One value, or one histogram, under its labels."""

    labels: Labels
    value: float | Buckets


@dataclass(frozen=True, slots=True)
class Family:
    """One metric. `unit`: `s`, `By`, `1` for ratios, `{what}` for what is counted."""

    name: str
    kind: Kind
    unit: str
    description: str
    points: Sequence[Point] = field(default_factory=tuple)


@runtime_checkable
class Measured(Protocol):
    """A service that says what there is to measure of it."""

    async def measure(self) -> Sequence[Family]:
        """Return its metrics as they are now; what needs a database is bounded, and kept for a while."""
        ...


def counter(name: str, unit: str, description: str, values: Mapping[str, int], label: str) -> Family:
    """Return what was counted, by the values of one label."""
    points = [Point({label: key}, value) for key, value in sorted(values.items())]
    return Family(name, "counter", unit, description, points)


def total(name: str, unit: str, description: str, value: float) -> Family:
    """Return a count without labels."""
    return Family(name, "counter", unit, description, (Point({}, value),))


def gauge(name: str, unit: str, description: str, value: float) -> Family:
    """Return a value of now without labels."""
    return Family(name, "gauge", unit, description, (Point({}, value),))


def gauges(name: str, unit: str, description: str, values: Mapping[str, float], label: str) -> Family:
    """Return values of now, by the values of one label."""
    points = [Point({label: key}, value) for key, value in sorted(values.items())]
    return Family(name, "gauge", unit, description, points)


def histogram(name: str, unit: str, description: str, found: Iterable[tuple[Labels, Histogram]]) -> Family:
    """Return histograms under their labels."""
    points = [Point(labels, frozen(each)) for labels, each in found]
    return Family(name, "histogram", unit, description, points)


def frozen(found: Histogram) -> Buckets:
    """Return a histogram as it is now. Its count is that of its buckets: they may be counted in a thread."""
    counts = tuple(found.buckets)
    return Buckets(tuple(found.bounds), counts, sum(counts), found.total)


class Kept:
    """What is read anew only after a while, and by one reader, however many ask."""

    def __init__(
        self, read: Callable[[], Awaitable[Sequence[Family]]], clock: Clock, seconds: float = KEPT_SECONDS
    ) -> None:
        self._read = read
        self._clock = clock
        self._seconds = seconds
        self._at = -seconds
        self._found: Sequence[Family] = ()
        self._reading = asyncio.Lock()

    async def get(self) -> Sequence[Family]:
        """Return what was read last, or read it."""
        async with self._reading:
            now = self._clock.monotonic()
            if now >= self._at + self._seconds or not self._found:
                self._found = await self._read()
                self._at = now
            return self._found


@dataclass(frozen=True, slots=True)
class Source:
    """A service of this process, and the calls that its server has answered."""

    name: str
    measured: Measured | None
    stats: RpcStats | None


async def gather(sources: Sequence[Source]) -> list[Family]:
    """Return everything that this process measures; a service that cannot answer is left out, and logged."""
    found = [*process_families(), *rpc_families(sources)]
    answers = await asyncio.gather(
        *(_asked(source.name, source.measured) for source in sources if source.measured is not None)
    )
    return merged([*found, *(family for families in answers for family in families)])


async def _asked(name: str, measured: Measured) -> Sequence[Family]:
    try:
        async with asyncio.timeout(_SECONDS):
            return await measured.measure()
    except Exception as error:
        log.warning("the %s could not be measured: %s", name, error or type(error).__name__)
        return ()


def merged(families: Iterable[Family]) -> list[Family]:
    """Put the points of families of one name together: the services of one process share some."""
    found: dict[str, Family] = {}
    for family in families:
        known = found.get(family.name)
        points = (*(known.points if known is not None else ()), *family.points)
        found[family.name] = Family(family.name, family.kind, family.unit, family.description, points)
    return list(found.values())


def rpc_families(sources: Sequence[Source]) -> list[Family]:
    """Return how long calls took, and how those failed that did. Methods that nobody called are left out."""
    durations: list[tuple[Labels, Histogram]] = []
    errors: list[Point] = []
    for source in sources:
        for path, stats in source.stats.methods.items() if source.stats is not None else ():
            if not stats.count:
                continue
            labels = {"rpc.system.name": "grpc", "rpc.method": path[1:]}
            durations.append((labels, stats))
            errors += [Point({**labels, "error.type": why}, count) for why, count in stats.errors.items()]
    return [
        histogram(
            "rpc.server.call.duration", "s", "How long calls took, those within this process too.", durations
        ),
        Family("hopline.rpc.failures", "counter", "{call}", "Calls that were refused or failed.", errors),
    ]


def process_families() -> list[Family]:
    """Return what the process itself uses."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    families = [
        Family(
            "process.cpu.time",
            "counter",
            "s",
            "Processor time that this process has used.",
            (Point({"cpu.mode": "user"}, usage.ru_utime), Point({"cpu.mode": "system"}, usage.ru_stime)),
        ),
        gauge("process.uptime", "s", "How long this process has run.", time.monotonic() - _STARTED),
    ]
    pages = _words("/proc/self/statm")
    if len(pages) > 1:
        resident = int(pages[1]) * resource.getpagesize()
        families.append(gauge("process.memory.usage", "By", "Memory that this process holds.", resident))
    try:
        descriptors = len(os.listdir("/proc/self/fd"))
    except OSError:
        return families
    text = "Descriptors that this process has open, and how many it may have."
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    families.append(gauge("process.unix.file_descriptor.count", "{file_descriptor}", text, descriptors))
    families.append(gauge("hopline.process.file_descriptor.limit", "{file_descriptor}", text, limit))
    return families


_STARTED: Final = time.monotonic()


def _words(path: str) -> list[str]:
    try:
        return Path(path).read_text().split()
    except OSError:
        return []
