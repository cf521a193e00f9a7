"""Messages of the contract as the JSON that tools return; names as people's scripts know them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from hopline.quota.v1 import credit_pb2, usage_pb2
from hopline.relay.v1 import escalation_pb2, message_pb2, session_pb2
from hopline_rpc.clock import from_timestamp, rfc3339

from hopline_gateway.texts import Foreign, Outside, OwnersWords, OwnNote

Json = dict[str, Any]

# Why a worker's turn, or a tool, failed is in its own words.
_OWN_WORDS = frozenset({"turn_failed", "tool_failed"})
_STATES = {
    value.number: value.name.removeprefix("DELIVERY_STATE_").lower()
    for value in message_pb2.DeliveryState.DESCRIPTOR.values
}
_STATUSES = {
    value.number: value.name.removeprefix("TURN_STATUS_").lower()
    for value in message_pb2.TurnStatus.DESCRIPTOR.values
}
_ESCALATIONS = {
    value.number: value.name.removeprefix("ESCALATION_STATUS_").lower()
    for value in escalation_pb2.EscalationStatus.DESCRIPTOR.values
}


def state(value: int) -> str:
    """Return a delivery's state in lower case: `queued`, `taken`, `answered`, ..."""
    return _STATES[value]


def status(value: int) -> str:
    """Return a turn's status in lower case: `queued`, `running`, `completed`, ..."""
    return _STATUSES[value]


def party(value: message_pb2.Party) -> Json:
    """Return `{id, name}`; the id is null where the reader may not know who it is."""
    return {"id": value.id or None, "name": value.name}


def chain(value: Iterable[message_pb2.Party]) -> list[str]:
    """Return the names of the agents of a chain of delegations, root first; hidden ones have none."""
    return [each.name for each in value]


def delivery(value: message_pb2.Delivery) -> Json:
    """Return `{agent, agent_id, session_id, status}`; of one that a hook kept back also why."""
    found: Json = {
        "agent": value.agent.name,
        "agent_id": value.agent.id or None,
        "session_id": value.session_id or None,
        "status": state(value.state),
    }
    if value.state == message_pb2.DELIVERY_STATE_VETOED:
        found["is_delivered"] = False
        found["is_canceled"] = value.is_canceled
        found["cancel_reason"] = value.cancel_reason or None
    return found


def message(value: message_pb2.Message) -> Json:
    """Return a message with all that is known of it; its own text is marked as foreign."""
    sender = getattr(value, "from")  # a keyword of Python
    found: Json = {
        "id": value.id,
        "message_id": value.id,
        "thread_id": value.thread_id,
        "seq": value.seq,
        "from": {**party(sender), "display": sender.display},
        "to": [party(recipient) for recipient in value.to],
        "provenance": _provenance(sender, value.depth),
        "reply_expected": value.reply_expected,
        "subject": _subject(value.subject, sender.kind),
        "body": _body(value, sender.kind),
        "payload": payload(value.payload_json),
        "in_reply_to": value.in_reply_to or None,
        "depth": value.depth,
        **({"chain": chain(value.chain)} if value.chain else {}),
        "created_at": rfc3339(from_timestamp(value.created_at)),
        "deliveries": [delivery(each) for each in value.deliveries],
    }
    if value.HasField("age_seconds"):
        found["age_seconds"] = value.age_seconds
    if value.HasField("newer_from_sender"):
        found["newer_from_sender"] = value.newer_from_sender
    if value.note:
        found["note"] = value.note
    if value.escalation_id:
        found["escalation_id"] = value.escalation_id
    return found


def _provenance(author: message_pb2.Party, depth: int) -> Json:
    """Return who wrote a text, in whose name, and at which depth; its thread stands beside it."""
    return {"display": author.display, "kind": author.kind, "depth": depth}


def _subject(subject: str, sender_kind: str) -> str | None:
    """Mark a subject as another agent's; that of a schedule or webhook is its name, given by a person."""
    if sender_kind in ("schedule", "webhook"):
        return subject
    return Foreign(subject) if subject else None


def _body(value: message_pb2.Message, sender_kind: str) -> str:
    """Mark a message's text as whose it is: an owner's answer is not some agent's words."""
    if value.note:
        return OwnNote(value.body)
    if value.escalation_id and sender_kind == "user":
        return OwnersWords(value.body)
    return Outside(value.body) if sender_kind == "webhook" else Foreign(value.body)


def payload(text: str) -> Any:
    """Read a payload's JSON text; None where there is none."""
    return json.loads(text) if text else None


def thread(value: message_pb2.Thread) -> Json:
    """Return `{id, thread_id, subject, participants, message_count, last_at, read}`."""
    return {
        "id": value.id,
        "thread_id": value.id,
        "subject": Foreign(value.subject) if value.subject else None,
        "participants": [party(each) for each in value.participants],
        "message_count": value.message_count,
        "last_at": rfc3339(from_timestamp(value.last_at)),
        "read": [read_mark(each) for each in value.read],
    }


def read_mark(value: message_pb2.ReadMark) -> Json:
    """Return `{agent, agent_id, consumed_through}`: the `seq` up to which an agent has read."""
    return {
        "agent": value.agent.name,
        "agent_id": value.agent.id or None,
        "consumed_through": value.consumed_through,
    }


