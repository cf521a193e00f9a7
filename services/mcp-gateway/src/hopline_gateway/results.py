"""What a tool call answers: the facts twice (structured and as text), or a refusal a model can act on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from hopline_rpc.errors import HoplineError

from hopline_gateway.texts import as_text
from hopline_gateway.toolkit import Json, Result

# What to do next, by the code of the refusal. Where the message itself says it, nothing is added.
_ADVICE: Final[Mapping[str, str]] = {
    "invalid_argument": "Correct this and call again.",
    "unauthenticated": "The credential of this connection does not hold any more; its owner must renew it.",
    "permission_denied": "Do not repeat the call.",
    "not_found": "Check the id.",
    "ambiguous": "Call again with one of the ids.",
    "receive_only": "Use read_inbox, reply and done.",
    "agent_paused": "Until it is resumed it can only read.",
    "request_id_conflict": "Use a new request_id for other content, or send exactly the same content.",
    "depth_exceeded": "Do not delegate further: do the work yourself, or answer whoever asked you.",
    "root_exhausted": "Start nothing more: finish with what you have, or answer whoever asked you.",
    "thread_full": "Send without thread_id to open a new thread.",
    "quota_exceeded": "Start nothing more today; replies still pass.",
    "pair_budget_exceeded": "Stop exchanging messages with this agent for now; replies still pass.",
    "inbox_full": "Try again later, or ask another agent.",
    "limit_reached": "Finish or remove some of them first.",
    "credits_exhausted": "Start nothing more; replies still pass.",
    "cycle_refused": "Answer instead of passing the work back.",
    "would_deadlock": "Do not wait for this agent: it waits for you. Answer it first, or use send_message.",
    "answer_instead": "Use reply, or simply end your turn with the answer.",
    "session_closed": "Leave the session out to start afresh.",
    "overloaded": "Wait before the next call.",
    "unavailable": "Try again in a few seconds.",
    "deadline_exceeded": "Try again, or look with check whether the work goes on.",
}


def success(result: Result) -> Json:
    """Return a tool's facts as structured content and as text."""
    return _wire(as_text(result.headline, result.structured), result.structured, is_error=False)


def refusal(error: HoplineError) -> Json:
    """Return a refusal: what happened and what to do, in one line, and the same structured."""
    shown = error.to_dict()
    sentences = [f"{error.reason}: {error.message.rstrip('.')}."]
    retry = shown["details"].get("retry_after_seconds")
    if retry is not None:
        sentences.append(f"Possible again in {math.ceil(retry)} s.")
    if error.reason == "not_found" and "agent" in error.details:
        sentences.append("Call list_agents for whom you can address.")
    elif error.reason == "deadline_exceeded" and "turn_id" in error.details:
        pass  # a tool that ran: there is nothing to look for, and only the caller knows what it may have done
    elif advice := _ADVICE.get(error.reason):
        sentences.append(advice)
    if error.retryable and "request_id" in shown["details"]:
        sentences.append(
            f"Repeat it with request_id {shown['details']['request_id']}: it is never done twice."
        )
    return _wire(" ".join(sentences), {"error": shown}, is_error=True)


def _wire(text: str, structured: Json, *, is_error: bool) -> Json:
    """Return a `CallToolResult` as it goes over the wire: the SDK checks it, and need not convert it."""
    return {
        "content": [{"type": "text", "text": text}],
        "structuredContent": structured,
        "isError": is_error,
        "resultType": "complete",
    }
