"""ask, check, cancel: work at another agent whose answer the caller waits for."""

from __future__ import annotations

from hopline.relay.v1 import delegation_pb2, message_pb2
from hopline_rpc.errors import HoplineError

from hopline_gateway import shapes
from hopline_gateway.mistakes import with_hints
from hopline_gateway.toolkit import MAX_WAIT, Call, Result, Tool, with_retry_hint
from hopline_gateway.tools import cycles, fields

_HEADLINES = {
    "queued": "Not started yet. The work goes on by itself: call check with this turn_id to wait further.",
    "running": "Still running. The work goes on by itself: call check with this turn_id to wait further.",
    "waiting_for_owner": "The other agent waits for its owner's answer: call check with this turn_id later.",
    "completed": "Answered.",
    "failed": "The other agent did not answer; the error says why. Your own call worked.",
    "canceled": "This turn was canceled; no answer will come.",
}


async def ask(call: Call) -> Result:
    """Prompt another agent and wait for its answer."""
    agent, seconds, request_id = call.text("agent"), call.wait_seconds(MAX_WAIT), call.request_id()
    request = message_pb2.AskRequest(
        agent=agent,
        text=call.text("text"),
        session_id=call.text("session_id"),
        wait_seconds=seconds,
        request_id=request_id,
        caller_session_id=call.caller.session_id,
    )
    try:
        asked = await call.wait_rpc(call.mesh.messages.Ask, request, seconds, f"waiting for {agent}")
    except HoplineError as error:
        raise with_retry_hint(with_hints(error, [agent]), request_id) from error
    return cycles.warned(_result(asked.turn), asked.cycle)


async def check(call: Call) -> Result:
    """Wait for a turn that the caller started, or look at it."""
    seconds = call.wait_seconds(MAX_WAIT)
    request = message_pb2.CheckRequest(wait_seconds=seconds, caller_session_id=call.caller.session_id)
    if "turn_id" in _one_of(call):
        request.turn_id = call.text("turn_id")
    else:
        request.session_id = call.text("session_id")
    checked = await call.wait_rpc(call.mesh.messages.Check, request, seconds, "waiting for the answer")
    return _result(checked.turn)


def _result(turn: message_pb2.TurnView) -> Result:
    found = shapes.turn(turn)
    return Result(found, _HEADLINES.get(found["status"], ""))


async def cancel(call: Call) -> Result:
    """End a turn and whatever only it waits for."""
    if "turn_id" in _one_of(call):
        request = delegation_pb2.CancelRequest(turn_id=call.text("turn_id"))
    else:
        request = delegation_pb2.CancelRequest(session_id=call.text("session_id"))
    ended = await call.rpc(call.mesh.delegation.Cancel, request)
    return Result({"status": shapes.status(ended.status), "canceled": ended.canceled})


def _one_of(call: Call) -> set[str]:
    """Return which of the two ids was given; both or none is refused."""
    given = {"turn_id", "session_id"} & call.arguments.keys()
    if len(given) == 1:
        return given
    said = "give one of them, not both" if given else "one of them is needed, as ask returned it"
    raise HoplineError(
        "invalid_argument",
        f"turn_id, session_id: {said}",
        violations=[("turn_id", said), ("session_id", said)],
    )


_TURN = {
    "status": fields.STRING,
    "session_id": fields.STRING,
    "turn_id": fields.STRING,
    "reply": fields.STRING,
    "error": fields.OBJECT,
}
_WHICH = {
    "turn_id": fields.identifier("trn_… from ask"),
    "session_id": fields.identifier("Or ses_…: its newest turn"),
}

TOOLS = (
    Tool(
        name="ask",
        description=(
            "Give another agent a task and wait for its answer. It sees only this text, not your "
            "conversation: say all it needs. If it takes longer you get running or queued and the ids: go on "
            "with check. The end of the wait does not end the work."
        ),
        run=ask,
        properties={
            "agent": fields.AGENT,
            "text": fields.text('The task, up to 64 KiB, e.g. "What is the weather in Oslo?"'),
            "session_id": {
                "type": "string",
                "maxLength": 64,
                "description": "ses_… of an earlier ask, to follow up there",
            },
            "wait_seconds": fields.wait(MAX_WAIT),
            "request_id": fields.REQUEST_ID,
        },
        required=("agent", "text"),
        output=_TURN,
        waits=True,
        for_users=True,
    ),
    Tool(
        name="check",
        description="Wait for (wait_seconds 0: look at) what an ask started. Give turn_id or session_id.",
        run=check,
        properties={**_WHICH, "wait_seconds": fields.wait(MAX_WAIT)},
        output=_TURN,
        reads=True,
        waits=True,
        for_users=True,
    ),
    Tool(
        name="cancel",
        description="Stop work you started, with all that only it waits for. Give turn_id or session_id.",
        run=cancel,
        properties=_WHICH,
        output={"status": fields.STRING, "canceled": fields.INTEGER},
        destroys=True,
        for_users=True,
    ),
)
