"""Concierge: passes questions on to whoever knows, and starts a loop when told to."""

from __future__ import annotations

from typing import Any

from peers import call, run


async def answer(received: dict[str, Any]) -> str:
    """Ask the weather agent (or, in the loop, the researcher) and hand its answer on."""
    looping = "loop" in received["body"]
    refused, result = await call("ask", agent="researcher" if looping else "weather", text=received["body"])
    if refused:
        return f"stopped by the mesh: {result['error']['message']}"
    return result["reply"] if looping else f"The weather desk says: {result['reply']}"


run(answer)
