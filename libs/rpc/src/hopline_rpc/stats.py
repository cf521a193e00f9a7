"""Counts of what a service does, kept in memory for whoever exports them (`metrics.py`).

Counting stands in every call's way, so it is plain numbers: no locks (one event loop counts, or one thread),
no look-ups by labels, nothing made. What labels there are is a key of a dict.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

# Upper bounds in seconds; the last bucket takes the rest.
BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
# Of waits and of runs, which people and models have a part in.
LONG_BUCKETS: Final = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14400.0)
# Of depths and of things done at once.
COUNT_BUCKETS: Final = (0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)


class Histogram:
    """How often a value fell between which bounds."""

    __slots__ = ("bounds", "buckets", "count", "total")

    def __init__(self, bounds: Sequence[float] = BUCKETS) -> None:
        self.bounds = bounds
        self.count = 0
        self.total = 0.0
        self.buckets = [0] * (len(bounds) + 1)

    def add(self, value: float) -> None:
        """Count a value."""
        self.count += 1
        self.total += value
        self.buckets[bisect_left(self.bounds, value)] += 1


class MethodStats(Histogram):
    """One method's calls, by seconds."""

    __slots__ = ("errors",)

    def __init__(self) -> None:
        super().__init__()
        self.errors: Counter[str] = Counter()

    def record(self, seconds: float, reason: str | None) -> None:
        """Count a finished call; `reason` is None when it succeeded."""
        self.count += 1
        self.total += seconds
        self.buckets[bisect_left(BUCKETS, seconds)] += 1
        if reason is not None:
            self.errors[reason] += 1


class RpcStats:
    """All methods of a server."""

    def __init__(self) -> None:
        self.methods: dict[str, MethodStats] = {}

    def method(self, name: str) -> MethodStats:
        """Return the counts of one method, `/package.Service/Method`."""
        found = self.methods.get(name)
        if found is None:
            found = self.methods[name] = MethodStats()
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            name: {
                "count": stats.count,
                "seconds": round(stats.total, 6),
                "errors": dict(stats.errors),
                "buckets": list(stats.buckets),
            }
            for name, stats in sorted(self.methods.items())
            if stats.count
        }
