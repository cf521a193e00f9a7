"""Turns that start in the transaction that queues them, at the places that were offered to them.

One starts if it is the next one of its agent: nothing that could run now stands in the queue before it. A
call of a tool runs beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hopline_relay.domain.values import TOOL
from hopline_relay.held import Offer, Pull, ToolRun
from hopline_relay.store import queues
from hopline_relay.store import turns as turn_store
from hopline_relay.store.book import Book
from hopline_relay.store.bulk import by_id
from hopline_relay.store.outgoing import Copy, Outgoing
from hopline_relay.store.schema import sessions, turns
from hopline_relay.store.sql import record
from hopline_relay.store.turns import Start

Key = tuple[str, str]


def decide(book: Book, queued: Sequence[tuple[Outgoing, Copy]], rows: Sequence[dict[str, Any]]) -> None:
    """Say which of the copies' turns start, and make their rows, which are to be written, running ones."""
    offers = [(message.workspace_id, copy) for message, copy in queued if copy.offer is not None]
    if not offers:
        return
    waiting, ready = queues.waiting(
        book.connection,
        {
            (workspace_id, copy.id)
            for workspace_id, copy in offers
            if copy.offer is not None and not isinstance(copy.offer.place, ToolRun)
        },
    )
    holds = _pulls_in(book, offers)
    taken: set[Key] = set()
    for (message, copy), row in zip(queued, rows, strict=True):
        agent, session = (message.workspace_id, copy.id), (message.workspace_id, copy.session_id)
        offer = copy.offer
        if offer is not None and isinstance(offer.place, ToolRun):
            copy.start = _start(book, offer, row, holds)
            row.update(turn_store.running(copy.start, offer.instance_id))
            continue
        pulled = offer is not None and isinstance(offer.place, Pull)
        if offer is not None and agent not in (waiting if pulled else ready):
            copy.start = _start(book, offer, row, holds)
            row.update(turn_store.running(copy.start, offer.instance_id))
            if not pulled:
                taken.add(session)
            continue
        waiting.add(agent)
        if session not in taken:
            ready.add(agent)


def begin(book: Book, starts: Sequence[Start]) -> None:
    """Hold the sessions of turns whose rows were written as running, and note their starts."""
    turn_store.hold_sessions(
        book.connection,
        [
            start
            for start in starts
            if (not start.batch_id or start.batch_id == start.row.id) and start.row.cause != TOOL
        ],
    )
    for start in starts:
        turn_store.note_start(book, start)


def _pulls_in(book: Book, offers: Sequence[tuple[str, Copy]]) -> dict[Key, str]:
    """Return, of the sessions that calls wait in for their inboxes, the turns that run there."""
    keys = {
        (workspace_id, copy.offer.place.session_id)
        for workspace_id, copy in offers
        if copy.offer is not None and isinstance(copy.offer.place, Pull)
    }
    return {key: row.running_turn_id for key, row in by_id(book.connection, sessions, keys).items()}


def _start(book: Book, offer: Offer, row: dict[str, Any], holds: dict[Key, str]) -> Start:
    place = offer.place
    batch_id = session_id = ""
    if isinstance(place, Pull):
        session_id = place.session_id
        key = (place.workspace_id, session_id)
        batch_id = holds[key] = holds[key] or row["id"]
    return Start(
        record(turns, row),
        epoch=0 if isinstance(place, Pull) else place.epoch,
        slot=not isinstance(place, Pull),
        started_at=book.now,
        lease_until=book.now + offer.lease_seconds,
        deadline_at=book.now + offer.turn_seconds,
        span=offer.span,
        delivery="taken" if isinstance(place, Pull) else "delivered",
        batch_id=batch_id,
        run_session_id=session_id,
    )
