"""What an explicit reply does to the message it answers: its delivery, its debt, and a pulled turn."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import bindparam, update

from hopline_relay.store import turns as turn_store
from hopline_relay.store.book import Book
from hopline_relay.store.schema import debts, deliveries
from hopline_relay.store.sql import Record, Statement
from hopline_relay.store.turns import Ended


class RacedError(Exception):
    """The record is no longer what the call was prepared for: it is to be prepared again."""


@dataclass(frozen=True, slots=True)
class Discharge:
    """A first answer to a delivery.

    `state`: what the delivery was seen in. `ends`: the turn that this ends, as one that was pulled, or
    never ran. `owed`: whether a debt was open for it.
    """

    workspace_id: str
    message_id: str
    recipient_id: str
    state: str
    reply_id: str
    turn_id: str
    owed: bool
    ends: Ended | None


_ANSWER = Statement(
    update(deliveries)
    .where(
        deliveries.c.workspace_id == bindparam("workspace"),
        deliveries.c.message_id == bindparam("message"),
        deliveries.c.recipient_id == bindparam("recipient"),
        deliveries.c.state == bindparam("seen"),
    )
    .values(state="answered", place=False)
)
_PAY = Statement(
    update(debts)
    .where(
        debts.c.workspace_id == bindparam("workspace"),
        debts.c.turn_id == bindparam("turn"),
        debts.c.state == "open",
    )
    .values(state="answered", reply_message_id=bindparam("reply"))
)


def discharge(book: Book, each: Discharge) -> Record | None:
    """Mark the delivery answered, its debt paid, its turn ended; `RacedError` when one was not as seen.

    Returns the turn that it ended, as it was before, if any.
    """
    connection = book.connection
    values = {
        "workspace": each.workspace_id,
        "message": each.message_id,
        "recipient": each.recipient_id,
        "seen": each.state,
    }
    if _ANSWER.run(connection, values) != 1:
        raise RacedError
    if each.owed:
        paid = {"workspace": each.workspace_id, "turn": each.turn_id, "reply": each.reply_id}
        if _PAY.run(connection, paid) != 1:
            raise RacedError
    if each.ends is None:
        return None
    ended = turn_store.finish(book, [each.ends])
    if not ended:
        raise RacedError
    return ended[0]
