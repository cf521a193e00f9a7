"""What an explicit reply does to the message it answers: its delivery, its debt, and a pulled turn."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import bindparam, update

from hopline_relay.domain.values import Fault
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
    # Why its debt ends without an answer after all: a hook has kept it back.
    withheld: Fault | None = None


_ANSWER = Statement(
    update(deliveries)
    .where(
        deliveries.c.workspace_id == bindparam("workspace"),
        deliveries.c.message_id == bindparam("message"),
        deliveries.c.recipient_id == bindparam("recipient"),
        deliveries.c.state == bindparam("seen"),
    )
    .values(state=bindparam("new_state"), place=False)
)
_PAY = Statement(
    update(debts)
    .where(
        debts.c.workspace_id == bindparam("workspace"),
        debts.c.turn_id == bindparam("turn"),
        debts.c.state == "open",
    )
    .values(
        state=bindparam("new_state"),
        reply_message_id=bindparam("reply"),
        error_code=bindparam("code"),
        error_message=bindparam("words"),
    )
)


def discharge(book: Book, each: Discharge) -> Record | None:
    """Mark the delivery answered, its debt paid, its turn ended; `RacedError` when one was not as seen.

    An answer that was kept back leaves the delivery done, and the debt failed.

    Returns the turn that it ended, as it was before, if any.
    """
    connection = book.connection
    values = {
        "workspace": each.workspace_id,
        "message": each.message_id,
        "recipient": each.recipient_id,
        "seen": each.state,
        "new_state": "answered" if each.withheld is None else "done",
    }
    if _ANSWER.run(connection, values) != 1:
        raise RacedError
    if each.owed:
        fault = each.withheld
        paid = {
            "workspace": each.workspace_id,
            "turn": each.turn_id,
            "new_state": "answered" if fault is None else "failed",
            "reply": each.reply_id,
            "code": fault.code if fault is not None else "",
            "words": fault.message if fault is not None else "",
        }
        if _PAY.run(connection, paid) != 1:
            raise RacedError
    if each.ends is None:
        return None
    ended = turn_store.finish(book, [each.ends])
    if not ended:
        raise RacedError
    return ended[0]
