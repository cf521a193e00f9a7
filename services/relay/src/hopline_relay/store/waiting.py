"""The rows of calls that wait, and answers that were handed to such a call or taken back from it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, delete, select

from hopline_relay.store.schema import debts, instances, waits
from hopline_relay.store.sql import Record, Statement, insert

_REMOVE = Statement(
    delete(waits).where(waits.c.workspace_id == bindparam("workspace"), waits.c.id == bindparam("wait"))
)


def remove(connection: Connection, keys: Sequence[tuple[str, str]]) -> None:
    """Drop waits by (workspace, id)."""
    if keys:
        _REMOVE.many(connection, [{"workspace": key[0], "wait": key[1]} for key in keys])


def add(connection: Connection, row: dict[str, Any]) -> None:
    """Write a wait."""
    insert(connection, waits, [row])


Seat = tuple[str, str, str]
"""(workspace id, turn id, id of who waits)"""

_ELSEWHERE = Statement(
    select(waits.c.workspace_id, waits.c.turn_id, waits.c.waiter_id)
    .join(instances, instances.c.id == waits.c.instance_id)
    .where(
        waits.c.turn_id.in_(bindparam("turns", expanding=True)),
        waits.c.instance_id != bindparam("instance"),
        instances.c.ended_at.is_(None),
    ),
    "turns",
)


def elsewhere(connection: Connection, keys: Collection[tuple[str, str]], instance_id: str) -> set[Seat]:
    """Return who waits for these turns at other relays."""
    if not keys:
        return set()
    rows = _ELSEWHERE.all(connection, {"turns": [key[1] for key in keys], "instance": instance_id})
    return {(row.workspace_id, row.turn_id, row.waiter_id) for row in rows}


def was_missed(connection: Connection, key: tuple[str, str], waiter_id: str) -> bool:
    """Tell whether a turn has ended whose answer nobody waits for any more."""
    paid = select(debts.c.turn_id).where(
        debts.c.workspace_id == key[0], debts.c.turn_id == key[1], debts.c.state != "open"
    )
    others = select(waits.c.id).where(
        waits.c.workspace_id == key[0], waits.c.turn_id == key[1], waits.c.waiter_id == waiter_id
    )
    return connection.execute(paid).first() is not None and connection.execute(others).first() is None


def all_waits(connection: Connection) -> Sequence[Record]:
    """Return every wait there is."""
    return connection.execute(select(waits)).all()


def left(connection: Connection) -> Sequence[Record]:
    """Return the waits of processes that have died."""
    alive = select(instances.c.id).where(instances.c.ended_at.is_(None))
    return connection.execute(select(waits).where(waits.c.instance_id.not_in(alive))).all()
