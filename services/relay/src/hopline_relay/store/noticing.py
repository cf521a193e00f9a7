"""The rows of what owners are still to be told."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, delete, func, select, update

from hopline_relay.store.schema import notices
from hopline_relay.store.sql import Record, Statement, insert

Key = tuple[str, str]

_DUE = Statement(
    select(notices)
    .where(notices.c.due_at <= bindparam("now"))
    .order_by(notices.c.due_at)
    .limit(bindparam("most"))
)
_PUT_OFF = Statement(
    update(notices)
    .where(notices.c.workspace_id == bindparam("workspace"), notices.c.id == bindparam("notice"))
    .values(attempts=bindparam("new_attempts"), due_at=bindparam("at"))
)
_REMOVE = Statement(
    delete(notices).where(
        notices.c.workspace_id == bindparam("workspace"), notices.c.id == bindparam("notice")
    )
)


def add(connection: Connection, key: Key, escalation_id: str, owner_id: str, at: float) -> None:
    """Have an owner told of a question."""
    row = {
        "workspace_id": key[0],
        "id": key[1],
        "escalation_id": escalation_id,
        "owner_id": owner_id,
        "attempts": 0,
        "due_at": at,
    }
    insert(connection, notices, [row])


def due(connection: Connection, now: float, most: int) -> Sequence[Record]:
    """Return what is to be told by now, the oldest first."""
    return _DUE.all(connection, {"now": now, "most": most})


def next_due(connection: Connection) -> float | None:
    """Return when the next one is to be told; None for none."""
    return connection.execute(select(func.min(notices.c.due_at))).scalar()


def put_off(connection: Connection, row: Record, attempts: int, at: float) -> None:
    """Have it told again later."""
    values = {"workspace": row.workspace_id, "notice": row.id, "new_attempts": attempts, "at": at}
    _PUT_OFF.run(connection, values)


def remove(connection: Connection, row: Record) -> bool:
    """Forget it: it was told, or nobody is to be told any more. False: somebody else has."""
    return _REMOVE.run(connection, {"workspace": row.workspace_id, "notice": row.id}) == 1
