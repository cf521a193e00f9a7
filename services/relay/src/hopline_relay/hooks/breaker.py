"""A hook that keeps failing is left alone for a while, then tried with one call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

FAILURES: Final = 5
FIRST_PAUSE: Final = 30.0
LONGEST_PAUSE: Final = 480.0

Change = Literal["", "suspended", "resumed"]


@dataclass(slots=True)
class Breaker:
    """What one hook's last calls came to. Times are monotonic seconds."""

    failures: int = 0
    # What was wrong the last time.
    problem: str = ""
    pause: float = 0.0
    until: float = 0.0
    # While one call finds out whether it works again.
    probing: bool = False

    @property
    def is_open(self) -> bool:
        """Tell whether the hook is left alone."""
        return self.pause > 0.0

    def begin(self, now: float) -> bool:
        """Tell whether the hook may be called now; of those that come after a pause only the first."""
        if not self.is_open:
            return True
        if now < self.until or self.probing:
            return False
        self.probing = True
        return True

    def worked(self) -> Change:
        """Note a call that worked."""
        change: Change = "resumed" if self.is_open else ""
        self.failures, self.pause, self.until, self.probing = 0, 0.0, 0.0, False
        return change

    def failed(self, now: float, problem: str = "") -> Change:
        """Note a call that failed. What was under way when it was suspended changes nothing more."""
        self.problem = problem
        if self.is_open and not self.probing:
            return ""
        self.failures += 1
        if self.failures < FAILURES:
            return ""
        change: Change = "" if self.is_open else "suspended"
        self.pause = min(self.pause * 2, LONGEST_PAUSE) if self.is_open else FIRST_PAUSE
        self.until, self.probing = now + self.pause, False
        return change

    def let_go(self) -> None:
        """Note that a call was called off: nothing is known of it."""
        self.probing = False
