"""Words of people for what several commands say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def held_for(held: Mapping[str, Any]) -> str:
    """Say what an answer is held for, given as `{waiting_on, open_todos}`."""
    parts = [f"reports of {', '.join(held['waiting_on'])}"] if held["waiting_on"] else []
    if count := held["open_todos"]:
        parts.append("one open todo" if count == 1 else f"{count} open todos")
    return f"held for {' and '.join(parts)}" if parts else "held until its agent has had a last look"
