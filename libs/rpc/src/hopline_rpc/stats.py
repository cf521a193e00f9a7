"""Counts of what a service answers, kept in memory for whoever exports them."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import Any, Final

# Upper bounds in seconds; the last bucket takes the rest.
BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


class MethodStats:
    """One method's calls."""

    __slots__ = ("buckets", "count", "errors", "seconds")

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0
        self.errors: Counter[str] = Counter()
        self.buckets = [0] * (len(BUCKETS) + 1)

    def record(self, seconds: float, reason: str | None) -> None:
        """Count a finished call; `reason` is None when it succeeded."""
        self.count += 1
        self.seconds += seconds
        self.buckets[bisect_left(BUCKETS, seconds)] += 1
        if reason is not None:
            self.errors[reason] += 1


class RpcStats:
    """All methods of a server."""

    def __init__(self) -> None:
        self.methods: dict[str, MethodStats] = {}

    def method(self, name: str) -> MethodStats:
        """Return the counts of one method, `/package.Service/Method`."""
        return self.methods.setdefault(name, MethodStats())

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            name: {
                "count": stats.count,
                "seconds": round(stats.seconds, 6),
                "errors": dict(stats.errors),
                "buckets": list(stats.buckets),
            }
            for name, stats in sorted(self.methods.items())
            if stats.count
        }
