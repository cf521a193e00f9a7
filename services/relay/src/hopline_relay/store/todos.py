"""The rows of todos, and of the lists that they are on: one a session, there while some are open.

Whatever changes them here goes with `settle`, which keeps the session's own mark and its list in step. Other
parts ask `holding`: how many todos of a session keep its agent from being done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, bindparam, delete, func, select, update

from hopline_relay.domain.left import KEPT_TODOS, Origin
from hopline_relay.domain.values import Actor
from hopline_relay.store.book import Book
from hopline_relay.store.bulk import by_id
from hopline_relay.store.schema import OPEN, sessions, todo_lists, todos
from hopline_relay.store.sql import Record, Statement, insert

Key = tuple[str, str]

_ONE: Final = (todos.c.workspace_id == bindparam("workspace"), todos.c.id == bindparam("todo"))
_HERE: Final = (todos.c.workspace_id == bindparam("workspace"), todos.c.session_id == bindparam("session"))
_LIST: Final = (
    todo_lists.c.workspace_id == bindparam("workspace"),
    todo_lists.c.session_id == bindparam("session"),
)
_FIND: Final = Statement(select(todos).where(*_ONE))
_OPEN: Final = Statement(select(todos).where(*_HERE, todos.c.state == OPEN).order_by(todos.c.ordinal))
_FIND_LIST: Final = Statement(select(todo_lists).where(*_LIST))
_MARK: Final = Statement(
    update(sessions)
    .where(sessions.c.workspace_id == bindparam("workspace"), sessions.c.id == bindparam("session"))
    .values(todos=bindparam("any"))
)
_MARK_NONE: Final = Statement(
    update(sessions)
    .where(sessions.c.workspace_id == bindparam("workspace"), sessions.c.id == bindparam("session"))
    .values(todos=False, todos_due_at=None)
)
_REMOVE_LIST: Final = Statement(delete(todo_lists).where(*_LIST))
_STIR: Final = Statement(update(todo_lists).where(*_LIST).values(reason="", wakes=0, asleep_at=None))
_SLEEP: Final = Statement(
    update(todo_lists)
    .where(*_LIST)
    .values(
        reason=bindparam("why"), asleep_at=bindparam("at"), seen_turn_id=bindparam("seen"), wake_turn_id=""
    )
)
_REMOVE: Final = Statement(delete(todos).where(*_ONE))
_SET_TEXT: Final = Statement(update(todos).where(*_ONE).values(body=bindparam("new_body")))
_SNOOZE: Final = Statement(
    update(todos)
    .where(*_ONE, todos.c.state == OPEN)
    .values(snoozed_until=bindparam("until"), snoozed_at=bindparam("at"))
)
_END: Final = Statement(
    update(todos)
    .where(*_ONE, todos.c.state == OPEN)
    .values(state=bindparam("new_state"), ended_at=bindparam("at"), snoozed_until=None, snoozed_at=None)
)


def find(connection: Connection, key: Key) -> Record | None:
    """Return a todo."""
    return _FIND.one(connection, {"workspace": key[0], "todo": key[1]})


def open_of(connection: Connection, workspace_id: str, session_id: str) -> Sequence[Record]:
    """Return the open todos of a session in order, those at rest among them."""
    return _OPEN.all(connection, {"workspace": workspace_id, "session": session_id})


def list_of(connection: Connection, workspace_id: str, session_id: str) -> Record | None:
    """Return the list of a session; None where it has no open todos."""
    return _FIND_LIST.one(connection, {"workspace": workspace_id, "session": session_id})


def rests(todo: Record, now: float) -> bool:
    """Tell whether an open todo is snoozed."""
    return todo.snoozed_until is not None and todo.snoozed_until > now


def holding(connection: Connection, workspace_id: str, session_id: str, now: float) -> int:
    """Return how many todos of a session keep its agent from being done: neither snoozed nor asleep."""
    row = list_of(connection, workspace_id, session_id)
    if row is None or row.reason:
        return 0
    return sum(not rests(todo, now) for todo in open_of(connection, workspace_id, session_id))


def counts(connection: Connection, workspace_id: str, session_ids: Sequence[str]) -> dict[str, int]:
    """Return how many are open, by session, for those that have some."""
    query = (
        select(todos.c.session_id, func.count())
        .where(
            todos.c.workspace_id == workspace_id, todos.c.session_id.in_(session_ids), todos.c.state == OPEN
        )
        .group_by(todos.c.session_id)
    )
    return {row[0]: row[1] for row in connection.execute(query)} if session_ids else {}


def page(
    connection: Connection, workspace_id: str, session_id: str, after: int, most: int, *, ended: bool
) -> Sequence[Record]:
    """Return the todos of a session from behind an ordinal, in order; with `ended` all of them."""
    query = select(todos).where(
        todos.c.workspace_id == workspace_id, todos.c.session_id == session_id, todos.c.ordinal > after
    )
    if not ended:
        query = query.where(todos.c.state == OPEN)
    return connection.execute(query.order_by(todos.c.ordinal).limit(most)).all()


def of_batch(connection: Connection, workspace_id: str, session_id: str, batch_id: str) -> Sequence[Record]:
    """Return what is left of what one call has noted."""
    query = select(todos).where(
        todos.c.workspace_id == workspace_id,
        todos.c.session_id == session_id,
        todos.c.batch_id == batch_id,
    )
    return connection.execute(query.order_by(todos.c.ordinal)).all()


# --- changes ---------------------------------------------------------------------------------------


def add(
    book: Book,
    session: Key,
    agent_id: str,
    noted: Sequence[tuple[str, str]],
    origin: Origin,
) -> None:
    """Note todos, given as (id, text), at the end of a session's list, and wake that."""
    rows: list[dict[str, Any]] = [
        {
            "workspace_id": session[0],
            "id": todo_id,
            "ordinal": book.ordinal(session[0]),
            "session_id": session[1],
            "agent_id": agent_id,
            "body": text,
            "state": "open",
            "batch_id": noted[0][0],
            "turn_id": origin.turn_id,
            "depth": origin.depth,
            "root_id": origin.root_id,
            "traceparent": origin.traceparent,
            "hook_generation": origin.hook_generation,
            "created_at": book.now,
            "snoozed_until": None,
            "snoozed_at": None,
            "ended_at": None,
        }
        for todo_id, text in noted
    ]
    insert(book.connection, todos, rows)
    settle(book, session, agent_id)
    stir(book, session)


