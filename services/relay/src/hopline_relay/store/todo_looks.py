"""Which sessions' todos are to be looked at, what is known of each then, and what a look does.

A session is due from the moment at which something that ran in it ended (`store/turns.py` says so in the
statement that frees it), or the rest of a todo is over. Whoever moves `todos_due_at` on, of all, has looked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, bindparam, func, literal_column, or_, select, tuple_, update

from hopline_relay.store import todos as rows
from hopline_relay.store.book import Book
from hopline_relay.store.bulk import by_id
from hopline_relay.store.discharging import RacedError
from hopline_relay.store.outgoing import Outgoing
from hopline_relay.store.schema import EMPTY, QUEUED, sessions, todo_lists, todos, turns
from hopline_relay.store.sql import Record, Statement

Key = tuple[str, str]

_ORDER: Final = (sessions.c.todos_due_at, sessions.c.workspace_id, sessions.c.id)
# Nothing is put off for long: what is due far ahead was set by a clock that was ahead.
_DUE: Final = Statement(
    select(sessions)
    .where(
        sessions.c.todos_due_at.is_not(None),
        or_(sessions.c.todos_due_at <= bindparam("now"), sessions.c.todos_due_at > bindparam("ahead")),
        tuple_(*_ORDER) > tuple_(bindparam("at"), bindparam("workspace"), bindparam("session")),
    )
    .order_by(*_ORDER)
    .limit(bindparam("most"))
)
_THIS: Final = (
    sessions.c.workspace_id == bindparam("workspace"),
    sessions.c.id == bindparam("session"),
    sessions.c.todos_due_at == bindparam("expected"),
    # Two turns may end at what the clock takes for one moment.
    sessions.c.todos_turn_id == bindparam("seen_turn"),
)
_MOVE: Final = Statement(update(sessions).where(*_THIS).values(todos_due_at=bindparam("new_due")))
# While nothing runs there: what runs says so itself when it ends.
_TAKE: Final = Statement(
    update(sessions).where(*_THIS, sessions.c.running_turn_id == EMPTY).values(todos_due_at=None)
)
_WAITS: Final = Statement(
    select(turns.c.id)
    .where(
        turns.c.workspace_id == bindparam("workspace"),
        turns.c.agent_id == bindparam("agent"),
        turns.c.state == QUEUED,
        turns.c.session_id == bindparam("session"),
    )
    .limit(2)
)
_WOKEN: Final = Statement(
    update(todo_lists)
    .where(
        todo_lists.c.workspace_id == bindparam("workspace"),
        todo_lists.c.session_id == bindparam("session"),
        todo_lists.c.wakes == bindparam("seen_wakes"),
        todo_lists.c.reason == bindparam("seen_reason"),
    )
    .values(
        wakes=bindparam("new_wakes"),
        reason="",
        asleep_at=None,
        wake_turn_id=bindparam("turn"),
        seen_turn_id=bindparam("seen"),
    )
)
_RESTED: Final = Statement(
    select(todos)
    .where(
        todos.c.snoozed_until.is_not(None),
        or_(todos.c.snoozed_until <= bindparam("now"), todos.c.snoozed_at > bindparam("ahead")),
    )
    .order_by(todos.c.snoozed_until)
    .limit(bindparam("most"))
)
_RISE: Final = Statement(
    update(todos)
    .where(
        todos.c.workspace_id == bindparam("workspace"),
        todos.c.id == bindparam("todo"),
        todos.c.snoozed_until == bindparam("expected"),
    )
    .values(snoozed_until=bindparam("new_until"), snoozed_at=bindparam("new_at"))
)
_MAKE_DUE: Final = Statement(
    update(sessions)
    .where(
        sessions.c.workspace_id == bindparam("workspace"),
        sessions.c.id == bindparam("session"),
        sessions.c.todos == literal_column("1"),
    )
    .values(todos_due_at=bindparam("at"))
)


@dataclass(frozen=True, slots=True)
class Look:
    """A session that is due, and what is known of it.

    `ended`: the turn that ended there last, with todos open, and was no wake for them; `woken`: that of the
    last wake.
    """

    session: Record
    list: Record | None
    open: Sequence[Record]
    waits: bool
    ended: Record | None
    woken: Record | None

    @property
    def key(self) -> Key:
        """Workspace and session."""
        return self.session.workspace_id, self.session.id


def due(connection: Connection, now: float, ahead: float, most: int, after: Record | None) -> list[Look]:
    """Return the sessions that are due, the longest due first, behind `after` if one is given."""
    behind = (after.todos_due_at, after.workspace_id, after.id) if after is not None else (-1.0, "", "")
    values = dict(zip(("at", "workspace", "session"), behind, strict=True))
    found = _DUE.all(connection, {**values, "now": now, "ahead": ahead, "most": most})
    return [_look(connection, row) for row in found]


def _look(connection: Connection, session: Record) -> Look:
    key = (session.workspace_id, session.id)
    listed = rows.list_of(connection, *key)
    named = {(session.workspace_id, session.todos_turn_id)}
    if listed is not None:
        named.add((session.workspace_id, listed.wake_turn_id))
    known = by_id(connection, turns, named)
    return Look(
        session=session,
        list=listed,
        open=rows.open_of(connection, *key),
        waits=bool(_waiting(connection, session)),
        ended=known.get((session.workspace_id, session.todos_turn_id)),
        woken=known.get((session.workspace_id, listed.wake_turn_id)) if listed is not None else None,
    )


def _waiting(connection: Connection, session: Record) -> list[str]:
    values = {
        "workspace": session.workspace_id,
        "agent": session.agent_id,
        "session": session.id,
    }
    return _WAITS.scalars(connection, values)


def next_due(connection: Connection) -> float | None:
    """Return when the next session is due, or the next rest over; None for neither."""
    times = [
        connection.execute(select(func.min(column)).where(column.is_not(None))).scalar()
        for column in (sessions.c.todos_due_at, todos.c.snoozed_until)
    ]
    return min((at for at in times if at is not None), default=None)


def move(book: Book, look: Look, at: float | None) -> bool:
    """Look at it again then, or once something has ended there (None); False: somebody else has looked."""
    return _MOVE.run(book.connection, {**_seen(look), "new_due": at}) == 1


def _seen(look: Look) -> dict[str, object]:
    return {
        "workspace": look.key[0],
        "session": look.key[1],
        "expected": look.session.todos_due_at,
        "seen_turn": look.session.todos_turn_id,
    }


def take(book: Book, look: Look, wakes: int, message: Outgoing) -> None:
    """Note the wake of a session, by now `wakes` in a row; RacedError where it is not as it was seen."""
    (copy,) = message.copies
    if not _TAKE.run(book.connection, _seen(look)):
        raise RacedError
    if any(turn_id != copy.turn_id for turn_id in _waiting(book.connection, look.session)):
        raise RacedError
    seen = look.list
    woken = {
        "workspace": look.key[0],
        "session": look.key[1],
        "seen_wakes": seen.wakes if seen is not None else 0,
        "seen_reason": seen.reason if seen is not None else "",
        "new_wakes": wakes,
        "turn": copy.turn_id,
        "seen": look.session.todos_turn_id,
    }
    if not _WOKEN.run(book.connection, woken):
        raise RacedError


def rested(connection: Connection, now: float, ahead: float, most: int) -> Sequence[Record]:
    """Return the todos whose rest is over, and those whose rest a clock has measured that was ahead."""
    return _RESTED.all(connection, {"now": now, "ahead": ahead, "most": most})


def rise(book: Book, todo: Record) -> bool:
    """End the rest of a todo: its list is awake, and its session due; False: somebody else has."""
    if not _rise(book, todo, None):
        return False
    session = (todo.workspace_id, todo.session_id)
    rows.stir(book, session)
    make_due(book, session)
    return True


def rest_anew(book: Book, todo: Record, until: float) -> None:
    """Measure a rest anew: the clock was set back."""
    _rise(book, todo, until)


def _rise(book: Book, todo: Record, until: float | None) -> bool:
    values = {
        "workspace": todo.workspace_id,
        "todo": todo.id,
        "expected": todo.snoozed_until,
        "new_until": until,
        "new_at": None if until is None else book.now,
    }
    return _RISE.run(book.connection, values) == 1


def make_due(book: Book, session: Key) -> None:
    """Have the todos of a session looked at now, if it has some."""
    _MAKE_DUE.run(book.connection, {"workspace": session[0], "session": session[1], "at": book.now})


def make_due_of_agent(book: Book, workspace_id: str, agent_id: str) -> None:
    """Have all sessions of an agent looked at now whose todos were put off."""
    book.connection.execute(
        update(sessions)
        .where(
            sessions.c.workspace_id == workspace_id,
            sessions.c.agent_id == agent_id,
            sessions.c.todos_due_at > book.now,
        )
        .values(todos_due_at=book.now)
    )


def sessions_with_any(connection: Connection) -> list[Key]:
    """Return the sessions that have lists, by workspace and id."""
    query = select(todo_lists.c.workspace_id, todo_lists.c.session_id)
    return [(row[0], row[1]) for row in connection.execute(query)]


def agents_with_any(connection: Connection) -> list[Key]:
    """Return the agents that have lists, by workspace and id."""
    query = select(todo_lists.c.workspace_id, todo_lists.c.agent_id).distinct()
    return [(row[0], row[1]) for row in connection.execute(query)]
