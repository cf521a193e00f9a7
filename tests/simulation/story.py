"""What happened, in words, and how often each thing did."""

from __future__ import annotations

import hashlib
from collections import Counter, deque

_REMEMBERED = 80


class Story:
    """The last lines of a run, a digest of all of them, and the counts of its actions and refusals."""

    def __init__(self) -> None:
        self.step = 0
        self.lines: deque[str] = deque(maxlen=_REMEMBERED)
        self.did: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self._digest = hashlib.sha256()

    def tell(self, line: str) -> None:
        """Add a line."""
        text = f"{self.step:5} {line}"
        self.lines.append(text)
        self._digest.update(text.encode())

    @property
    def digest(self) -> str:
        """What two runs of one seed have in common."""
        return self._digest.hexdigest()[:16]
