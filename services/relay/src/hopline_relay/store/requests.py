"""Request ids of calls that send nothing: once in 24 hours, like those of messages and beside them."""

from __future__ import annotations

from typing import Any

from hopline_rpc.clock import utc_day
from hopline_rpc.errors import request_conflict
from hopline_rpc.principals import Principal
from sqlalchemy import Connection

from hopline_relay.store.book import Book
from hopline_relay.store.facts import Names, look_up
from hopline_relay.store.schema import requests
from hopline_relay.store.sql import Record, insert


def was_made(book: Book, principal: Principal, request_id: str, digest: bytes, result_id: str) -> bool:
    """Tell whether the caller has made this request before, and remember it if not.

    Other content under the same id is `request_id_conflict`.
    """
    return result_of(book, principal, request_id, digest, result_id) != ""


def find(connection: Connection, principal: Principal, request_id: str, now: float) -> Record | None:
    """Return what is remembered of a request of the caller's, if it was made before."""
    if not request_id:
        return None
    key = (principal.workspace_id, principal.id, request_id.lower())
    return look_up(connection, Names(requests={key}), now).requests.get(key)


def result_of(
    book: Book,
    principal: Principal,
    request_id: str,
    digest: bytes,
    result_id: str,
    kept: str | None = None,
) -> str:
    """Return the id of what the caller's request made before; empty, and remembered, where it is new.

    `kept`: what hooks have made of it. Other content under the same id is `request_id_conflict`.
    """
    known = find(book.connection, principal, request_id, book.now)
    if known is not None:
        if known.digest != digest:
            raise request_conflict(request_id)
        return str(known.message_id)
    row = request_row(book, principal.workspace_id, principal.id, request_id, digest, result_id, kept)
    insert(book.connection, requests, [row])
    return ""


def request_row(
    book: Book,
    workspace_id: str,
    principal_id: str,
    request_id: str,
    digest: bytes,
    message_id: str,
    kept: str | None = None,
) -> dict[str, Any]:
    """Return the row by which a repeated request finds what it made."""
    return {
        "workspace_id": workspace_id,
        "day": utc_day(book.now),
        "principal_id": principal_id,
        "request_id": request_id,
        "digest": digest,
        "message_id": message_id,
        "created_at": book.now,
        "kept": kept,
    }