def session(value: session_pb2.Session) -> Json:
    """Return `{id, agent, title, channel, state, opened_by, opened, opened_count, created_at, last_at}`."""
    opened = value.opened_by
    return {
        "id": value.id,
        "agent": party(value.agent),
        "title": value.title,
        "channel": value.channel,
        "state": value.state,
        **({"held": held(value)} if value.held else {}),
        "opened_by": {
            "kind": opened.kind,
            "id": opened.id or None,
            "name": opened.name,
            "session_id": opened.session_id or None,
        },
        "opened": [_linked(each) for each in value.opened],
        "opened_count": value.opened_count,
        "child": _child(value.child) if value.HasField("child") else None,
        "live_children": value.live_children,
        "peer_session_id": value.peer_session_id or None,
        "created_at": rfc3339(from_timestamp(value.created_at)),
        "last_at": rfc3339(from_timestamp(value.last_at)),
    }


def _child(value: session_pb2.Child) -> Json:
    """Return what a session is as somebody's child."""
    return {
        "parent": party(value.parent),
        "parent_session_id": value.parent_session_id or None,
        "state": value.state,
        "owes_report": value.owes_report,
        "is_fire_and_forget": value.is_fire_and_forget,
    }


def _linked(value: session_pb2.LinkedSession) -> Json:
    """Return a session at the other end; all but the agent's name is null where it may not be known."""
    return {
        "session_id": value.id or None,
        "agent": party(value.agent),
        "title": value.title or None,
        "state": value.state or None,
    }


def entry(value: session_pb2.TranscriptEntry) -> Json:
    """Return a line of a transcript, with who said it and in whose name."""
    author = getattr(value, "from")  # a keyword of Python
    return {
        "seq": value.seq,
        "kind": value.kind,
        "at": rfc3339(from_timestamp(value.at)),
        "from": {**party(author), "kind": author.kind, "display": author.display},
        "text": Foreign(value.text),
        "turn_id": value.turn_id or None,
        "message_id": value.message_id or None,
        "thread_id": value.thread_id or None,
        "depth": value.depth,
    }


def turn(value: message_pb2.TurnView) -> Json:
    """Return what a caller learns of a turn: status, ids, and the reply or the error once it has ended."""
    found: Json = {"status": status(value.status)}
    for key in ("session_id", "turn_id", "thread_id", "message_id", "reply_message_id"):
        if identifier := getattr(value, key):
            found[key] = identifier
    found["depth"] = value.depth
    if value.HasField("agent"):
        # Whose words the answer, or why there is none, is.
        found["provenance"] = _provenance(value.agent, value.depth)
    if value.held:
        found["held"] = held(value)
    if value.has_reply:
        found["reply"] = Foreign(value.reply)
        if value.reply_payload_json:
            found["payload"] = payload(value.reply_payload_json)
    if value.written:
        found["written"] = Foreign(value.written)
    if value.HasField("error"):
        said = Foreign(value.error.message) if value.error.code in _OWN_WORDS else value.error.message
        found["error"] = {"code": value.error.code, "message": said}
    return found


def held(value: message_pb2.TurnView | session_pb2.Session) -> Json:
    """Return what an answer is held for: `{waiting_on, open_todos}`, names of agents and a count."""
    return {"waiting_on": [each.name for each in value.waiting_on], "open_todos": value.open_todos}


def escalation(value: escalation_pb2.Escalation) -> Json:
    """Return what an agent learns of its question: `{escalation_id, status, answer?, ...}`."""
    found: Json = {"escalation_id": value.id, "status": _ESCALATIONS[value.status]}
    if value.status == escalation_pb2.ESCALATION_STATUS_ANSWERED:
        found["answer"] = OwnersWords(value.answer)
        found["answered_by"] = value.ended_by.name
    elif value.answer:
        found["answer"] = value.answer
    found["expires_at"] = rfc3339(from_timestamp(value.expires_at))
    return found


def usage(value: usage_pb2.GetUsageResponse, where: session_pb2.GetContextResponse) -> Json:
    """Return what is used of every rail: the limits themselves stand beside it."""
    return {
        "sent_today": value.sent_today,
        "received_today": value.received_today,
        "workspace_sent_today": value.workspace_sent_today,
        "workspace_sent_limit": value.workspace_sent_limit,
        "inbox": value.inbox,
        "running": value.running,
        "root_id": value.root_id or None,
        "root_turns": value.root_turns,
        "root_limit": value.root_limit or None,
        "pairs": [
            {
                "agent": pair.name,
                "agent_id": pair.agent_id or None,
                "used": pair.used,
                "frees_at": moment(pair, "frees_at"),
            }
            for pair in value.pairs
        ],
        "refusals": {"used": where.refusals, "frees_at": moment(where, "refusals_free_at")},
        "credits": credits(value.credits) if value.HasField("credits") else None,
        "resets_at": moment(value, "resets_at"),
    }


def credits(value: credit_pb2.Credits) -> Json:  # noqa: A001 - what it shows is called so
    """Return `{balance, price}` as text, which is exact."""
    return {"balance": value.balance, "price": value.price}


def moment(holder: Any, field: str) -> str | None:
    """Return a timestamp as text; None where it is unset."""
    return rfc3339(from_timestamp(getattr(holder, field))) if holder.HasField(field) else None
