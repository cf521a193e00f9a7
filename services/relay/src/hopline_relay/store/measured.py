"""What a scrape reads of the record: each statement goes through an index and stops at a bound."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, Select, func, literal_column, select

from hopline_relay.store.schema import DEAD, deliveries, escalations, posts, roots, turns
from hopline_relay.store.sql import Statement

# More than this is shown as this: whoever sees it knows enough.
BOUND: Final = 20_000

# In order of their ends, and with it nearly of their age: beyond the bound the oldest are still among them.
_waiting = (
    select(turns.c.workspace_id, turns.c.agent_id, turns.c.created_at)
    .where(turns.c.due_at.is_not(None), turns.c.state == "queued")
    .order_by(turns.c.due_at)
    .limit(BOUND)
    .subquery()
)
_inboxes = (
    select(func.count().label("depth"), func.min(_waiting.c.created_at).label("oldest"))
    .select_from(_waiting)
    .group_by(_waiting.c.workspace_id, _waiting.c.agent_id)
    .subquery()
)
_INBOXES: Final = Statement(
    select(
        func.coalesce(func.sum(_inboxes.c.depth), 0).label("depth"),
        func.coalesce(func.max(_inboxes.c.depth), 0).label("deepest"),
        func.min(_inboxes.c.oldest).label("oldest"),
    )
)
_dead: Select[Any] = (
    select(literal_column("1")).select_from(deliveries).where(deliveries.c.state == DEAD).limit(BOUND)
)
_DEAD: Final = Statement(select(func.count().label("found")).select_from(_dead.subquery()))
_pending = (
    select(escalations.c.created_at)
    .where(escalations.c.state == literal_column("'pending'"))
    .limit(BOUND)
    .subquery()
)
_PENDING: Final = Statement(
    select(func.count().label("found"), func.min(_pending.c.created_at).label("oldest")).select_from(_pending)
)
_exhausted: Select[Any] = (
    select(literal_column("1")).select_from(roots).where(roots.c.exhausted_at.is_not(None)).limit(BOUND)
)
_EXHAUSTED: Final = Statement(select(func.count().label("found")).select_from(_exhausted.subquery()))
_given_up: Select[Any] = (
    select(literal_column("1"))
    .select_from(posts)
    .where(posts.c.kind == literal_column("'wake'"), posts.c.ended_at.is_not(None))
    .limit(BOUND)
)
_WAKES: Final = Statement(select(func.count().label("found")).select_from(_given_up.subquery()))


class Standing(NamedTuple):
    """How the record stands; `oldest` are unix seconds, None for none."""

    inbox_depth: int
    deepest_inbox: int
    oldest_unread: float | None
    dead_letters: int
    escalations: int
    oldest_escalation: float | None
    exhausted_roots: int
    failed_wakes: int


def standing(connection: Connection) -> Standing:
    """Read it all on one snapshot."""
    inboxes = _INBOXES.one(connection, {})
    dead = _DEAD.scalars(connection, {})[0]
    pending = _PENDING.one(connection, {})
    exhausted = _EXHAUSTED.scalars(connection, {})[0]
    wakes = _WAKES.scalars(connection, {})[0]
    if inboxes is None or pending is None:
        raise RuntimeError("a count has one row")
    return Standing(
        int(inboxes.depth),
        int(inboxes.deepest),
        inboxes.oldest,
        dead,
        pending.found,
        pending.oldest,
        exhausted,
        wakes,
    )
