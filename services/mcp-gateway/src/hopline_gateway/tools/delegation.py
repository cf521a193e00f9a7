"""start_subagent and its kin: work that is handed on without waiting, and what comes back of it."""

from __future__ import annotations

from hopline.relay.v1 import delegation_pb2 as pb
from hopline_rpc.errors import HoplineError

from hopline_gateway.mistakes import with_hints
from hopline_gateway.toolkit import Call, Result, Tool, with_retry_hint
from hopline_gateway.tools import cycles, fields

_STARTED = "Started. Go on with other work, or end your turn: its report comes as a message and wakes you."
_FORGOTTEN = "Started. It owes no report; read_session shows what it does."
_OUTCOMES = {
    pb.START_OUTCOME_FORBIDDEN: (
        "Not started: there is no such agent that you may start. list_agents shows whom you can."
    ),
    pb.START_OUTCOME_DEPTH_EXCEEDED: (
        "Not started: too many agents in a row, or subagents of subagents. Do it yourself, or answer with "
        "what you have."
    ),
}
CREW = ("lead", "subagent")


async def start_subagent(call: Call) -> Result:
    """Start a child: a run of another agent in a session of its own."""
    agent, request_id = call.text("agent"), call.request_id()
    request = pb.StartSubagentRequest(
        agent=agent,
        task=call.text("task"),
        is_fire_and_forget=_forgets(call),
        request_id=request_id,
        caller_session_id=call.caller.session_id,
    )
    try:
        started = await call.rpc(call.mesh.delegation.StartSubagent, request)
    except HoplineError as error:
        raise with_retry_hint(with_hints(error, [agent]), request_id) from error
    return _started(call, started.start)


async def start_self_subagent(call: Call) -> Result:
    """Start a copy of the caller."""
    request_id = call.request_id()
    request = pb.StartSelfSubagentRequest(
        task=call.text("task"),
        is_fire_and_forget=_forgets(call),
        request_id=request_id,
        caller_session_id=call.caller.session_id,
    )
    try:
        started = await call.rpc(call.mesh.delegation.StartSelfSubagent, request)
    except HoplineError as error:
        raise with_retry_hint(error, request_id) from error
    return _started(call, started.start)


def _forgets(call: Call) -> bool:
    return bool(call.arguments.get("is_fire_and_forget", False))


def _started(call: Call, start: pb.ChildStart) -> Result:
    outcome = pb.StartOutcome.Name(start.outcome).removeprefix("START_OUTCOME_").lower()
    found: dict[str, object] = {"outcome": outcome}
    if start.outcome != pb.START_OUTCOME_CREATED:
        return Result(found, _OUTCOMES[start.outcome])
    for key in ("session_id", "turn_id", "message_id", "thread_id"):
        found[key] = getattr(start, key)
    found["depth"] = start.depth
    return cycles.warned(Result(found, _FORGOTTEN if _forgets(call) else _STARTED), start.cycle)


async def report_to_caller(call: Call) -> Result:
    """Report to whoever started the calling session, or asked for what it works on."""
    request_id = call.request_id()
    request = pb.ReportToCallerRequest(
        text=call.text("text"),
        payload_json=call.payload_json(),
        request_id=request_id,
        caller_session_id=call.caller.session_id,
    )
    try:
        reported = await call.rpc(call.mesh.delegation.ReportToCaller, request)
    except HoplineError as error:
        raise with_retry_hint(error, request_id) from error
    found: dict[str, object] = {"is_delivered": reported.is_delivered, "is_canceled": reported.is_canceled}
    if not reported.is_delivered:
        found["cancel_reason"] = reported.cancel_reason or None
        if reported.cancel_reason and reported.is_canceled:
            return Result(found, "Not delivered: a hook kept it back, cancel_reason says why.")
        return Result(found, "Not delivered. Nobody waits for it any more; finish your turn.")
    found |= {"message_id": reported.message_id, "thread_id": reported.thread_id, "depth": reported.depth}
    return Result(found, "Reported: your caller is woken with it.")


async def message_agent(call: Call) -> Result:
    """Say something in the standing conversation with an agent."""
    agent, request_id = call.text("agent"), call.request_id()
    request = pb.MessageAgentRequest(
        agent=agent,
        text=call.text("text"),
        request_id=request_id,
        caller_session_id=call.caller.session_id,
    )
    try:
        sent = await call.rpc(call.mesh.delegation.MessageAgent, request)
    except HoplineError as error:
        raise with_retry_hint(with_hints(error, [agent]), request_id) from error
    if not sent.message_id:
        kept = {"is_canceled": sent.is_canceled, "cancel_reason": sent.cancel_reason or None}
        # Nothing of what else the result holds: its schema knows no empty ids.
        return Result(kept, "Not sent: a hook of the workspace kept it back.")
    found: dict[str, object] = {
        "session_id": sent.session_id,
        "message_id": sent.message_id,
        "own_session_id": sent.own_session_id,
        "turn_id": sent.turn_id,
        "thread_id": sent.thread_id,
        "depth": sent.depth,
    }
    return cycles.warned(Result(found, "Sent. The answer comes as a message and wakes you."), sent.cycle)


