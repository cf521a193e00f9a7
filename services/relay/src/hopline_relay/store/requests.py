"""Request ids of calls that send nothing: once in 24 hours, like those of messages and beside them."""

from __future__ import annotations

from hopline_rpc.clock import utc_day
from hopline_rpc.errors import HoplineError
from hopline_rpc.principals import Principal

from hopline_relay.store.book import Book
from hopline_relay.store.facts import Names, look_up
from hopline_relay.store.schema import requests
from hopline_relay.store.sql import insert


def was_made(book: Book, principal: Principal, request_id: str, digest: bytes, result_id: str) -> bool:
    """Tell whether the caller has made this request before, and remember it if not.

    Other content under the same id is `request_id_conflict`.
    """
    key = (principal.workspace_id, principal.id, request_id)
    known = look_up(book.connection, Names(requests={key}), book.now).requests.get(key)
    if known is not None:
        if known.digest != digest:
            raise HoplineError(
                "request_id_conflict",
                "this request_id was used before with other content; use a new one",
                details={"request_id": request_id},
            )
        return True
    row = {
        "workspace_id": principal.workspace_id,
        "day": utc_day(book.now),
        "request_id": request_id,
        "principal_id": principal.id,
        "digest": digest,
        "message_id": result_id,
        "created_at": book.now,
    }
    insert(book.connection, requests, [row])
    return False
