"""Copies of messages: who got what, and what became of it."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, bindparam, select

from hopline_relay.store.schema import deliveries
from hopline_relay.store.sql import Record, Statement

_COPIES = Statement(
    select(deliveries)
    .where(
        deliveries.c.workspace_id == bindparam("workspace"),
        deliveries.c.message_id.in_(bindparam("ids", expanding=True)),
    )
    .order_by(deliveries.c.ordinal),
    "ids",
)


def copies_of(connection: Connection, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], list[Record]]:
    """Return the deliveries of messages, given by (workspace, id)."""
    grouped: dict[str, list[str]] = {}
    copies: dict[tuple[str, str], list[Record]] = {}
    for workspace_id, message_id in keys:
        grouped.setdefault(workspace_id, []).append(message_id)
        copies[workspace_id, message_id] = []
    for workspace_id, ids in grouped.items():
        for row in _COPIES.all(connection, {"workspace": workspace_id, "ids": ids}):
            copies[workspace_id, row.message_id].append(row)
    return copies
