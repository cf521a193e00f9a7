"""What turns have written so far, for whoever looks before they end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from sqlalchemy import Connection, and_, bindparam, delete, select, update

from hopline_relay.store.book import Book
from hopline_relay.store.bulk import by_id
from hopline_relay.store.schema import EMPTY, deliveries, outputs, turns
from hopline_relay.store.sql import Record, Statement, insert

Key = tuple[str, str]
"""Workspace and turn."""
# So many of a session's newest turns are looked at.
_NEWEST: Final = 20

_SET: Final = Statement(
    update(outputs)
    .where(outputs.c.workspace_id == bindparam("workspace"), outputs.c.turn_id == bindparam("turn"))
    .values(attempt=bindparam("new_attempt"), body=bindparam("new_body"))
)


def write(book: Book, texts: dict[Key, tuple[int, str]]) -> None:
    """Keep what turns have written at an attempt, as long as they run at it."""
    rows = by_id(book.connection, turns, texts, lock=True)
    known = by_id(book.connection, outputs, texts, outputs.c.turn_id)
    fresh, changed = [], []
    for key, (attempt, body) in texts.items():
        row = rows.get(key)
        if row is None or row.state != "running" or row.attempt != attempt:
            continue
        workspace_id, turn_id = key
        if key in known:
            values = {"workspace": workspace_id, "turn": turn_id, "new_attempt": attempt, "new_body": body}
            changed.append(values)
        else:
            fresh.append({"workspace_id": workspace_id, "turn_id": turn_id, "attempt": attempt, "body": body})
    insert(book.connection, outputs, fresh)
    _SET.many(book.connection, changed)


_FORGET: Final = Statement(
    delete(outputs).where(
        outputs.c.workspace_id == bindparam("workspace"), outputs.c.turn_id == bindparam("turn")
    )
)


def forget(connection: Connection, rows: Sequence[Record]) -> None:
    """Delete what these turns have written: it has become a message."""
    _FORGET.many(connection, [{"workspace": row.workspace_id, "turn": row.id} for row in rows])


def of_turns(connection: Connection, keys: Iterable[Key]) -> dict[Key, Record]:
    """Return what these turns have written, in whichever attempt."""
    return by_id(connection, outputs, keys, outputs.c.turn_id)


def so_far(connection: Connection, turn: Record) -> str:
    """Return what a running turn has written at this attempt."""
    row = of_turns(connection, {(turn.workspace_id, turn.id)}).get((turn.workspace_id, turn.id))
    if row is None or turn.state != "running" or row.attempt != turn.attempt:
        return ""
    return str(row.body)


_IN_SESSION: Final = Statement(
    select(turns, outputs.c.body, outputs.c.attempt.label("wrote_at"))
    .select_from(deliveries)
    .join(turns, and_(turns.c.workspace_id == deliveries.c.workspace_id, turns.c.id == deliveries.c.turn_id))
    .outerjoin(outputs, and_(outputs.c.workspace_id == turns.c.workspace_id, outputs.c.turn_id == turns.c.id))
    .where(
        deliveries.c.workspace_id == bindparam("workspace"),
        deliveries.c.session_id == bindparam("session"),
        deliveries.c.session_id != EMPTY,
    )
    .order_by(deliveries.c.ordinal.desc())
    .limit(bindparam("most"))
)


def in_session(connection: Connection, workspace_id: str, session_id: str) -> Sequence[Record]:
    """Return the newest turns of a session that have written something nobody was sent, oldest first.

    Rows of `turns` with the `body`: it is being written, or its turn has ended without an answer.
    """
    values: dict[str, Any] = {"workspace": workspace_id, "session": session_id, "most": _NEWEST}
    rows = _IN_SESSION.all(connection, values)
    return [
        row for row in reversed(rows) if row.body and row.state != "queued" and row.wrote_at == row.attempt
    ]