async def send_message_to_session(call: Call) -> Result:
    """Say something in a session that the caller may prompt in."""
    request_id = call.request_id()
    request = pb.SendMessageToSessionRequest(
        session_id=call.text("session_id"),
        text=call.text("text"),
        request_id=request_id,
        caller_session_id=call.caller.session_id,
    )
    try:
        said = await call.rpc(call.mesh.delegation.SendMessageToSession, request)
    except HoplineError as error:
        raise with_retry_hint(error, request_id) from error
    found: dict[str, object] = {"is_delivered": said.is_delivered, "is_canceled": said.is_canceled}
    if not said.is_delivered:
        found["cancel_reason"] = said.cancel_reason or None
        why = "it is closed" if said.cancel_reason == "session_closed" else "see cancel_reason"
        headline = (
            f"Not delivered: {why}." if said.cancel_reason else "Not delivered: there is no such session."
        )
        return Result(found, headline)
    for key in ("message_id", "thread_id", "turn_id"):
        found[key] = getattr(said, key)
    return Result(found, "Delivered; no answer is owed for it.")


def _unsaid(said: pb.SendMessageToSessionResponse) -> str:
    if said.cancel_reason == "session_closed":
        return "Not delivered: it is closed."
    if said.cancel_reason:
        return "Not delivered: cancel_reason says why."
    return "Not delivered: there is no such session."


async def close_subagent(call: Call) -> Result:
    """End a child for good."""
    request = pb.CloseSubagentRequest(
        session_id=call.text("session_id"), caller_session_id=call.caller.session_id
    )
    closed = await call.rpc(call.mesh.delegation.CloseSubagent, request)
    found = {"session_id": request.session_id, "state": closed.state, "canceled": closed.canceled}
    return Result(found, "Closed: nothing more comes of it.")


_TASK = fields.text('All it needs to know, e.g. "Find three sources on X"')
_FORGET = {"type": "boolean", "description": "true: it owes no report"}
_CHILD = {
    "outcome": {"enum": ["created", "forbidden", "depth_exceeded"]},
    "session_id": fields.STRING,
}

TOOLS = (
    Tool(
        name="message_agent",
        description=(
            "Write into the lasting conversation you have with a colleague, who remembers it. Does not wait; "
            "the answer comes as a message and wakes you."
        ),
        run=message_agent,
        properties={
            "agent": fields.AGENT,
            "text": fields.text('E.g. "Does that fit your API?"'),
            "request_id": fields.REQUEST_ID,
        },
        required=("agent", "text"),
        output={"session_id": fields.STRING, "message_id": fields.STRING},
    ),
    Tool(
        name="start_subagent",
        description=(
            "Start an agent on a task, beside you and others; it sees only the task. Does not wait; its "
            "report comes as a message and wakes you."
        ),
        run=start_subagent,
        properties={
            "agent": fields.AGENT,
            "task": _TASK,
            "is_fire_and_forget": _FORGET,
            "request_id": fields.REQUEST_ID,
        },
        required=("agent", "task"),
        output=_CHILD,
    ),
    Tool(
        name="start_self_subagent",
        description=(
            "Start a copy of yourself on a part of your work, in a session of its own. It sees only the "
            "task, not your conversation. Does not wait; its report comes as a message and wakes you."
        ),
        run=start_self_subagent,
        properties={"task": _TASK, "is_fire_and_forget": _FORGET, "request_id": fields.REQUEST_ID},
        required=("task",),
        output=_CHILD,
        crew=CREW,
    ),
    Tool(
        name="report_to_caller",
        description=(
            "Report your result to whoever started you; it is woken with it. Report once, when you are done "
            "or cannot go on, with all your caller needs: it does not see your conversation."
        ),
        run=report_to_caller,
        properties={
            "text": fields.text('Up to 64 KiB, e.g. "Found: A, B. Checked against the source."'),
            "payload": fields.PAYLOAD,
            "request_id": fields.REQUEST_ID,
        },
        required=("text",),
        output={"is_delivered": fields.BOOLEAN, "cancel_reason": fields.nullable("string")},
        crew=CREW,
    ),
    Tool(
        name="send_message_to_session",
        description=(
            "Say something in another session: of your own, of a subagent you started, or one that your "
            "crew's agents run for it. It wakes that session; no answer is owed."
        ),
        run=send_message_to_session,
        properties={
            "session_id": fields.identifier("ses_… from start_subagent or list_agent_sessions"),
            "text": fields.text('Up to 64 KiB, e.g. "Leave the tests out."'),
            "request_id": fields.REQUEST_ID,
        },
        required=("session_id", "text"),
        output={
            "is_delivered": fields.BOOLEAN,
            "is_canceled": fields.BOOLEAN,
            "cancel_reason": fields.nullable("string"),
        },
        crew=CREW,
    ),
    Tool(
        name="close_subagent",
        description=(
            "End a subagent you started, for good: its work stops, with all it started, and no report will "
            "come. To go on with it later leave it open."
        ),
        run=close_subagent,
        properties={"session_id": fields.identifier("ses_… from start_subagent")},
        required=("session_id",),
        output={"session_id": fields.STRING, "state": fields.STRING, "canceled": fields.INTEGER},
        destroys=True,
        crew=CREW,
    ),
)
