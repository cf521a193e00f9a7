"""How far long work has come, told to whoever shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

Progress = Callable[[str, int, int], None]
"""Gets what is worked on, how much of it is done, and how much there is (0: not known)."""


def _silent(_what: str, _done: int, _of: int) -> None:
    pass


SILENT: Final[Progress] = _silent
