"""reply_to_human: what a lead writes to the person who prompted it."""

from __future__ import annotations

from hopline.relay.v1 import draft_pb2
from hopline_rpc.errors import HoplineError

from hopline_gateway.toolkit import Call, Result, Tool, with_retry_hint
from hopline_gateway.tools import fields

_SENT = "Sent. The person has your answer."
_HELD = (
    "Held, and kept as your draft: {why}. You are woken when all of it is there; what you write then is "
    "sent, or this draft if you write nothing new."
)


async def reply_to_human(call: Call) -> Result:
    """Answer the person who prompted the caller, or keep the draft."""
    request_id = call.request_id()
    request = draft_pb2.ReplyToHumanRequest(
        text=call.text("text"), request_id=request_id, caller_session_id=call.caller.session_id
    )
    try:
        said = await call.rpc(call.mesh.drafts.ReplyToHuman, request)
    except HoplineError as error:
        raise with_retry_hint(error, request_id) from error
    names = [each.agent.name for each in said.waiting_on]
    held = said.status == draft_pb2.REPLY_STATUS_HELD
    found = {"status": "held" if held else "sent", "waiting_on": names, "open_todos": said.open_todos}
    if said.message_id:
        found["message_id"], found["thread_id"] = said.message_id, said.thread_id
    return Result(found, _HELD.format(why=_why(names, said.open_todos)) if held else _SENT)


def _why(names: list[str], todos: int) -> str:
    parts = [f"reports are still to come from {', '.join(names)}"] if names else []
    if todos:
        parts.append("one todo of yours is open" if todos == 1 else f"{todos} todos of yours are open")
    return " and ".join(parts)


TOOLS = (
    Tool(
        name="reply_to_human",
        description=(
            "Answer the person who prompted you; so does the final message of your turn. While subagents of "
            "yours owe reports or todos are open, it is held and kept as your draft."
        ),
        run=reply_to_human,
        properties={
            "text": fields.text('The answer, up to 64 KiB, e.g. "Done: it rains in Oslo."'),
            "request_id": fields.REQUEST_ID,
        },
        required=("text",),
        output={
            "status": {"enum": ["sent", "held"]},
            "waiting_on": {"type": "array", "items": {"type": "string"}},
            "open_todos": fields.INTEGER,
        },
        crew=("lead",),
    ),
)
