"""ask_owner: questions to the person who owns the calling agent."""

from __future__ import annotations

from hopline.relay.v1 import escalation_pb2
from hopline_rpc.errors import HoplineError

from hopline_gateway import shapes
from hopline_gateway.toolkit import MAX_QUESTION, MAX_WAIT, Call, Result, Tool, with_retry_hint
from hopline_gateway.tools import fields

_HEADLINES = {
    "pending": (
        "Not answered yet. The answer will come as a message into this session and wake you; or call "
        "ask_owner with just the same question to wait further."
    ),
    "answered": "Answered.",
    "expired": "Nobody answered in time.",
    "withdrawn": "The question was withdrawn.",
}


async def ask_owner(call: Call) -> Result:
    """Ask the caller's owner and wait for the answer; the same question again waits further for it."""
    seconds = call.wait_seconds(MAX_WAIT)
    request_id = call.request_id()
    request = escalation_pb2.AskOwnerRequest(
        question=call.text("question"),
        options=call.arguments.get("options", []),
        wait_seconds=seconds,
        request_id=request_id,
        caller_session_id=call.caller.session_id,
    )
    try:
        asked = await call.wait_rpc(call.mesh.escalations.AskOwner, request, seconds, "waiting for the owner")
    except HoplineError as error:
        raise with_retry_hint(error, request_id) from error
    found = shapes.escalation(asked.escalation)
    return Result(found, _HEADLINES[found["status"]])


TOOLS = (
    Tool(
        name="ask_owner",
        description=(
            "Ask your owner, a person, for a decision or what only they know; no agent gets it. If it is "
            "pending after the wait, the answer comes later as a message."
        ),
        run=ask_owner,
        properties={
            "question": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_QUESTION,
                "description": 'All they need to decide, e.g. "Deploy 1.2 to production now?"',
            },
            "options": {
                "type": "array",
                "items": {"type": "string", "minLength": 1, "maxLength": 200},
                "maxItems": 10,
                "uniqueItems": True,
                "description": 'The answer is one of these, e.g. ["yes","no"]',
            },
            "wait_seconds": fields.wait(MAX_WAIT),
            "request_id": fields.REQUEST_ID,
        },
        required=("question",),
        output={
            "escalation_id": fields.STRING,
            "status": fields.STRING,
            "answer": fields.STRING,
        },
        waits=True,
        for_receive_only=True,
    ),
)
