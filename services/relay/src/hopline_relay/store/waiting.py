"""The rows of calls that wait, and answers that were handed to such a call or taken back from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, delete, select

from hopline_relay.store.schema import waits
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


def all_waits(connection: Connection) -> Sequence[Record]:
    """Return every wait there is."""
    return connection.execute(select(waits)).all()
