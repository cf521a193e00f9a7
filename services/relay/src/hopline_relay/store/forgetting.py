"""Deleting what has ended and is older than a workspace keeps it, a bounded part in each transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Connection, Select, Table, and_, delete, exists, or_, select

from hopline_relay.domain.values import sibling
from hopline_relay.store import exchanges
from hopline_relay.store.book import Book
from hopline_relay.store.schema import (
    EMPTY,
    OPEN,
    PENDING,
    children,
    debts,
    deliveries,
    escalations,
    holds,
    messages,
    outputs,
    participants,
    roots,
    sessions,
    threads,
    timers,
    todos,
    turns,
)
from hopline_relay.store.sql import Record

THREADS: Final = 50
MESSAGES: Final = 500
ROWS: Final = 200


@dataclass(frozen=True, slots=True)
class Bounds:
    """What of a workspace is old: what ended before `before`; a root is alive after its turns of `alive`."""

    workspace_id: str
    before: float
    alive: float


@dataclass(slots=True)
class Forgotten:
    """How much one transaction, or all of a pass, has deleted; `after` is where the next one begins."""

    counts: dict[str, int] = field(default_factory=dict)
    after: float = 0.0
    more: bool = False

    def add(self, counts: dict[str, int]) -> None:
        """Count further deletions."""
        for what, count in counts.items():
            if count:
                self.counts[what] = self.counts.get(what, 0) + count


def quiet_threads(book: Book, bounds: Bounds, after: float) -> Forgotten:
    """Delete threads without a recent message of which nothing is owed, queued or running any more."""
    connection, workspace_id = book.connection, bounds.workspace_id
    query = (
        select(threads.c.id, threads.c.last_at, threads.c.last_ordinal, threads.c.message_count)
        .where(threads.c.workspace_id == workspace_id, threads.c.last_ordinal > after)
        .order_by(threads.c.last_ordinal)
        .limit(THREADS)
    )
    found = Forgotten(after=after)
    old: list[str] = []
    size = 0
    rows = connection.execute(query).all()
    for row in rows:
        if old and size + row.message_count > MESSAGES:
            break
        # One that was written while the clock was ahead must not keep the others.
        if row.last_at < bounds.before:
            old.append(row.id)
            size += row.message_count
        found.after = row.last_ordinal
    # Behind a whole page of younger ones there are none but younger ones.
    found.more = bool(old) and (len(rows) == THREADS or found.after < rows[-1].last_ordinal)
    found.add(_delete_threads(connection, bounds, old))
    return found


def _delete_threads(connection: Connection, bounds: Bounds, old: Sequence[str]) -> dict[str, int]:
    workspace_id = bounds.workspace_id
    said = _rows(connection, workspace_id, messages, messages.c.thread_id, old)
    copies = _rows(connection, workspace_id, deliveries, deliveries.c.message_id, [row.id for row in said])
    thread_of = {row.id: row.thread_id for row in said}
    caused = _rows(connection, workspace_id, turns, turns.c.id, [row.turn_id for row in copies])
    held = _pending_threads(connection, workspace_id)
    held |= _held_threads(connection, workspace_id, [row.turn_id for row in copies])
    held |= {thread_of[row.message_id] for row in copies if row.state == "queued"}
    held |= _unfinished(connection, bounds, caused)
    going = [thread_id for thread_id in old if thread_id not in held]
    gone = set(going)
    said = [row for row in said if row.thread_id in gone]
    copies = [row for row in copies if thread_of[row.message_id] in gone]
    caused = [row for row in caused if row.thread_id in gone]
    ids = [row.id for row in said]
    exchanges.forget(connection, workspace_id, said, copies)
    _delete(connection, workspace_id, deliveries, deliveries.c.message_id, ids)
    _delete(connection, workspace_id, messages, messages.c.id, ids)
    _delete(connection, workspace_id, participants, participants.c.thread_id, going)
    asked = [sibling("esc", thread_id) for thread_id in going]
    _delete(connection, workspace_id, escalations, escalations.c.id, asked)
    _delete(connection, workspace_id, threads, threads.c.id, going)
    counts = {"threads": len(going), "messages": len(ids)}
    counts |= _delete_turns(connection, bounds, caused)
    passed = {row.from_session_id for row in said} | {row.session_id for row in copies}
    counts["sessions"] = _delete_sessions(connection, bounds, passed - {""})
    return counts


def _unfinished(connection: Connection, bounds: Bounds, caused: Sequence[Record]) -> set[str]:
    """Return the threads of turns that have not ended, owe an answer, or whose root is alive."""
    if not caused:
        return set()
    workspace_id = bounds.workspace_id
    alive = set(_alive_roots(connection, bounds, {row.root_id for row in caused}))
    owing = select(debts.c.turn_id).where(
        debts.c.workspace_id == workspace_id,
        debts.c.state == OPEN,
        debts.c.turn_id.in_([row.id for row in caused]),
    )
    open_ = set(connection.execute(owing).scalars())
    return {
        row.thread_id
        for row in caused
        if row.due_at is not None or row.ended_at >= bounds.before or row.id in open_ or row.root_id in alive
    }


def _alive_roots(connection: Connection, bounds: Bounds, ids: set[str]) -> Iterable[str]:
    """Return the roots of which something runs, waits, or ended just now: what they started is counted."""
    if not ids:
        return ()
    query = select(turns.c.root_id).where(
        turns.c.workspace_id == bounds.workspace_id,
        turns.c.root_id.in_(sorted(ids)),
        # Whatever has not ended is due at some time; one that is queued again keeps the end of its last run.
        or_(turns.c.due_at.is_not(None), turns.c.ended_at >= bounds.alive),
    )
    return connection.execute(query.distinct()).scalars()


def _pending_threads(connection: Connection, workspace_id: str) -> set[str]:
    query = select(escalations.c.thread_id).where(
        escalations.c.workspace_id == workspace_id, escalations.c.state == PENDING
    )
    return set(connection.execute(query).scalars())


def _held_threads(connection: Connection, workspace_id: str, caused: Sequence[str]) -> set[str]:
    """Return the threads of those turns whose answers are held."""
    return {row.thread_id for row in _rows(connection, workspace_id, holds, holds.c.turn_id, caused)}


def _delete_turns(connection: Connection, bounds: Bounds, ended: Sequence[Record]) -> dict[str, int]:
    """Delete turns with what they owed, and the roots of which nothing is left."""
    if not ended:
        return {}
    workspace_id = bounds.workspace_id
    ids = [row.id for row in ended]
    _delete(connection, workspace_id, debts, debts.c.turn_id, ids)
    _delete(connection, workspace_id, outputs, outputs.c.turn_id, ids)
    _delete(connection, workspace_id, turns, turns.c.id, ids)
    left = exists().where(turns.c.workspace_id == roots.c.workspace_id, turns.c.root_id == roots.c.id)
    connection.execute(
        delete(roots).where(
            roots.c.workspace_id == workspace_id,
            roots.c.id.in_(sorted({row.root_id for row in ended})),
            ~left,
        )
    )
    return {"turns": len(ids)}


def _delete_sessions(connection: Connection, bounds: Bounds, passed: set[str]) -> int:
    """Delete sessions that are asked for by their id alone and in which nothing is left."""
    workspace_id = bounds.workspace_id
    # Those between two agents, and inboxes, are there for good: they have a number.
    old = {
        row.id
        for row in _rows(connection, workspace_id, sessions, sessions.c.id, passed)
        if not (row.number or row.running_turn_id or row.todos) and row.created_at < bounds.before
    }
    if not old:
        return 0
    pending = select(escalations.c.session_id).where(
        escalations.c.workspace_id == workspace_id, escalations.c.state == PENDING
    )
    in_use = set(connection.execute(pending).scalars())
    waking = select(timers.c.session_id).where(
        timers.c.workspace_id == workspace_id, timers.c.session_id.in_(sorted(old))
    )
    in_use |= set(connection.execute(waking).scalars())
    for table, column in ((deliveries, deliveries.c.session_id), (messages, messages.c.from_session_id)):
        query = select(column).where(
            table.c.workspace_id == workspace_id, column.in_(sorted(old)), column != EMPTY
        )
        in_use |= set(connection.execute(query.distinct()).scalars())
    gone = sorted(old - in_use)
    _delete(connection, workspace_id, children, children.c.session_id, gone)
    _delete(connection, workspace_id, sessions, sessions.c.id, gone)
    return len(gone)


def left_turns(book: Book, bounds: Bounds, after: float) -> Forgotten:
    """Delete turns that ended long ago and whose message is gone: wakes that something else had taken."""
    connection = book.connection
    message = exists().where(
        messages.c.workspace_id == turns.c.workspace_id, messages.c.id == turns.c.message_id
    )
    query = (
        select(turns)
        .where(
            turns.c.workspace_id == bounds.workspace_id,
            turns.c.ended_at >= after,
            turns.c.ended_at < bounds.before,
            turns.c.due_at.is_(None),
            ~message,
        )
        .order_by(turns.c.ended_at)
        .limit(ROWS)
    )
    rows = connection.execute(query).all()
    alive = set(_alive_roots(connection, bounds, {row.root_id for row in rows}))
    going = [row for row in rows if row.root_id not in alive]
    found = Forgotten(after=rows[-1].ended_at if rows else after, more=len(rows) == ROWS and bool(going))
    found.add(_delete_turns(connection, bounds, going))
    return found


def ended_todos(book: Book, bounds: Bounds, after: float) -> Forgotten:
    """Delete todos that were done or dropped long ago."""
    query = (
        select(todos.c.id)
        .where(todos.c.workspace_id == bounds.workspace_id, todos.c.ended_at < bounds.before)
        .order_by(todos.c.ended_at)
        .limit(ROWS)
    )
    ids = list(book.connection.execute(query).scalars())
    _delete(book.connection, bounds.workspace_id, todos, todos.c.id, ids)
    found = Forgotten(more=len(ids) == ROWS)
    found.add({"todos": len(ids)})
    return found


def ended_questions(book: Book, bounds: Bounds, agent_id: str) -> Forgotten:
    """Delete an agent's questions to its owner that ended long ago."""
    query = (
        select(escalations.c.id)
        .where(
            escalations.c.workspace_id == bounds.workspace_id,
            escalations.c.agent_id == agent_id,
            escalations.c.ended_at < bounds.before,
        )
        .order_by(escalations.c.ordinal)
        .limit(ROWS)
    )
    ids = list(book.connection.execute(query).scalars())
    _delete(book.connection, bounds.workspace_id, escalations, escalations.c.id, ids)
    found = Forgotten(more=len(ids) == ROWS)
    found.add({"questions": len(ids)})
    return found


def _rows(
    connection: Connection, workspace_id: str, table: Table, column: Any, values: Iterable[str]
) -> Sequence[Record]:
    wanted = sorted({value for value in values if value})
    if not wanted:
        return []
    query: Select[Any] = select(table).where(table.c.workspace_id == workspace_id, column.in_(wanted))
    return connection.execute(query).all()


def _delete(
    connection: Connection, workspace_id: str, table: Table, column: Any, values: Sequence[str]
) -> None:
    if values:
        connection.execute(
            delete(table).where(and_(table.c.workspace_id == workspace_id, column.in_(values)))
        )
