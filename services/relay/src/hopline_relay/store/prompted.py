"""Who has prompted a session, and which of those prompts an answer of its agent goes to."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import Connection, and_, bindparam, or_, select

from hopline_relay.store import holds
from hopline_relay.store.schema import OPEN, RUNNING, debts, deliveries, messages, turns
from hopline_relay.store.sql import Record, Statement

_MOST: Final = 50


class Prompted(NamedTuple):
    """A prompt of a person, a schedule or a webhook, and the turn that serves it."""

    message_id: str
    turn_id: str


_SERVED = Statement(
    select(turns.c.message_id, turns.c.id)
    .join(debts, and_(debts.c.workspace_id == turns.c.workspace_id, debts.c.turn_id == turns.c.id))
    .where(
        turns.c.workspace_id == bindparam("workspace"),
        turns.c.agent_id == bindparam("agent"),
        turns.c.state == RUNNING,
        or_(turns.c.session_id == bindparam("session"), turns.c.run_session_id == bindparam("session")),
        debts.c.state == OPEN,
        debts.c.creditor_kind != "agent",
    )
    .order_by(turns.c.ordinal)
    .limit(1)
)
_NEWEST = Statement(
    select(messages.c.id, deliveries.c.turn_id, turns.c.root_id)
    .select_from(deliveries)
    .join(
        messages,
        and_(messages.c.workspace_id == deliveries.c.workspace_id, messages.c.id == deliveries.c.message_id),
    )
    .join(turns, and_(turns.c.workspace_id == deliveries.c.workspace_id, turns.c.id == deliveries.c.turn_id))
    .where(
        deliveries.c.workspace_id == bindparam("workspace"),
        deliveries.c.session_id == bindparam("session"),
        deliveries.c.recipient_id == bindparam("agent"),
        or_(messages.c.kind == "prompt", messages.c.kind == "ask"),
        messages.c.from_kind != "agent",
        turns.c.state != "queued",
    )
    .order_by(deliveries.c.ordinal.desc())
    .limit(_MOST)
)


def answered_from(
    connection: Connection, workspace_id: str, agent_id: str, session_id: str, turn: Record | None
) -> Prompted | None:
    """Return what an answer to a person goes to that comes from this session, and this running turn of it.

    What is held of the turn's root, else what is being served, else the newest prompt of the root, or of all.
    """
    held = holds.in_seats(connection, {(workspace_id, session_id)})
    for row in held:
        if turn is None or row.root_id == turn.root_id:
            return Prompted(row.message_id, row.turn_id)
    values = {"workspace": workspace_id, "agent": agent_id, "session": session_id}
    served = _SERVED.one(connection, values)
    if served is not None:
        return Prompted(*served)
    newest = _NEWEST.all(connection, values)
    of_root = [row for row in newest if turn is not None and row.root_id == turn.root_id]
    for row in [*of_root, *newest]:
        return Prompted(row.id, row.turn_id)
    return None


def newest_in(connection: Connection, workspace_id: str, agent_id: str, session_id: str) -> Prompted | None:
    """Return the newest prompt of a session that is served, or was."""
    values = {"workspace": workspace_id, "agent": agent_id, "session": session_id}
    row = _NEWEST.one(connection, values)
    return Prompted(row.id, row.turn_id) if row is not None else None
