"""Transcripts: what came into a session and what went out of it, in the order of commits."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, and_, func, select

from hopline_relay.store.bulk import by_id
from hopline_relay.store.schema import EMPTY, deliveries, messages
from hopline_relay.store.sql import Record

# A line: where it stands in the record, the message, and the copy of it where it came in.
Line = tuple[int, Record, Record | None]
# Behind every line there will ever be.
END: Final = 2**62


def after(connection: Connection, session: Record, ordinal: int, most: int) -> list[Line]:
    """Return the first lines behind a place."""
    found = _read(
        connection,
        session,
        most,
        messages.c.ordinal > ordinal,
        deliveries.c.ordinal > ordinal,
        messages.c.ordinal,
        deliveries.c.ordinal,
    )
    return found[:most]


def before(connection: Connection, session: Record, ordinal: int, most: int) -> list[Line]:
    """Return the last lines before a place."""
    found = _read(
        connection,
        session,
        most,
        messages.c.ordinal < ordinal,
        deliveries.c.ordinal < ordinal,
        messages.c.ordinal.desc(),
        deliveries.c.ordinal.desc(),
    )
    return found[-most:]


def count(connection: Connection, session: Record) -> int:
    """Return how many lines there are."""
    counts = (
        select(func.count()).select_from(messages).where(_outgoing(session)),
        select(func.count()).select_from(deliveries).where(_incoming(session)),
    )
    return sum(connection.execute(query).scalar_one() for query in counts)


def _read(
    connection: Connection,
    session: Record,
    most: int,
    said_where: ColumnElement[bool],
    heard_where: ColumnElement[bool],
    said_order: Any,
    heard_order: Any,
) -> list[Line]:
    outgoing = select(messages).where(_outgoing(session), said_where).order_by(said_order).limit(most)
    incoming = select(deliveries).where(_incoming(session), heard_where).order_by(heard_order).limit(most)
    said: list[Line] = [(row.ordinal, row, None) for row in connection.execute(outgoing)]
    copies = connection.execute(incoming).all()
    bodies = by_id(connection, messages, {(row.workspace_id, row.message_id) for row in copies})
    heard: list[Line] = [(copy.ordinal, bodies[copy.workspace_id, copy.message_id], copy) for copy in copies]
    return sorted(said + heard, key=lambda line: line[0])


def _outgoing(session: Record) -> ColumnElement[bool]:
    return and_(
        messages.c.workspace_id == session.workspace_id,
        messages.c.from_session_id == session.id,
        messages.c.from_session_id != EMPTY,
    )


def _incoming(session: Record) -> ColumnElement[bool]:
    return and_(
        deliveries.c.workspace_id == session.workspace_id,
        deliveries.c.session_id == session.id,
        deliveries.c.session_id != EMPTY,
    )
