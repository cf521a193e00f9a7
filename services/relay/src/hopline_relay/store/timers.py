"""The rows of timers: there until they have woken their session, or were called off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, bindparam, delete, func, or_, select, tuple_, update

from hopline_relay.domain.left import Origin
from hopline_relay.domain.values import Actor
from hopline_relay.store.book import Book
from hopline_relay.store.schema import timers
from hopline_relay.store.sql import Record, Statement, insert

Key = tuple[str, str]

_ONE: Final = (timers.c.workspace_id == bindparam("workspace"), timers.c.id == bindparam("timer"))
_ORDER: Final = (timers.c.due_at, timers.c.workspace_id, timers.c.id)
_FIND: Final = Statement(select(timers).where(*_ONE))
# `set_at` in the future: the clock was set back since, and what was worked out then may be far away.
_DUE: Final = Statement(
    select(timers)
    .where(
        or_(timers.c.due_at <= bindparam("now"), timers.c.set_at > bindparam("ahead")),
        tuple_(*_ORDER) > tuple_(bindparam("at"), bindparam("workspace"), bindparam("timer")),
    )
    .order_by(*_ORDER)
    .limit(bindparam("most"))
)
_REMOVE: Final = Statement(delete(timers).where(*_ONE))
_TAKE: Final = Statement(delete(timers).where(*_ONE, timers.c.due_at == bindparam("expected")))
_PUT_OFF: Final = Statement(
    update(timers)
    .where(*_ONE, timers.c.due_at == bindparam("expected"))
    .values(due_at=bindparam("new_due"), set_at=bindparam("at"))
)
_SET_ANEW: Final = Statement(
    update(timers)
    .where(*_ONE, timers.c.due_at == bindparam("expected"))
    .values(due_at=bindparam("new_due"), fires_at=bindparam("new_due"), set_at=bindparam("at"))
)


def find(connection: Connection, key: Key) -> Record | None:
    """Return a timer that is still to come."""
    return _FIND.one(connection, {"workspace": key[0], "timer": key[1]})


def count(connection: Connection, workspace_id: str, session_id: str) -> int:
    """Return how many a session has."""
    return counts(connection, workspace_id, [session_id]).get(session_id, 0)


def counts(connection: Connection, workspace_id: str, session_ids: Sequence[str]) -> dict[str, int]:
    """Return how many sessions have, for those that have some."""
    query = (
        select(timers.c.session_id, func.count())
        .where(timers.c.workspace_id == workspace_id, timers.c.session_id.in_(session_ids))
        .group_by(timers.c.session_id)
    )
    return {row[0]: row[1] for row in connection.execute(query)} if session_ids else {}


def page(
    connection: Connection, workspace_id: str, session_id: str, after: tuple[float, str], most: int
) -> Sequence[Record]:
    """Return the timers of a session from behind a time, the next one first."""
    query = (
        select(timers)
        .where(
            timers.c.workspace_id == workspace_id,
            timers.c.session_id == session_id,
            tuple_(timers.c.fires_at, timers.c.id) > tuple_(*after),
        )
        .order_by(timers.c.fires_at, timers.c.id)
        .limit(most)
    )
    return connection.execute(query).all()


def of_agent(connection: Connection, workspace_id: str, agent_id: str) -> Sequence[Record]:
    """Return the timers of an agent's sessions."""
    query = select(timers).where(timers.c.workspace_id == workspace_id, timers.c.agent_id == agent_id)
    return connection.execute(query).all()


def add(
    book: Book, session: Key, agent_id: str, timer_id: str, text: str, seconds: int, origin: Origin
) -> None:
    """Set a timer."""
    row: dict[str, Any] = {
        "workspace_id": session[0],
        "id": timer_id,
        "ordinal": book.ordinal(session[0]),
        "session_id": session[1],
        "agent_id": agent_id,
        "body": text,
        "turn_id": origin.turn_id,
        "depth": origin.depth,
        "root_id": origin.root_id,
        "traceparent": origin.traceparent,
        "hook_generation": origin.hook_generation,
        "created_at": book.now,
        "fires_at": book.now + seconds,
        "due_at": book.now + seconds,
        "set_at": book.now,
    }
    insert(book.connection, timers, [row])


def due(
    connection: Connection, now: float, ahead: float, most: int, after: Record | None
) -> Sequence[Record]:
    """Return those whose time has come, the longest due first, and those set by a clock that was `ahead`.

    Of these those behind `after`, if one is given.
    """
    behind = (after.due_at, after.workspace_id, after.id) if after is not None else (-1.0, "", "")
    values = dict(zip(("at", "workspace", "timer"), behind, strict=True))
    return _DUE.all(connection, {**values, "now": now, "ahead": ahead, "most": most})


def next_due(connection: Connection) -> float | None:
    """Return when the next one is looked at; None for none."""
    return connection.execute(select(func.min(timers.c.due_at))).scalar()


def take(book: Book, row: Record) -> bool:
    """Take a timer off that was seen as due; False: somebody else has, or it was called off."""
    values = {"workspace": row.workspace_id, "timer": row.id, "expected": row.due_at}
    return _TAKE.run(book.connection, values) == 1


def put_off(book: Book, row: Record, seconds: float) -> None:
    """Look at it again later; it is late then."""
    values = {"workspace": row.workspace_id, "timer": row.id, "expected": row.due_at, "at": book.now}
    _PUT_OFF.run(book.connection, {**values, "new_due": book.now + seconds})


def set_anew(book: Book, row: Record, due_at: float) -> None:
    """Let it fire at another time: the clock was set back."""
    values = {"workspace": row.workspace_id, "timer": row.id, "expected": row.due_at, "at": book.now}
    _SET_ANEW.run(book.connection, {**values, "new_due": due_at})


def remove(book: Book, row: Record) -> bool:
    """Call a timer off; False: it is gone."""
    return _REMOVE.run(book.connection, {"workspace": row.workspace_id, "timer": row.id}) == 1


def drop_of_session(book: Book, session: Key) -> int:
    """Call off the timers of a session that is closed; returns how many there were."""
    return book.connection.execute(
        delete(timers).where(timers.c.workspace_id == session[0], timers.c.session_id == session[1])
    ).rowcount


def drop_of_agent(book: Book, workspace_id: str, agent_id: str) -> None:
    """Call off the timers of an agent that is gone."""
    book.connection.execute(
        delete(timers).where(timers.c.workspace_id == workspace_id, timers.c.agent_id == agent_id)
    )


def make_due_of_agent(book: Book, workspace_id: str, agent_id: str) -> None:
    """Have those of an agent looked at now that were put off."""
    book.connection.execute(
        update(timers)
        .where(
            timers.c.workspace_id == workspace_id,
            timers.c.agent_id == agent_id,
            timers.c.fires_at <= book.now,
            timers.c.due_at > book.now,
        )
        .values(due_at=book.now, set_at=book.now)
    )


def agents_with_any(connection: Connection) -> list[Key]:
    """Return the agents that have timers, by workspace and id."""
    query = select(timers.c.workspace_id, timers.c.agent_id).distinct()
    return [(row[0], row[1]) for row in connection.execute(query)]


def note(book: Book, row: Record, action: str, actor: Actor, details: dict[str, Any] | None = None) -> None:
    """Put something about a timer into the audit log."""
    book.note(
        row.workspace_id,
        action,
        actor,
        agent_id=row.agent_id,
        turn_id=row.turn_id,
        session_id=row.session_id,
        details={"timer_id": row.id, **(details or {})},
        trace_id=row.traceparent[3:35],
    )
