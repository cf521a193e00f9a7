"""The outbox of changes and the results of requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from hopline.registry.v1.visibility_pb2 import Change
from sqlalchemy import Connection, delete, func, select

from hopline_registry.store.schema import changes, feed, requests

_HEAD: Final = select(feed.c.head)
_OLDEST: Final = select(func.min(changes.c.seq))


def append(conn: Connection, new: Sequence[Change], now: float) -> int:
    """Number and store changes; returns the number of the last. The row in `feed` is held until the end."""
    last: int = conn.execute(
        feed.update().values(head=feed.c.head + len(new)).returning(feed.c.head)
    ).scalar_one()
    rows = []
    for seq, change in enumerate(new, last - len(new) + 1):
        change.seq = seq
        rows.append(
            {"seq": seq, "workspace_id": change.workspace_id, "at": now, "body": change.SerializeToString()}
        )
    conn.execute(changes.insert(), rows)
    return last


def head(conn: Connection) -> int:
    """Return the number of the newest change."""
    found: int = conn.execute(_HEAD).scalar_one()
    return found


def oldest(conn: Connection) -> int:
    """Return the number of the oldest change that is kept; one above the head when none is."""
    found: int | None = conn.execute(_OLDEST).scalar_one()
    return head(conn) + 1 if found is None else found


def after(conn: Connection, seq: int, limit: int) -> list[Change]:
    """Return the changes behind a number, in order."""
    query = select(changes.c.body).where(changes.c.seq > seq).order_by(changes.c.seq).limit(limit)
    return [Change.FromString(body) for body in conn.execute(query).scalars()]


def keep_newest(conn: Connection, count: int) -> None:
    """Drop all changes but the newest."""
    conn.execute(delete(changes).where(changes.c.seq <= head(conn) - count))


class Request(NamedTuple):
    """Whose request it was."""

    workspace_id: str
    principal_id: str
    request_id: str


def remembered(conn: Connection, request: Request) -> tuple[str, str] | None:
    """Return digest and result id of an earlier request."""
    query = select(requests.c.digest, requests.c.result_id).where(
        requests.c.workspace_id == request.workspace_id,
        requests.c.principal_id == request.principal_id,
        requests.c.request_id == request.request_id,
    )
    row = conn.execute(query).first()
    return None if row is None else (row.digest, row.result_id)


def remember(conn: Connection, request: Request, digest: str, result_id: str, now: float) -> None:
    """Store what a request came to."""
    values = {**request._asdict(), "digest": digest, "result_id": result_id, "created_at": now}
    conn.execute(requests.insert().values(values))


def forget_requests(conn: Connection, before: float) -> None:
    """Drop the results of requests that are older than a moment."""
    conn.execute(delete(requests).where(requests.c.created_at < before))
