"""Dead letters: deliveries that the mesh has given up, each named by the turn that died."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, and_, bindparam, select, update

from hopline_relay.domain.values import sibling
from hopline_relay.store import children
from hopline_relay.store.book import Book
from hopline_relay.store.bulk import by_id
from hopline_relay.store.schema import DEAD, debts, deliveries, turns
from hopline_relay.store.sql import Record, Statement, insert
from hopline_relay.store.turns import NOT_BEGUN

_DEAD = (
    select(turns, deliveries.c.ordinal.label("position"))
    .select_from(deliveries)
    .join(turns, and_(turns.c.workspace_id == deliveries.c.workspace_id, turns.c.id == deliveries.c.turn_id))
    .where(deliveries.c.state == DEAD)
)


def newest(
    connection: Connection, workspace_id: str, agents: Collection[str] | None, before: int, most: int
) -> Sequence[Record]:
    """Return the turns of the newest letters for these agents (None: for all); `position` orders them."""
    query = _DEAD.where(deliveries.c.workspace_id == workspace_id, deliveries.c.ordinal < before)
    if agents is not None:
        query = query.where(deliveries.c.recipient_id.in_(sorted(agents)))
    return connection.execute(query.order_by(deliveries.c.ordinal.desc()).limit(most)).all()


_DELIVERY = Statement(
    select(deliveries).where(
        deliveries.c.workspace_id == bindparam("workspace"),
        deliveries.c.message_id.in_(bindparam("messages", expanding=True)),
        deliveries.c.state == "dead",
    ),
    "messages",
)


def deliveries_of(connection: Connection, workspace_id: str, rows: Collection[Record]) -> dict[str, Record]:
    """Return, by turn, the deliveries of turns that are dead."""
    values = {"workspace": workspace_id, "messages": sorted({row.message_id for row in rows})}
    return {row.turn_id: row for row in _DELIVERY.all(connection, values)}


_SET = Statement(
    update(deliveries)
    .where(
        deliveries.c.workspace_id == bindparam("workspace"),
        deliveries.c.message_id == bindparam("message"),
        deliveries.c.recipient_id == bindparam("recipient"),
    )
    .values(state=bindparam("new_state"), turn_id=bindparam("turn"))
)


def requeue(book: Book, rows: Sequence[Record], fresh_ids: Mapping[str, str], queue_seconds: float) -> None:
    """Queue a new turn for each of these deliveries, whose turns died; what was owed is owed anew."""
    connection = book.connection
    letters = deliveries_of(connection, rows[0].workspace_id, rows)
    owed = by_id(connection, debts, {(row.workspace_id, row.id) for row in rows}, debts.c.turn_id)
    made = []
    for row in rows:
        values = {column.name: getattr(row, column.name) for column in turns.columns}
        made.append(
            {
                **values,
                **NOT_BEGUN,
                "price": 0,
                "id": fresh_ids[row.id],
                # A person sends it again: what comes of that is charged to this act.
                "root_id": sibling("rot", fresh_ids[row.id]),
                "ordinal": book.ordinal(row.workspace_id),
                "created_at": book.now,
                "deadline_at": book.now + queue_seconds,
                "due_at": book.now + queue_seconds,
            }
        )
    insert(connection, turns, made)
    _SET.many(connection, [_changed(letters[row.id], "queued", fresh_ids[row.id]) for row in rows])
    anew = []
    for row in rows:
        debt = owed.get((row.workspace_id, row.id))
        if debt is not None:
            values = {column.name: getattr(debt, column.name) for column in debts.columns}
            open_again = {"turn_id": fresh_ids[row.id], "state": "open", "reply_message_id": ""}
            anew.append({**values, **open_again, "error_code": "", "error_message": ""})
    insert(connection, debts, anew)
    children.revived(connection, rows, fresh_ids)


def strike_off(book: Book, letters: Sequence[Record]) -> None:
    """Take deliveries off the list: they are withdrawn and no more."""
    _SET.many(book.connection, [_changed(letter, "withdrawn", letter.turn_id) for letter in letters])


def _changed(letter: Record, state: str, turn_id: str) -> dict[str, Any]:
    return {
        "workspace": letter.workspace_id,
        "message": letter.message_id,
        "recipient": letter.recipient_id,
        "new_state": state,
        "turn": turn_id,
    }


def outdated(
    connection: Connection, workspace_id: str, *, died_before: float, keep: int, most: int
) -> Sequence[Record]:
    """Return turns of dead letters that died before a moment, or that more than `keep` newer ones follow."""
    beyond = (
        select(deliveries.c.ordinal)
        .where(deliveries.c.workspace_id == workspace_id, deliveries.c.state == DEAD)
        .order_by(deliveries.c.ordinal.desc())
        .offset(keep)
        .limit(1)
    )
    last = connection.execute(beyond).scalar()
    old = turns.c.ended_at < died_before
    query = _DEAD.where(
        deliveries.c.workspace_id == workspace_id,
        old if last is None else (old | (deliveries.c.ordinal <= last)),
    )
    return connection.execute(query.order_by(deliveries.c.ordinal).limit(most)).all()
