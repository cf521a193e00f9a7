"""Reviewer: answers at once, asks nobody."""

from __future__ import annotations

from typing import Any

from peers import run


async def answer(received: dict[str, Any]) -> str:
    """Return a verdict on what was sent."""
    return f"Reviewed {len(received['body'].split())} words for {received['from']['display']}: looks right."


run(answer)
