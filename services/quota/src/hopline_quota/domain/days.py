"""UTC days as whole numbers since 1970."""

from __future__ import annotations

from datetime import date
from typing import Final

SECONDS: Final = 86_400
_EPOCH: Final = date(1970, 1, 1).toordinal()


def day_of(seconds: float) -> int:
    """Return the UTC day of a moment in unix seconds."""
    return int(seconds // SECONDS)


def end_of(day: int) -> float:
    """Return the unix seconds at which a day ends."""
    return float((day + 1) * SECONDS)


def write_day(day: int) -> str:
    """Write a day as text, such as 2026-11-30."""
    return date.fromordinal(_EPOCH + day).isoformat()


def read_day(text: str) -> int:
    """Read a day from text such as 2026-11-30; anything else is a ValueError."""
    return date.fromisoformat(text).toordinal() - _EPOCH
