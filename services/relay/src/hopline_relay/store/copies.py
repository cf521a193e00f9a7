"""Copies of messages: who got what, and what became of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, Row, bindparam, select

from hopline_relay.store.schema import deliveries

_COPIES = (
    select(deliveries)
    .where(
        deliveries.c.workspace_id == bindparam("workspace"),
        deliveries.c.message_id.in_(bindparam("ids", expanding=True)),
    )
    .order_by(deliveries.c.ordinal)
)


def copies_of(
    connection: Connection, keys: Iterable[tuple[str, str]]
) -> dict[tuple[str, str], list[Row[Any]]]:
    """Return the deliveries of messages, given by (workspace, id)."""
    grouped: dict[str, list[str]] = {}
    copies: dict[tuple[str, str], list[Row[Any]]] = {}
    for workspace_id, message_id in keys:
        grouped.setdefault(workspace_id, []).append(message_id)
        copies[workspace_id, message_id] = []
    for workspace_id, ids in grouped.items():
        for row in connection.execute(_COPIES, {"workspace": workspace_id, "ids": ids}):
            copies[workspace_id, row.message_id].append(row)
    return copies
