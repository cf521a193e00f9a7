"""What the relay counts as it happens; the rest is read from the record when somebody asks."""

from __future__ import annotations

from collections import Counter
from typing import Final

from hopline_rpc.stats import COUNT_BUCKETS, LONG_BUCKETS, Histogram

# Kinds of duplicates: a request that came again with its id, a call that came again on its tunnel.
REQUEST: Final = "request"
CALL: Final = "tunnel_call"


class Meters:
    """Plain numbers; each of them costs its step of the path well under a microsecond."""

    def __init__(self) -> None:
        # Of messages that were let through.
        self.depths = Histogram(COUNT_BUCKETS)
        # From the moment a turn was queued to the moment it started.
        self.queue_waits = Histogram(LONG_BUCKETS)
        # How long turns ran, by how they ended.
        self.runs: dict[str, Histogram] = {}
        self.duplicates: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        # Answers that went as a message, since no call waited for them.
        self.late_answers = 0

    def ran(self, outcome: str, seconds: float) -> None:
        """Count a turn that has run."""
        found = self.runs.get(outcome)
        if found is None:
            found = self.runs[outcome] = Histogram(LONG_BUCKETS)
        found.add(seconds)
