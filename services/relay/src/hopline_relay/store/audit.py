"""Reading the audit log through its indexes, and taking over what the registry wrote of its own changes."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, select, update

from hopline_relay.store.book import Book
from hopline_relay.store.schema import audit_cuts, audit_events, audit_sources, heads, threads
from hopline_relay.store.sql import Record, insert

# So many events are looked at for one page where no index knows which of them match.
LOOKED_AT: Final = 5000


@dataclass(frozen=True, slots=True)
class Filter:
    """What of a workspace's log is wanted. `agents` None: everything. Times are unix seconds, 0 for open."""

    workspace_id: str
    agents: tuple[str, ...] | None
    action: str = ""
    since: float = 0.0
    until: float = 0.0
    thread_id: str = ""
    actor_id: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """A page: its events, the number up to which was looked, and whether there is something beyond."""

    rows: list[Record]
    reached: int
    more: bool


def read(
    connection: Connection, wanted: Filter, *, after: int, before: int, descending: bool, most: int
) -> Found:
    """Return events with `after` < number < `before`, in order, or the newest first."""
    workspace_id, since = wanted.workspace_id, wanted.since
    after = max(after, first_seq(connection, workspace_id) - 1)
    before = min(before, last_seq(connection, workspace_id) + 1)
    # Only where every thread is the reader's to see: else the time that it takes would tell which there are.
    if wanted.thread_id and wanted.agents is None:
        began = _began(connection, workspace_id, wanted.thread_id)
        if began is None:
            return Found([], after, more=False)
        since = max(since, began)
    if since:
        after = max(after, _first_at(connection, workspace_id, since) - 1)
    if wanted.until:
        before = min(before, _first_at(connection, workspace_id, wanted.until))
    low, high = after, before
    if wanted.action or wanted.thread_id or wanted.actor_id:
        low = max(low, high - LOOKED_AT - 1) if descending else low
        high = high if descending else min(high, low + LOOKED_AT + 1)
    rows = _matching(connection, wanted, low, high, descending=descending, most=most + 1)
    if len(rows) > most:
        return Found(rows[:most], rows[most - 1].seq, more=True)
    if descending:
        return Found(rows, low + 1, more=low > after)
    return Found(rows, high - 1, more=high < before)


def _matching(
    connection: Connection, wanted: Filter, after: int, before: int, *, descending: bool, most: int
) -> list[Record]:
    base = select(audit_events).where(
        audit_events.c.workspace_id == wanted.workspace_id,
        audit_events.c.seq > after,
        audit_events.c.seq < before,
    )
    if wanted.action:
        base = base.where(audit_events.c.action.startswith(wanted.action, autoescape=True))
    if wanted.thread_id:
        base = base.where(audit_events.c.thread_id == wanted.thread_id)
    if wanted.actor_id:
        base = base.where(audit_events.c.actor_id == wanted.actor_id)
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


def _began(connection: Connection, workspace_id: str, thread_id: str) -> float | None:
    query = select(threads.c.created_at).where(
        threads.c.workspace_id == workspace_id, threads.c.id == thread_id
    )
    began: float | None = connection.execute(query).scalar()
    return began


def last_seq(connection: Connection, workspace_id: str) -> int:
    """Return the number of a workspace's newest event; 0 before the first."""
    query = select(heads.c.audit_seq).where(heads.c.workspace_id == workspace_id)
    return connection.execute(query).scalar() or 0


def first_seq(connection: Connection, workspace_id: str) -> int:
    """Return the number with which a workspace's log begins: later than 1 once older events are deleted."""
    cut = select(audit_cuts.c.seq).where(audit_cuts.c.workspace_id == workspace_id)
    return (connection.execute(cut).scalar() or 0) + 1


def _first_at(connection: Connection, workspace_id: str, at: float) -> int:
    """Return the number of the first event at `at` or later: numbers have no gaps and grow with time."""
    low = first_seq(connection, workspace_id)
    high = last_seq(connection, workspace_id) + 1
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
