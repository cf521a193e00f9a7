"""What a pull looks for in the record, and what it settles there by itself."""

from __future__ import annotations

from hopline_rpc.principals import Principal
from sqlalchemy import Connection, bindparam, select, update

from hopline_relay.store import queues
from hopline_relay.store.book import Book
from hopline_relay.store.schema import deliveries
from hopline_relay.store.sql import Record, Statement
from hopline_relay.store.turns import UNSERVED

_UNREAD = Statement(
    select(deliveries.c.turn_id).where(
        deliveries.c.workspace_id == bindparam("workspace"),
        deliveries.c.message_id.in_(bindparam("ids", expanding=True)),
        deliveries.c.recipient_id == bindparam("agent"),
        deliveries.c.state == "queued",
    ),
    "ids",
)


def unread_of(connection: Connection, principal: Principal, keys: set[tuple[str, str]]) -> list[Record]:
    """Return the queued turns that serve the agent's unread ones of these messages."""
    if not keys:
        return []
    values = {
        "workspace": principal.workspace_id,
        "ids": sorted(message_id for _, message_id in keys),
        "agent": principal.id,
    }
    found = {(principal.workspace_id, row.turn_id) for row in _UNREAD.all(connection, values)}
    rows = queues.find(connection, found).values()
    return sorted((row for row in rows if row.state == "queued"), key=lambda row: row.ordinal)


_DONE = Statement(
    update(deliveries)
    .where(
        deliveries.c.workspace_id == bindparam("workspace"),
        deliveries.c.message_id == bindparam("message"),
        deliveries.c.recipient_id == bindparam("agent"),
        UNSERVED,
    )
    .values(state="done")
)


def mark_done(book: Book, principal: Principal, message_id: str) -> None:
    """Say that an agent is done with a message whose turn is not its own to end."""
    values = {"workspace": principal.workspace_id, "message": message_id, "agent": principal.id}
    _DONE.run(book.connection, values)
