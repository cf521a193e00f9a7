"""How far the recipients of a thread have read."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, and_, bindparam, case, func, or_, select

from hopline_relay.store.schema import deliveries, messages
from hopline_relay.store.sql import Statement

# Spelled out: a statement takes one list, and that is the threads.
_WAITS = or_(deliveries.c.state == "queued", deliveries.c.state == "delivered")
_TAKEN = or_(
    deliveries.c.state == "taken",
    deliveries.c.state == "answered",
    deliveries.c.state == "done",
    deliveries.c.state == "failed",
)
_COPIES = (
    deliveries.c.workspace_id == messages.c.workspace_id,
    deliveries.c.message_id == messages.c.id,
)

_MARKS = Statement(
    select(
        messages.c.thread_id,
        deliveries.c.recipient_id,
        func.min(case((_WAITS, messages.c.seq))).label("waiting"),
        func.max(case((_TAKEN, messages.c.seq), else_=0)).label("taken"),
    )
    .select_from(messages)
    # An outer join, so that no planner begins with the deliveries: a thread is small, they are not.
    .outerjoin(
        deliveries, and_(*_COPIES, deliveries.c.recipient_kind == "agent", deliveries.c.state != "vetoed")
    )
    .where(
        messages.c.workspace_id == bindparam("workspace"),
        messages.c.thread_id.in_(bindparam("threads", expanding=True)),
    )
    .group_by(messages.c.thread_id, deliveries.c.recipient_id)
    .order_by(messages.c.thread_id, func.min(deliveries.c.ordinal)),
    "threads",
)
_BEFORE = Statement(
    select(func.max(messages.c.seq))
    .select_from(messages)
    .join(deliveries, and_(*_COPIES))
    .where(
        messages.c.workspace_id == bindparam("workspace"),
        messages.c.thread_id == bindparam("thread"),
        messages.c.seq < bindparam("waiting"),
        deliveries.c.recipient_id == bindparam("recipient"),
        _TAKEN,
    )
)


def marks(
    connection: Connection, workspace_id: str, thread_ids: Collection[str]
) -> dict[str, list[tuple[str, int]]]:
    """Return for each thread the agents that were written to, and the last message each has read.

    That is the last of those to it that it has taken, with nothing that still waits before it.
    """
    found: dict[str, list[tuple[str, int]]] = {thread_id: [] for thread_id in thread_ids}
    for row in _MARKS.all(connection, {"workspace": workspace_id, "threads": sorted(found)}):
        if row.recipient_id is None:
            continue  # what went to people alone
        through = row.taken
        if row.waiting is not None and row.waiting < through:
            # Something newer was taken first, in another session say.
            values = {"workspace": workspace_id, "thread": row.thread_id, "waiting": row.waiting}
            (before,) = _BEFORE.scalars(connection, {**values, "recipient": row.recipient_id})
            through = before or 0
        found[row.thread_id].append((row.recipient_id, through))
    return found
