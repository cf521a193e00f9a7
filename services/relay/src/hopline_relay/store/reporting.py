"""What a report answers: the task of the calling session, or the message that its turn works on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from hopline_rpc.errors import HoplineError
from hopline_rpc.principals import Principal
from sqlalchemy import Connection

from hopline_relay.callers import no_session
from hopline_relay.domain.values import TASK
from hopline_relay.store import children, queues
from hopline_relay.store.batches import beside
from hopline_relay.store.bulk import by_id
from hopline_relay.store.schema import debts, messages, sessions
from hopline_relay.store.sql import Record


@dataclass(frozen=True, slots=True)
class Reported:
    """The message that a report answers, if any.

    `closed`: an end of that exchange has been closed; `canceled`: its task was, and nobody wants it any more.
    """

    message_id: str = ""
    closed: bool = False
    canceled: bool = False


NOTHING: Final = Reported()


def find(connection: Connection, principal: Principal, session_id: str, turn_id: str) -> Reported:
    """Return what a report of this agent answers that is made from a session or a turn, or from neither."""
    runs = _runs(connection, principal, session_id, turn_id)
    owing = by_id(connection, debts, {(row.workspace_id, row.id) for row in runs}, debts.c.turn_id)
    # People are answered, not reported to.
    owed = [row for row in runs if (debt := owing.get((row.workspace_id, row.id))) and _to_agent(debt)]
    tasks = [row for row in owed if row.cause == TASK]
    chosen = _only(tasks) or _only(owed) or _only([row for row in runs if row.cause == TASK])
    if chosen is not None:
        return _reported(connection, principal.workspace_id, chosen.message_id)
    child = children.of_sessions(connection, {(principal.workspace_id, session_id)}) if session_id else {}
    for row in child.values():
        key = (principal.workspace_id, row.turn_id)
        task = queues.find(connection, {key}).get(key)
        found = _reported(connection, principal.workspace_id, row.message_id)
        return replace(found, canceled=task is not None and task.state == "canceled")
    asked = _only([row for row in runs if row.caused_by_kind == "agent"])
    return NOTHING if asked is None else _reported(connection, principal.workspace_id, asked.message_id)


def _runs(connection: Connection, principal: Principal, session_id: str, turn_id: str) -> list[Record]:
    """Return the turns that run where the call is made from: one, a batch, or what was pulled."""
    workspace_id = principal.workspace_id
    if turn_id:
        row = queues.find(connection, {(workspace_id, turn_id)}).get((workspace_id, turn_id))
        if row is None or row.agent_id != principal.id or row.state != "running":
            return []
        return [row, *beside(connection, [row])]
    running = [
        row for row in queues.running_of(connection, workspace_id, principal.id) if row.cause != "tool"
    ]
    if not session_id:
        return [row for row in running if row.run_session_id]
    session = by_id(connection, sessions, {(workspace_id, session_id)}).get((workspace_id, session_id))
    if session is None or session.agent_id != principal.id:
        raise no_session(session_id)
    return [row for row in running if (row.run_session_id or row.session_id) == session_id]


def _to_agent(debt: Record) -> bool:
    return bool(debt.state == "open" and debt.creditor_kind == "agent")


def _only(rows: Sequence[Record]) -> Record | None:
    if len(rows) > 1:
        ids = [row.message_id for row in rows]
        raise HoplineError(
            "failed_precondition",
            f"you work on several messages at once; say which one you answer: reply with {', '.join(ids)}",
            details={"message_ids": ids},
        )
    return rows[0] if rows else None


def _reported(connection: Connection, workspace_id: str, message_id: str) -> Reported:
    asked = by_id(connection, messages, {(workspace_id, message_id)}).get((workspace_id, message_id))
    if asked is None:
        return NOTHING
    copies = children.of_message(connection, workspace_id, message_id)
    ends = {(workspace_id, asked.from_session_id), *((workspace_id, row.session_id) for row in copies)}
    return Reported(message_id, any(row.closed for row in by_id(connection, sessions, ends).values()))
