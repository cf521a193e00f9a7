"""Closed sessions: nothing more goes into one, and what is there for it ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, and_, bindparam, or_, select, update

from hopline_relay.domain.values import Actor
from hopline_relay.store import timers, todos
from hopline_relay.store.book import Book
from hopline_relay.store.bulk import by_id
from hopline_relay.store.schema import (
    CLOSING,
    EMPTY,
    OPEN,
    QUEUED,
    RUNNING,
    children,
    debts,
    deliveries,
    sessions,
    turns,
)
from hopline_relay.store.sql import Record, Statement

# A child of a child is one link further down; the policy bounds the links.
_DEEPEST: Final = 64

_BELOW: Final = Statement(
    select(sessions.c.id)
    .join(
        children,
        and_(children.c.workspace_id == sessions.c.workspace_id, children.c.session_id == sessions.c.id),
    )
    .where(
        sessions.c.workspace_id == bindparam("workspace"),
        sessions.c.opened_by_session_id.in_(bindparam("parents", expanding=True)),
        sessions.c.opened_by_session_id != EMPTY,
    ),
    "parents",
)
_CLOSE: Final = Statement(
    update(sessions)
    .where(sessions.c.workspace_id == bindparam("workspace"), sessions.c.id == bindparam("session"))
    .values(closed=True)
)
_CLOSE_CHILD: Final = Statement(
    update(children)
    .where(children.c.workspace_id == bindparam("workspace"), children.c.session_id == bindparam("session"))
    .values(state="closing")
)
_CLOSED: Final = Statement(
    update(children)
    .where(children.c.workspace_id == bindparam("workspace"), children.c.session_id == bindparam("session"))
    .values(state="closed")
)
_LEFT: Final = Statement(
    select(children.c.session_id).where(
        children.c.workspace_id == bindparam("workspace"), children.c.state == CLOSING
    )
)


def close(book: Book, workspace_id: str, session_id: str, actor: Actor) -> list[str]:
    """Close a child's session with those of its own children, all the way down; returns all of them."""
    book.lock(workspace_id)
    found = [session_id]
    parents = found
    for _ in range(_DEEPEST):
        below = _BELOW.scalars(book.connection, {"workspace": workspace_id, "parents": parents})
        parents = [each for each in below if each not in found]
        if not parents:
            break
        found = [*found, *parents]
    rows = by_id(book.connection, sessions, {(workspace_id, each) for each in found})
    fresh = [row for row in rows.values() if not row.closed]
    values = [{"workspace": workspace_id, "session": row.id} for row in fresh]
    _CLOSE.many(book.connection, values)
    _CLOSE_CHILD.many(book.connection, values)
    for row in fresh:
        todos.drop_of_session(book, (workspace_id, row.id))
        timers.drop_of_session(book, (workspace_id, row.id))
        book.note(workspace_id, "session.closed", actor, agent_id=row.agent_id, session_id=row.id)
    return found


def closed(book: Book, workspace_id: str, session_ids: Sequence[str]) -> None:
    """Say that nothing is left of these."""
    _CLOSED.many(book.connection, [{"workspace": workspace_id, "session": each} for each in session_ids])


def left_over(connection: Connection, workspace_id: str) -> list[str]:
    """Return the sessions that a process had begun to close."""
    return _LEFT.scalars(connection, {"workspace": workspace_id})


_LIVE_IN: Final = Statement(
    select(turns, debts.c.creditor_session_id)
    .select_from(deliveries)
    .join(turns, and_(turns.c.workspace_id == deliveries.c.workspace_id, turns.c.id == deliveries.c.turn_id))
    .outerjoin(debts, and_(debts.c.workspace_id == turns.c.workspace_id, debts.c.turn_id == turns.c.id))
    .where(
        deliveries.c.workspace_id == bindparam("workspace"),
        deliveries.c.session_id == bindparam("session"),
        deliveries.c.session_id != EMPTY,
        or_(turns.c.state == QUEUED, turns.c.state == RUNNING),
    )
    .order_by(deliveries.c.ordinal)
)
_OWED_TO: Final = Statement(
    select(turns, debts.c.creditor_session_id)
    .select_from(debts)
    .join(turns, and_(turns.c.workspace_id == debts.c.workspace_id, turns.c.id == debts.c.turn_id))
    .where(
        debts.c.workspace_id == bindparam("workspace"),
        debts.c.state == OPEN,
        debts.c.creditor_session_id.in_(bindparam("sessions", expanding=True)),
        or_(turns.c.state == QUEUED, turns.c.state == RUNNING),
    ),
    "sessions",
)


def live(connection: Connection, workspace_id: str, session_ids: Sequence[str]) -> list[Record]:
    """Return the turns that are queued or run in these sessions, or owe them an answer."""
    found = _OWED_TO.all(connection, {"workspace": workspace_id, "sessions": list(session_ids)})
    for session_id in session_ids:
        found += _LIVE_IN.all(connection, {"workspace": workspace_id, "session": session_id})
    return list({row.id: row for row in found}.values())
