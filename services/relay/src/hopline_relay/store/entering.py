"""How messages enter threads: each gets its number there, if the thread takes it.

All messages of a transaction are entered together, in order, over one look at the threads they go to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hopline_rpc.errors import HoplineError
from sqlalchemy import bindparam, update

from hopline_relay.domain.values import VETOED
from hopline_relay.store.book import Book
from hopline_relay.store.bulk import by_id
from hopline_relay.store.outgoing import Outgoing
from hopline_relay.store.schema import participants, threads
from hopline_relay.store.sql import Statement, insert

Key = tuple[str, str]


class _Thread:
    """A thread while a transaction adds to it."""

    __slots__ = ("count", "last", "reserved")

    def __init__(self, count: int, reserved: int) -> None:
        self.count = count
        self.reserved = reserved
        self.last = 0


def enter(
    book: Book, outgoing: Sequence[Outgoing], refused: Sequence[HoplineError | None]
) -> list[HoplineError | None]:
    """Enter messages in order but those that are refused already; returns for each why it may not, if so."""
    keys = {(message.workspace_id, message.thread_id) for message in outgoing if not message.opens_thread}
    known: dict[Key, _Thread] = {}
    if keys:
        for key, row in by_id(book.connection, threads, keys, lock=True).items():
            known[key] = _Thread(row.message_count, row.reserved)
    found = [why or _enter(message, known) for message, why in zip(outgoing, refused, strict=True)]
    _write(book, [each for each, error in zip(outgoing, found, strict=True) if error is None], known)
    return found


def _enter(message: Outgoing, known: dict[Key, _Thread]) -> HoplineError | None:
    if message.refuse_cycles != "off" and message.chain and message.closes_cycle:
        if message.refuse_cycles == "on":
            # Whoever knows the reader says which agents these are.
            return HoplineError("cycle_refused", message.chain)
        message.cycle = message.chain
    if message.opens_thread:
        if message.cap and 1 + _places(message) > message.cap:
            return _thread_full(message, 0)
        message.seq = 1
        return None
    thread = known[message.workspace_id, message.thread_id]
    # A kept place is the sender's own: it was counted with the message that it answers.
    used, wanted = thread.count + thread.reserved, 1 + _places(message)
    if message.cap and not message.takes_place and used + wanted > message.cap:
        return _thread_full(message, used)
    thread.count += 1
    thread.reserved += _places(message) - message.takes_place
    thread.last = message.ordinal
    message.seq = thread.count
    return None


def _places(message: Outgoing) -> int:
    return sum(copy.place for copy in message.copies)


def _thread_full(message: Outgoing, used: int) -> HoplineError:
    details: dict[str, Any] = {"rail": "messages_per_thread", "limit": message.cap, "used": used}
    if message.opens_thread:
        text = (
            f"a thread takes {message.cap} messages, a place for the answer of each recipient included, and "
            f"this needs {1 + _places(message)}; send it to fewer at once"
        )
    else:
        details["thread_id"] = message.thread_id
        text = (
            f"this thread takes {message.cap} messages, places kept for recipients who have not answered "
            "included; send without thread_id to open a new one"
        )
    return HoplineError("thread_full", text, details=details, quota=("messages_per_thread", text))


_COUNT = Statement(
    update(threads)
    .where(threads.c.workspace_id == bindparam("workspace"), threads.c.id == bindparam("thread"))
    .values(
        message_count=bindparam("new_count"),
        reserved=bindparam("new_reserved"),
        last_at=bindparam("at"),
        last_ordinal=bindparam("new_ordinal"),
    )
)
_TOUCH = Statement(
    update(participants)
    .where(
        participants.c.workspace_id == bindparam("workspace"),
        participants.c.thread_id == bindparam("thread"),
    )
    .values(last_ordinal=bindparam("new_ordinal"))
)


def _write(book: Book, entered: Sequence[Outgoing], known: dict[Key, _Thread]) -> None:
    opened = [message for message in entered if message.opens_thread]
    insert(book.connection, threads, [_thread_row(book, message) for message in opened])
    insert(book.connection, participants, [row for message in opened for row in _participant_rows(message)])
    changed = [
        {
            "workspace": workspace_id,
            "thread": thread_id,
            "new_count": thread.count,
            "new_reserved": thread.reserved,
            "at": book.now,
            "new_ordinal": thread.last,
        }
        for (workspace_id, thread_id), thread in known.items()
        if thread.last
    ]
    _COUNT.many(book.connection, changed)
    _TOUCH.many(book.connection, changed)


def _thread_row(book: Book, message: Outgoing) -> dict[str, Any]:
    return {
        "workspace_id": message.workspace_id,
        "id": message.thread_id,
        "subject": message.subject,
        "message_count": 1,
        "reserved": _places(message),
        "created_at": book.now,
        "last_at": book.now,
        "last_ordinal": message.ordinal,
    }


def _participant_rows(message: Outgoing) -> list[dict[str, Any]]:
    # An agent may write to itself: in another session of its own.
    reached = [(copy.kind, copy.id) for copy in message.copies if copy.state != VETOED]
    parties = dict.fromkeys([(message.sender.kind, message.sender.id), *reached])
    return [
        {
            "workspace_id": message.workspace_id,
            "thread_id": message.thread_id,
            "party_id": identifier,
            "party_kind": kind,
            "last_ordinal": message.ordinal,
        }
        for kind, identifier in parties
    ]
