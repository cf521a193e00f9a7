"""Reading the audit log through its indexes, and taking over what the registry wrote of its own changes."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from sqlalchemy import Connection, select, update

from hopline_relay.store.book import Book
from hopline_relay.store.schema import audit_events, audit_sources, heads
from hopline_relay.store.sql import Record, insert


@dataclass(frozen=True, slots=True)
class Filter:
    """What of a workspace's log is wanted. `agents` None: everything. Times are unix seconds, 0 for open."""

    workspace_id: str
    agents: tuple[str, ...] | None
    action: str = ""
    since: float = 0.0
    until: float = 0.0


def read(
    connection: Connection, wanted: Filter, *, after: int, before: int, descending: bool, most: int
) -> list[Record]:
    """Return events with `after` < number < `before`, in order, or the newest first."""
    if wanted.since:
        after = max(after, _first_at(connection, wanted.workspace_id, wanted.since) - 1)
    if wanted.until:
        before = min(before, _first_at(connection, wanted.workspace_id, wanted.until))
    base = select(audit_events).where(
        audit_events.c.workspace_id == wanted.workspace_id,
        audit_events.c.seq > after,
        audit_events.c.seq < before,
    )
    if wanted.action:
        base = base.where(audit_events.c.action.startswith(wanted.action, autoescape=True))
    order = audit_events.c.seq.desc() if descending else audit_events.c.seq
    base = base.order_by(order).limit(most)
    if wanted.agents is None:
        return list(connection.execute(base).all())
    found: dict[int, Record] = {}
    for agent_id in wanted.agents:
        for column in (audit_events.c.agent_id, audit_events.c.actor_id):
            found.update((row.seq, row) for row in connection.execute(base.where(column == agent_id)))
    pick = heapq.nlargest if descending else heapq.nsmallest
    return [found[seq] for seq in pick(most, found)]


def last_seq(connection: Connection, workspace_id: str) -> int:
    """Return the number of a workspace's newest event; 0 before the first."""
    query = select(heads.c.audit_seq).where(heads.c.workspace_id == workspace_id)
    return connection.execute(query).scalar() or 0


def _first_at(connection: Connection, workspace_id: str, at: float) -> int:
    """Return the number of the first event at `at` or later: numbers have no gaps and grow with time."""
    low, high = 1, last_seq(connection, workspace_id) + 1
    query = select(audit_events.c.at).where(audit_events.c.workspace_id == workspace_id)
    while low < high:
        middle = (low + high) // 2
        moment = connection.execute(query.where(audit_events.c.seq == middle)).scalar()
        if moment is not None and moment < at:
            low = middle + 1
        else:
            high = middle
    return low


def source_seq(connection: Connection, source: str) -> int:
    """Return how far a source has been taken over."""
    query = select(audit_sources.c.seq).where(audit_sources.c.source == source)
    return connection.execute(query).scalar() or 0


def advance_source(book: Book, source: str, seen: int, seq: int) -> bool:
    """Move a source on from `seen` to `seq`; False when somebody else has moved it."""
    if seen == 0 and source_seq(book.connection, source) == 0:
        insert(book.connection, audit_sources, [{"source": source, "seq": seq}])
        return True
    statement = (
        update(audit_sources)
        .where(audit_sources.c.source == source, audit_sources.c.seq == seen)
        .values(seq=seq)
    )
    return bool(book.connection.execute(statement).rowcount == 1)
