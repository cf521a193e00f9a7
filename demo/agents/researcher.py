"""Researcher: has its findings reviewed before it answers, and joins in a loop when told to."""

from __future__ import annotations

from typing import Any

from peers import ask, run


async def answer(received: dict[str, Any]) -> str:
    """Ask the reviewer (or, in the loop, the concierge) and build the answer on what comes back."""
    looping = "loop" in received["body"]
    peer, text = ("concierge", received["body"]) if looping else ("reviewer", f"Check: {received['body']}")
    refused, result = await ask(peer, text)
    if refused:
        return f"stopped by the mesh: {result['error']['message']}"
    return result["reply"] if looping else f"Found it. The reviewer says: {result['reply']}"


run(answer)
