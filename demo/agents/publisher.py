"""Publisher: receives only; publishes nothing before its owner has said so."""

from __future__ import annotations

from typing import Any

from peers import call, run


async def answer(received: dict[str, Any]) -> str:
    """Ask the owner, wait as long as it takes, and do as they say."""
    question = {"question": f"May I publish this? {received['body']}", "options": ["yes", "no"]}
    refused, result = await call("ask_owner", **question)
    while not refused and result["status"] == "pending":
        refused, result = await call("ask_owner", **question)  # the same question: it goes on waiting
    if refused:
        return f"stopped by the mesh: {result['error']['message']}"
    return (
        f"published; {result['answered_by']} said {result['answer']}"
        if result["answer"] == "yes"
        else "not published"
    )


run(answer)
