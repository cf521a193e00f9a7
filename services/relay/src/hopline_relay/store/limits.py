"""Leases and limits after time in which no worker could be heard, or after the clock was set."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

from hopline_directory.records import Policy
from sqlalchemy import bindparam, select, update

from hopline_relay.domain.batches import rides
from hopline_relay.domain.values import LEASE_SECONDS, PULL_LEASE_SECONDS, TOOL
from hopline_relay.store.book import Book
from hopline_relay.store.schema import QUEUED, RUNNING, turns
from hopline_relay.store.sql import Record, Statement

# Whatever has not ended is due at some time.
_CONCERNED: Final = Statement(select(turns.c.workspace_id).where(turns.c.due_at.is_not(None)).distinct())
_RUNNING: Final = Statement(select(turns).where(turns.c.due_at.is_not(None), turns.c.state == RUNNING))
_RENEW: Final = Statement(
    update(turns)
    .where(turns.c.workspace_id == bindparam("workspace"), turns.c.id == bindparam("turn"))
    .values(
        lease_until=bindparam("lease"),
        deadline_at=bindparam("deadline"),
        due_at=bindparam("due"),
        instance_id=bindparam("instance"),
    )
)
_MOVE: Final = Statement(
    update(turns)
    .where(turns.c.workspace_id == bindparam("workspace"), turns.c.state == QUEUED)
    .values(deadline_at=turns.c.deadline_at + bindparam("by"), due_at=turns.c.due_at + bindparam("by"))
)
_BOUND: Final = Statement(
    update(turns)
    .where(
        turns.c.workspace_id == bindparam("workspace"),
        turns.c.state == QUEUED,
        turns.c.due_at > bindparam("latest"),
    )
    .values(deadline_at=bindparam("latest"), due_at=bindparam("latest"))
)


def renew(
    book: Book,
    instance_id: str,
    policy_of: Callable[[str], Policy],
    set_on: float = 0.0,
    of: Collection[str] | None = None,
) -> Sequence[Record]:
    """Give every worker a whole lease to be heard in; returns what is running, as it was.

    `of`: the processes whose turns these are; where others live, theirs are left alone.

    `set_on`: seconds by which the clock has just been set, below 0 for back. Where it was set on, all that
    is due later moves with it. Nothing is due later than if it began now: the clock may have been set back.
    """
    ahead = max(0.0, set_on)
    for workspace_id in _CONCERNED.scalars(book.connection, {}):
        if ahead:
            _MOVE.run(book.connection, {"workspace": workspace_id, "by": ahead})
        latest = book.now + policy_of(workspace_id).queue_seconds
        _BOUND.run(book.connection, {"workspace": workspace_id, "latest": latest})
    running = _RUNNING.all(book.connection, {})
    if of is not None:
        running = [row for row in running if row.instance_id in of]
    rows = []
    for row in running:
        lease = book.now + LEASE_SECONDS
        if rides(row) or row.cause == TOOL:
            lease = (
                row.deadline_at + ahead
            )  # it ends with the turn that it rides along with, or with its call
        elif row.run_session_id:
            lease = min(row.lease_until + ahead, book.now + PULL_LEASE_SECONDS)
        deadline = min(row.deadline_at + ahead, book.now + policy_of(row.workspace_id).turn_seconds)
        rows.append(
            {
                "workspace": row.workspace_id,
                "turn": row.id,
                "lease": lease,
                "deadline": deadline,
                "due": min(lease, deadline),
                # A call of a tool is nobody's but the process's that began it.
                "instance": row.instance_id if row.cause == TOOL else instance_id,
            }
        )
    _RENEW.many(book.connection, rows)
    return running