def set_text(book: Book, todo: Record, text: str) -> None:
    """Put other words in its place."""
    _SET_TEXT.run(book.connection, {"workspace": todo.workspace_id, "todo": todo.id, "new_body": text})


def end(book: Book, todo: Record, state: str) -> bool:
    """End an open todo as `done` or `dropped`; the oldest of those go. False: it had ended."""
    values = {"workspace": todo.workspace_id, "todo": todo.id, "new_state": state, "at": book.now}
    if not _END.run(book.connection, values):
        return False
    _forget_ended(book.connection, todo.workspace_id, todo.session_id)
    return True


def remove(book: Book, todo: Record) -> bool:
    """Forget a todo."""
    return _REMOVE.run(book.connection, {"workspace": todo.workspace_id, "todo": todo.id}) == 1


def snooze(book: Book, todo: Record, until: float | None) -> bool:
    """Let an open todo rest until then, or no longer (None); False: it has ended."""
    values = {
        "workspace": todo.workspace_id,
        "todo": todo.id,
        "until": until,
        "at": None if until is None else book.now,
    }
    return _SNOOZE.run(book.connection, values) == 1


def settle(book: Book, session: Key, agent_id: str) -> None:
    """Let a session and its list say whether it has open todos."""
    connection, values = book.connection, {"workspace": session[0], "session": session[1]}
    if not open_of(connection, *session):
        _MARK_NONE.run(connection, values)
        _REMOVE_LIST.run(connection, values)
        return
    _MARK.run(connection, {**values, "any": True})
    if list_of(connection, *session) is None:
        found = by_id(connection, sessions, {session})[session]
        row = {
            "workspace_id": session[0],
            "session_id": session[1],
            "agent_id": agent_id,
            "reason": "",
            "wakes": 0,
            "wake_turn_id": "",
            # What has ended there before has nothing to do with it.
            "seen_turn_id": found.todos_turn_id,
            "asleep_at": None,
        }
        insert(connection, todo_lists, [row])


def stir(book: Book, session: Key) -> None:
    """Wake a list: something was added, completed or said."""
    _STIR.run(book.connection, {"workspace": session[0], "session": session[1]})


def sleep(book: Book, session: Key, reason: str, seen_turn_id: str) -> None:
    """Put a list to sleep, having seen this turn end."""
    values = {"workspace": session[0], "session": session[1], "why": reason, "at": book.now}
    _SLEEP.run(book.connection, {**values, "seen": seen_turn_id})


def _forget_ended(connection: Connection, workspace_id: str, session_id: str) -> None:
    """Keep the latest of what has ended."""
    query = (
        select(todos.c.id)
        .where(todos.c.workspace_id == workspace_id, todos.c.session_id == session_id, todos.c.state != OPEN)
        .order_by(todos.c.ended_at.desc(), todos.c.ordinal.desc())
        .offset(KEPT_TODOS)
    )
    over = list(connection.execute(query).scalars())
    if over:
        connection.execute(delete(todos).where(todos.c.workspace_id == workspace_id, todos.c.id.in_(over)))


def drop_of_session(book: Book, session: Key) -> int:
    """Drop the open todos of a session that is closed; they stay readable. Returns how many there were."""
    rows = open_of(book.connection, *session)
    for row in rows:
        end(book, row, "dropped")
    if rows:
        settle(book, session, rows[0].agent_id)
    return len(rows)


def lists_of_agent(connection: Connection, workspace_id: str, agent_id: str) -> Sequence[Record]:
    """Return the lists of an agent, as far as whose they are: the index holds no more."""
    query = select(todo_lists.c.workspace_id, todo_lists.c.session_id, todo_lists.c.agent_id).where(
        todo_lists.c.workspace_id == workspace_id, todo_lists.c.agent_id == agent_id
    )
    return connection.execute(query).all()


def note(book: Book, todo: Record, action: str, actor: Actor, details: dict[str, Any] | None = None) -> None:
    """Put something about a todo into the audit log."""
    book.note(
        todo.workspace_id,
        action,
        actor,
        agent_id=todo.agent_id,
        turn_id=todo.turn_id,
        session_id=todo.session_id,
        details={"todo_id": todo.id, **(details or {})},
        trace_id=todo.traceparent[3:35],
    )
