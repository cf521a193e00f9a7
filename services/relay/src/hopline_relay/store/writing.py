"""Writes messages that were admitted, with everything that belongs to them, in one transaction.

Callers describe each message as an `Outgoing`; what only the store knows (sequence, sessions, chains) is
filled in here. A message that the record does not allow is left out and its error returned, the others
are written. A turn to which a place was offered starts with its message, if it is the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hopline_rpc.errors import HoplineError

from hopline_relay.domain.values import TOOL, VETOED, extend_chain
from hopline_relay.store import children, entering, hooking, starting
from hopline_relay.store import sessions as session_store
from hopline_relay.store.book import Book
from hopline_relay.store.bulk import by_id
from hopline_relay.store.outgoing import Copy, Outgoing
from hopline_relay.store.requests import request_row
from hopline_relay.store.schema import (
    debts,
    deliveries,
    messages,
    requests,
    turns,
    waits,
)
from hopline_relay.store.sql import insert, record
from hopline_relay.store.turns import NOT_BEGUN


def write(book: Book, outgoing: Sequence[Outgoing]) -> list[HoplineError | None]:
    """Write messages in order; returns for each why it was not written, if so."""
    _inherit(book, outgoing)
    for message in outgoing:
        message.ordinal = book.ordinal(message.workspace_id)
        for copy in message.copies:
            copy.ordinal = book.ordinal(message.workspace_id)
            copy.start = None
    refused = entering.enter(book, outgoing, children.refusals(book, outgoing))
    written = [message for message, error in zip(outgoing, refused, strict=True) if error is None]
    _settle_sessions(book, written)
    connection = book.connection
    pairs = [(message, copy) for message in written for copy in message.copies]
    queued = [(message, copy) for message, copy in pairs if copy.turn_id]
    turn_rows = [turn_row(book, message, copy) for message, copy in queued]
    for row in turn_rows:
        if row["price"]:
            book.charge(row["workspace_id"], row["price"])
    starting.decide(book, queued, turn_rows)
    insert(connection, messages, [_message_row(book, message) for message in written])
    insert(connection, deliveries, [_delivery_row(message, copy) for message, copy in pairs])
    insert(connection, turns, turn_rows)
    insert(connection, debts, [_debt_row(message, copy) for message, copy in queued if message.owed])
    children.add(book, written)
    insert(connection, waits, [_wait_row(book, message, copy) for message, copy in queued if message.wait_id])
    insert(connection, requests, [_request_row(book, message) for message in written if message.request_id])
    for message, copy in pairs:
        if copy.state != VETOED:
            _note(book, message, copy)
    for message in written:
        if message.hook_notes:
            hooking.note(book, message)
    starting.begin(book, [copy.start for _, copy in queued if copy.start is not None])
    _keep(book, queued, turn_rows)
    return refused


def _keep(book: Book, queued: Sequence[tuple[Outgoing, Copy]], turn_rows: Sequence[dict[str, Any]]) -> None:
    """Keep what was written of turns that have started, so that it need not be read."""
    for (message, copy), row in zip(queued, turn_rows, strict=True):
        if copy.start is not None:
            message.row = record(messages, _message_row(book, message))
            message.delivered = [record(deliveries, _delivery_row(message, each)) for each in message.copies]
            copy.turn = record(turns, row)
            copy.debt = record(debts, _debt_row(message, copy)) if message.owed else None


def _inherit(book: Book, outgoing: Sequence[Outgoing]) -> None:
    """Take over the chain and hook generation of the turns that the messages come from.

    And the starts of subagents that lead to them: those that lead to the turn a call is made from, whatever
    else its agent runs beside it.
    """
    causes = {
        (message.workspace_id, turn_id)
        for message in outgoing
        if message.chain_turn_id
        for turn_id in (message.chain_turn_id, _called_from(message))
    }
    if not causes:
        return
    found = by_id(book.connection, turns, causes)
    for message in outgoing:
        cause = found.get((message.workspace_id, message.chain_turn_id))
        if cause is not None:
            message.chain = cause.chain
            message.hook_generation = max(message.hook_generation, cause.hook_generation)
        calling = found.get((message.workspace_id, _called_from(message)))
        if calling is not None:
            message.subagent_links = calling.subagent_links


def _called_from(message: Outgoing) -> str:
    return message.turn_id if message.admitted_as == "start" else message.chain_turn_id


def _settle_sessions(book: Book, written: Sequence[Outgoing]) -> None:
    own = [wish for message in written for wish in (message.inbox, message.own_end) if wish is not None]
    if own:
        session_store.settle(book, own)
    wishes = []
    for message in written:
        if message.inbox is not None:
            message.session_id = message.inbox.id
        elif message.own_end is not None and not message.session_id:
            message.session_id = message.own_end.id
        for copy in message.copies:
            if copy.wish is not None:
                opener = message.own_end.id if message.own_end is not None else message.session_id
                copy.wish.opener_session_id = opener
                copy.wish.depth, copy.wish.root_id = message.depth, message.root_id
                wishes.append(copy.wish)
    if wishes:
        session_store.settle(book, wishes)
        for message in written:
            for copy in message.copies:
                if copy.wish is not None:
                    copy.session_id, copy.session = copy.wish.id, copy.wish.found


# --- rows ----------------------------------------------------------------------------------------


def _message_row(book: Book, message: Outgoing) -> dict[str, Any]:
    return {
        "workspace_id": message.workspace_id,
        "id": message.id,
        "ordinal": message.ordinal,
        "thread_id": message.thread_id,
        "seq": message.seq,
        "kind": message.kind,
        "from_kind": message.sender.kind,
        "from_id": message.sender.id,
        "from_session_id": message.session_id,
        "from_turn_id": message.turn_id,
        "subject": message.subject,
        "body": message.body,
        "payload": message.payload,
        "in_reply_to": message.in_reply_to,
        "depth": message.depth,
        "from_depth": message.from_depth,
        "root_id": message.root_id,
        "hook_generation": message.hook_generation,
        "admitted_as": message.admitted_as,
        "day": message.day,
        "traceparent": message.traceparent,
        "created_at": book.now,
        "owed": message.owed,
    }


def _delivery_row(message: Outgoing, copy: Copy) -> dict[str, Any]:
    return {
        "workspace_id": message.workspace_id,
        "message_id": message.id,
        "recipient_id": copy.id,
        "recipient_kind": copy.kind,
        "session_id": copy.session_id,
        "turn_id": copy.turn_id,
        "state": copy.state if copy.start is None else copy.start.delivery,
        "place": copy.place,
        "ordinal": copy.ordinal,
        "shaped": hooking.written(copy.shaped),
    }


def turn_row(book: Book, message: Outgoing, copy: Copy) -> dict[str, Any]:
    """Return the row of the queued turn that serves a copy."""
    if message.admitted_as in ("answer", "wake"):
        chain = message.chain or copy.id
    else:
        chain = extend_chain(
            message.chain, message.sender.id if message.sender.kind == "agent" else "", copy.id
        )
    return {
        **NOT_BEGUN,
        "workspace_id": message.workspace_id,
        "id": copy.turn_id,
        "ordinal": copy.ordinal,
        "agent_id": copy.id,
        "session_id": copy.session_id,
        "cause": message.kind,
        "message_id": message.id,
        "thread_id": message.thread_id,
        "caused_by_kind": message.sender.kind,
        "caused_by_id": message.sender.id,
        "parent_turn_id": message.turn_id,
        "root_id": message.root_id,
        "depth": message.depth,
        "hook_generation": message.hook_generation,
        "chain": chain,
        "created_at": book.now,
        "deadline_at": book.now + message.queue_seconds,
        "due_at": book.now + message.queue_seconds,
        "traceparent": message.traceparent,
        "price": message.price,
        "subagent_links": message.subagent_links,
    }


def _debt_row(message: Outgoing, copy: Copy) -> dict[str, Any]:
    return {
        "workspace_id": message.workspace_id,
        "turn_id": copy.turn_id,
        "message_id": message.id,
        "thread_id": message.thread_id,
        "debtor_id": copy.id,
        "creditor_kind": message.sender.kind,
        "creditor_id": message.sender.id,
        "creditor_session_id": message.session_id,
        "creditor_turn_id": message.turn_id,
        "state": "open",
        "reply_message_id": "",
        "error_code": "",
        "error_message": "",
    }


def _wait_row(book: Book, message: Outgoing, copy: Copy) -> dict[str, Any]:
    return {
        "workspace_id": message.workspace_id,
        "id": message.wait_id,
        "turn_id": copy.turn_id,
        "instance_id": message.instance_id,
        "waiter_kind": message.sender.kind,
        "waiter_id": message.sender.id,
        "waiter_turn_id": message.wait_turn_id,
        "created_at": book.now,
    }


def _request_row(book: Book, message: Outgoing) -> dict[str, Any]:
    return request_row(
        book, message.workspace_id, message.sender.id, message.request_id, message.digest, message.id
    )


def _note(book: Book, message: Outgoing, copy: Copy) -> None:
    details: dict[str, Any] = {"kind": message.kind, "depth": message.depth, "root_id": message.root_id}
    if message.kind == TOOL:
        details["tool"] = message.subject
    if message.plugin_id:
        details["plugin_id"] = message.plugin_id
    if message.cycle and copy.id in message.cycle.split(" "):
        details["cycle"] = message.cycle.split(" ")
    book.note(
        message.workspace_id,
        "message.sent",
        message.sender,
        agent_id=copy.id if copy.kind == "agent" else "",
        thread_id=message.thread_id,
        message_id=message.id,
        turn_id=copy.turn_id,
        session_id=copy.session_id,
        details=details,
        trace_id=message.trace_id,
    )
