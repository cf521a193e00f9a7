"""What hooks have made of messages, in the record: what recipients are shown, and what the audit log says.

The text that a hook took out is nowhere.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hopline_relay.domain.values import Actor
from hopline_relay.hooks.items import BUILT_IN, Note, Shaped, Words
from hopline_relay.store.book import Book
from hopline_relay.store.outgoing import Outgoing
from hopline_relay.store.requests import request_row
from hopline_relay.store.schema import requests
from hopline_relay.store.sql import Record, insert


def written(shaped: Shaped | None) -> str | None:
    """Return what the row of a delivery says of it; None where it is as the message says."""
    if shaped is None:
        return None
    if not shaped.goes_on:
        return json.dumps({"canceled": shaped.canceled}, ensure_ascii=False)
    words = shaped.words
    found = {"text": words.text, "subject": words.subject, "payload": words.payload}
    return json.dumps(found, ensure_ascii=False)


def cancel_reason(shaped: str | None) -> str:
    """Return why a delivery was vetoed, by its row; empty where nothing of it was left."""
    return str(_read(shaped).get("canceled", ""))


def words_for(shaped: str | None, words: Words) -> Words:
    """Return the words that a recipient is shown, by the row of its delivery."""
    found = _read(shaped)
    return (
        Words(found.get("text", ""), found.get("subject", ""), found.get("payload", "")) if found else words
    )


def _read(shaped: str | None) -> dict[str, Any]:
    return dict(json.loads(shaped)) if shaped else {}


# --- what nobody got -----------------------------------------------------------------------------


def kept(outgoing: Outgoing) -> str:
    """Return what the row of a request says of a message that hooks have kept from everybody."""
    to = [[copy.kind, copy.id, copy.shaped.canceled if copy.shaped else ""] for copy in outgoing.copies]
    return json.dumps({"thread_id": shown_thread(outgoing), "to": to}, ensure_ascii=False)


def shown_thread(outgoing: Outgoing) -> str:
    """Return the thread that a message would have gone into, if there is one."""
    return "" if outgoing.opens_thread else outgoing.thread_id


def was_kept(text: str) -> tuple[str, Sequence[tuple[str, str, str]]]:
    """Return the thread of such a message, and to whom it was, as (kind, id, why not)."""
    found = json.loads(text)
    return found["thread_id"], [(kind, identifier, reason) for kind, identifier, reason in found["to"]]


def remember(book: Book, outgoing: Outgoing) -> None:
    """Write what is left of a message that nobody gets: the request, and what hooks did."""
    if outgoing.request_id:
        row = request_row(
            book,
            outgoing.workspace_id,
            outgoing.sender.id,
            outgoing.request_id,
            outgoing.digest,
            "",
            kept(outgoing),
        )
        insert(book.connection, requests, [row])
    note(book, outgoing, message_id="")


# --- the audit log -------------------------------------------------------------------------------


def note(book: Book, outgoing: Outgoing, *, message_id: str | None = None) -> None:
    """Say in the audit log what hooks have done to a message."""
    copies = {copy.id: copy for copy in outgoing.copies}
    for recipient_id, each in outgoing.hook_notes:
        copy = copies.get(recipient_id)
        book.note(
            outgoing.workspace_id,
            f"hook.{each.outcome}",
            actor_of(each),
            agent_id=recipient_id,
            thread_id=shown_thread(outgoing) if message_id == "" else outgoing.thread_id,
            message_id=outgoing.id if message_id is None else message_id,
            turn_id=copy.turn_id if copy is not None else "",
            session_id=copy.session_id if copy is not None else "",
            details=_details(each, outgoing.kind, outgoing.sender.id),
            trace_id=outgoing.trace_id,
        )


def note_answer(book: Book, row: Record, debt: Record, each: Note, outgoing: Outgoing | None) -> None:
    """Say in the audit log what a hook has done to a final answer; `outgoing` is what goes out instead."""
    book.note(
        row.workspace_id,
        f"hook.{each.outcome}",
        actor_of(each),
        agent_id=debt.creditor_id,
        thread_id=debt.thread_id,
        message_id=outgoing.id if outgoing is not None and outgoing.kind == "answer" else "",
        turn_id=row.id,
        session_id=row.session_id,
        details=_details(each, "answer", row.agent_id),
        trace_id=(row.span or row.traceparent)[3:35],
    )


def actor_of(each: Note) -> Actor:
    """Return whose hook it was."""
    if each.plugin_id == BUILT_IN:
        return Actor("mesh", "mesh", "the mesh")
    return Actor("plugin", each.plugin_id, each.plugin_name)


def _details(each: Note, kind: str, sender_id: str) -> dict[str, Any]:
    """Return what is said of a hook; never the text."""
    details: dict[str, Any] = {"hook": each.kind, "kind": kind, "from": sender_id}
    if each.reason:
        details["reason"] = each.reason
    return details
