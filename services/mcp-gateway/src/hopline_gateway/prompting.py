"""Prompting an agent through its own endpoint: what MCP's `ask` and `check` and the sessions API share.

A person prompts at depth 0; what an agent asks is a delegation, admitted like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hopline.relay.v1 import message_pb2, session_pb2
from hopline_directory import AgentRecord
from hopline_rpc.errors import HoplineError

from hopline_gateway import shapes
from hopline_gateway.toolkit import MAX_WAIT, Call, Json, Result, with_retry_hint
from hopline_gateway.tools import cycles

NAMES: Final[Mapping[str, str]] = {
    "text": "message",
    "session_id": "sessionId",
    "wait_seconds": "waitSeconds",
    "page_size": "limit",
    "page_token": "cursor",
    "arguments_json": "arguments",
}
HEADLINES: Final[Mapping[str, str]] = {
    "queued": "Not started yet. The work goes on by itself: call check with this sessionId to wait further.",
    "running": "Still running. The work goes on by itself: call check with this sessionId to wait further.",
    "waiting_for_owner": "The agent waits for its owner's answer: call check with this sessionId later.",
    "completed": "Answered. Give this sessionId to ask to follow up.",
    "failed": "The agent did not answer; the error says why. Your own call worked.",
    "canceled": "This turn was canceled; no answer will come.",
}
HELD: Final = (
    "The agent's answer is held until its subagents have reported and its todos are done: call check with "
    "this sessionId to wait further."
)
# Of what is known of a turn, what is told here, and under which name.
_TOLD: Final = (
    ("status", "status"),
    ("session_id", "sessionId"),
    ("turn_id", "turnId"),
    ("provenance", "provenance"),
    ("reply", "reply"),
    ("payload", "payload"),
    ("error", "error"),
    ("held", "held"),
)


async def ask(call: Call) -> Result:
    """Prompt the agent, in a fresh session or in one that the caller opened, and wait for its answer."""
    agent, seconds, request_id = (
        of_endpoint(call),
        call.wait_seconds(MAX_WAIT, "waitSeconds"),
        call.request_id(),
    )
    what = f"waiting for {agent.name}"
    try:
        if call.caller.principal.kind == "user":
            prompt = session_pb2.PromptRequest(
                agent=agent.id,
                text=call.text("message"),
                session_id=call.text("sessionId"),
                wait_seconds=seconds,
                request_id=request_id,
                own_endpoint=True,
            )
            prompted = await call.wait_rpc(call.mesh.sessions.Prompt, prompt, seconds, what)
            return _result(prompted.turn)
        request = message_pb2.AskRequest(
            agent=agent.id,
            text=call.text("message"),
            session_id=call.text("sessionId"),
            wait_seconds=seconds,
            request_id=request_id,
            caller_session_id=call.caller.session_id,
            own_endpoint=True,
        )
        asked = await call.wait_rpc(call.mesh.messages.Ask, request, seconds, what)
        return cycles.warned(_result(asked.turn), asked.cycle)
    except HoplineError as error:
        raise with_retry_hint(error, request_id) from error


async def check(call: Call) -> Result:
    """Wait for the newest turn of a session that the caller opened, or look at it."""
    seconds = call.wait_seconds(MAX_WAIT, "waitSeconds")
    request = message_pb2.CheckRequest(
        session_id=call.text("sessionId"),
        wait_seconds=seconds,
        caller_session_id=call.caller.session_id,
        endpoint_of=of_endpoint(call).id,
    )
    checked = await call.wait_rpc(call.mesh.messages.Check, request, seconds, "waiting for the answer")
    return _result(checked.turn)


def of_endpoint(call: Call) -> AgentRecord:
    """Return the agent through whose endpoint a call came."""
    if call.agent is None:
        raise RuntimeError("this is served at agents' own endpoints alone")
    return call.agent


def told(turn: message_pb2.TurnView) -> Json:
    """Return what is told of a turn at the endpoint of its agent."""
    found = shapes.turn(turn)
    return {name: found[key] for key, name in _TOLD if key in found}


def _result(turn: message_pb2.TurnView) -> Result:
    found = told(turn)
    return Result(found, HELD if "held" in found else HEADLINES.get(found["status"], ""))
