"""Deleting the sessions of agents whose plugin is gone; what was said in them stays where others read it."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, delete, func, select

from hopline_relay.domain.values import MESH
from hopline_relay.store.book import Book
from hopline_relay.store.schema import EMPTY, children, sessions, timers, todo_lists, todos

SESSIONS: Final = 200
GONE: Final = "sessions.deleted"
# What is kept of a session beside it.
_KEPT: Final = tuple((table, table.c.session_id) for table in (children, todos, todo_lists, timers))


def count_sessions(connection: Connection, workspace_id: str, agent_id: str) -> int:
    """Return how many sessions an agent has."""
    query = select(func.count()).where(
        sessions.c.workspace_id == workspace_id, sessions.c.agent_id == agent_id
    )
    return int(connection.execute(query).scalar_one())


def delete_sessions(book: Book, workspace_id: str, agent_id: str, plugin_id: str) -> bool:
    """Delete a bounded part of an agent's sessions; tells whether more may be left.

    One in which a turn still runs waits for its end.
    """
    query = (
        select(sessions.c.id)
        .where(
            sessions.c.workspace_id == workspace_id,
            sessions.c.agent_id == agent_id,
            sessions.c.running_turn_id == EMPTY,
        )
        .order_by(sessions.c.ordinal)
        .limit(SESSIONS)
    )
    ids = list(book.connection.execute(query).scalars())
    if not ids:
        return False
    for table, column in ((sessions, sessions.c.id), *_KEPT):
        book.connection.execute(delete(table).where(table.c.workspace_id == workspace_id, column.in_(ids)))
    details = {"plugin": plugin_id, "sessions": len(ids)}
    book.note(workspace_id, GONE, MESH, agent_id=agent_id, details=details)
    return len(ids) == SESSIONS
