"""Wakes that are not needed any more: an answer was handed over before the turn that would have taken it."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import bindparam, update

from hopline_relay.domain.values import Actor, Fault
from hopline_relay.store import turns as turn_store
from hopline_relay.store.book import Book
from hopline_relay.store.schema import deliveries
from hopline_relay.store.sql import Record, Statement
from hopline_relay.store.turns import Ended

_TAKE = Statement(
    update(deliveries)
    .where(
        deliveries.c.workspace_id == bindparam("workspace"),
        deliveries.c.message_id == bindparam("message"),
        deliveries.c.recipient_id == bindparam("recipient"),
    )
    .values(state="taken", turn_id="")
)


def drop(book: Book, queued: Iterable[Record]) -> list[Record]:
    """Mark queued deliveries as taken; returns the turns that would have taken them, as they were."""
    dropped: list[Record] = []
    for delivery in queued:
        wake = Ended(
            delivery.workspace_id,
            delivery.turn_id,
            ("queued",),
            "canceled",
            "taken",
            fault=Fault("canceled", "its answer was handed over before"),
            actor=Actor("agent", delivery.recipient_id),
        )
        rows = turn_store.finish(book, [wake])
        if rows:
            _TAKE.run(
                book.connection,
                {
                    "workspace": delivery.workspace_id,
                    "message": delivery.message_id,
                    "recipient": delivery.recipient_id,
                },
            )
        dropped.extend(rows)
    return dropped
