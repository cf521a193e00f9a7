"""Concierge: passes questions on to whoever knows, and starts a loop when told to."""

from __future__ import annotations

from typing import Any

from peers import ask, run


async def answer(received: dict[str, Any]) -> str:
    """Ask the weather agent (or, in the loop, the researcher) and hand its answer on."""
    looping = "loop" in received["body"]
    refused, result = await ask("researcher" if looping else "weather", received["body"])
    if refused:
        return f"stopped by the mesh: {result['error']['message']}"
    return result["reply"] if looping else f"The weather desk says: {result['reply']}"


run(answer)
