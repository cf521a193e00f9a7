"""The rows of calls that wait, and answers that were handed to such a call or taken back from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, select

from hopline_relay.store.bulk import insert
from hopline_relay.store.schema import waits

_REMOVE = delete(waits).where(waits.c.workspace_id == bindparam("workspace"), waits.c.id == bindparam("wait"))


def remove(connection: Connection, keys: Sequence[tuple[str, str]]) -> None:
    """Drop waits by (workspace, id)."""
    if keys:
        connection.execute(_REMOVE, [{"workspace": key[0], "wait": key[1]} for key in keys])


def add(connection: Connection, row: dict[str, Any]) -> None:
    """Write a wait."""
    insert(connection, waits, [row])


def all_waits(connection: Connection) -> Sequence[Row[Any]]:
    """Return every wait there is."""
    return connection.execute(select(waits)).all()
