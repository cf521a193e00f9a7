"""The rows of incoming webhooks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, bindparam, delete, func, select, update

from hopline_relay.store.schema import incoming_webhooks
from hopline_relay.store.sql import Record, Statement, insert

Key = tuple[str, str, str]
"""Workspace, agent, name."""

_ONE: Final = (
    incoming_webhooks.c.workspace_id == bindparam("workspace"),
    incoming_webhooks.c.agent_id == bindparam("agent"),
    incoming_webhooks.c.name == bindparam("webhook"),
)
_FIND: Final = Statement(select(incoming_webhooks).where(*_ONE))
_ROTATE: Final = Statement(
    update(incoming_webhooks)
    .where(*_ONE)
    .values(
        secret=bindparam("new_secret"),
        old_secret=bindparam("new_old"),
        old_until=bindparam("until"),
        author_id=bindparam("author"),
        rotated_at=bindparam("at"),
    )
)
_REMOVE: Final = Statement(delete(incoming_webhooks).where(*_ONE))


def _values(key: Key) -> dict[str, Any]:
    return {"workspace": key[0], "agent": key[1], "webhook": key[2]}


def find(connection: Connection, key: Key) -> Record | None:
    """Return a webhook."""
    return _FIND.one(connection, _values(key))


def count(connection: Connection, workspace_id: str, agent_id: str) -> int:
    """Return how many an agent has."""
    query = select(func.count()).where(
        incoming_webhooks.c.workspace_id == workspace_id, incoming_webhooks.c.agent_id == agent_id
    )
    return int(connection.execute(query).scalar_one())


def add(connection: Connection, row: dict[str, Any]) -> None:
    """Write a new one."""
    insert(connection, incoming_webhooks, [row])


def newest(
    connection: Connection, workspace_id: str, agent_ids: Sequence[str], before: int, most: int
) -> Sequence[Record]:
    """Return those of these agents, newest first, from before an ordinal."""
    query = (
        select(incoming_webhooks)
        .where(
            incoming_webhooks.c.workspace_id == workspace_id,
            incoming_webhooks.c.agent_id.in_(agent_ids),
            incoming_webhooks.c.ordinal < before,
        )
        .order_by(incoming_webhooks.c.ordinal.desc())
        .limit(most)
    )
    return connection.execute(query).all()


def rotate(
    connection: Connection, row: Record, secret: str, until: float | None, author: str, at: float
) -> None:
    """Give one another secret; the one before stays valid until then, if it does."""
    values = _values((row.workspace_id, row.agent_id, row.name))
    values |= {"new_secret": secret, "new_old": row.secret if until is not None else ""}
    _ROTATE.run(connection, {**values, "until": until, "author": author, "at": at})


def remove(connection: Connection, key: Key) -> bool:
    """Remove one; False where it is gone."""
    return _REMOVE.run(connection, _values(key)) == 1
