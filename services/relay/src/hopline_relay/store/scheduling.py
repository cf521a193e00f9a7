"""The rows of schedules. A time is taken by whoever moves `due_at` on from it: one transaction, of all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from hopline_rpc.clock import rfc3339
from sqlalchemy import Connection, bindparam, delete, func, or_, select, tuple_, update

from hopline_relay.domain.sources import Firing
from hopline_relay.domain.values import MESH, Actor
from hopline_relay.store.book import Book
from hopline_relay.store.discharging import RacedError
from hopline_relay.store.outgoing import Outgoing
from hopline_relay.store.schema import schedules
from hopline_relay.store.sql import Record, Statement, insert

Key = tuple[str, str]

_ONE: Final = (schedules.c.workspace_id == bindparam("workspace"), schedules.c.id == bindparam("schedule"))
_FIND: Final = Statement(select(schedules).where(*_ONE))
_ORDER: Final = (schedules.c.due_at, schedules.c.workspace_id, schedules.c.id)
# `set_at` in the future: the clock was set back since, and what was worked out then may be far away.
_DUE: Final = Statement(
    select(schedules)
    .where(
        schedules.c.due_at.is_not(None),
        or_(schedules.c.due_at <= bindparam("now"), schedules.c.set_at > bindparam("ahead")),
        tuple_(*_ORDER) > tuple_(bindparam("at"), bindparam("workspace"), bindparam("schedule")),
    )
    .order_by(*_ORDER)
    .limit(bindparam("most"))
)
_TAKE: Final = Statement(
    update(schedules)
    .where(*_ONE, schedules.c.due_at == bindparam("expected"))
    .values(
        due_at=bindparam("new_due"),
        set_at=bindparam("at"),
        fired=schedules.c.fired + 1,
        skipped=schedules.c.skipped + bindparam("missed"),
        fired_at=bindparam("at"),
        turn_id=bindparam("new_turn"),
        session_id=bindparam("new_session"),
        problem_code="",
        problem_message="",
        problem_at=None,
    )
)
_SKIP: Final = Statement(
    update(schedules)
    .where(*_ONE, schedules.c.due_at == bindparam("expected"))
    .values(
        due_at=bindparam("new_due"),
        set_at=bindparam("at"),
        state=bindparam("new_state"),
        skipped=schedules.c.skipped + bindparam("missed"),
        problem_code=bindparam("code"),
        problem_message=bindparam("message"),
        problem_at=bindparam("at"),
    )
)
_SET_STATE: Final = Statement(
    update(schedules)
    .where(*_ONE)
    .values(
        state=bindparam("new_state"),
        due_at=bindparam("new_due"),
        set_at=bindparam("at"),
        author_id=bindparam("author"),
    )
)
_SET_DUE: Final = Statement(
    update(schedules)
    .where(*_ONE, schedules.c.due_at == bindparam("expected"))
    .values(due_at=bindparam("new_due"), set_at=bindparam("at"))
)
_REMOVE: Final = Statement(delete(schedules).where(*_ONE))


def find(connection: Connection, key: Key) -> Record | None:
    """Return a schedule."""
    return _FIND.one(connection, {"workspace": key[0], "schedule": key[1]})


def count(connection: Connection, workspace_id: str, agent_id: str) -> int:
    """Return how many an agent has."""
    query = select(func.count()).where(
        schedules.c.workspace_id == workspace_id, schedules.c.agent_id == agent_id
    )
    return int(connection.execute(query).scalar_one())


def add(connection: Connection, row: dict[str, Any]) -> None:
    """Write a new one."""
    insert(connection, schedules, [row])


def newest(
    connection: Connection, workspace_id: str, agent_ids: Sequence[str], before: int, most: int
) -> Sequence[Record]:
    """Return those of these agents, newest first, from before an ordinal."""
    query = (
        select(schedules)
        .where(
            schedules.c.workspace_id == workspace_id,
            schedules.c.agent_id.in_(agent_ids),
            schedules.c.ordinal < before,
        )
        .order_by(schedules.c.ordinal.desc())
        .limit(most)
    )
    return connection.execute(query).all()


def due(
    connection: Connection, now: float, ahead: float, most: int, after: Record | None
) -> Sequence[Record]:
    """Return those whose time has come, the longest due first, and those set by a clock that was `ahead`.

    Of these those behind `after`, if one is given.
    """
    behind = (after.due_at, after.workspace_id, after.id) if after is not None else (-1.0, "", "")
    values = dict(zip(("at", "workspace", "schedule"), behind, strict=True))
    return _DUE.all(connection, {**values, "now": now, "ahead": ahead, "most": most})


def next_due(connection: Connection) -> float | None:
    """Return when the next one is due; None for none."""
    query = select(func.min(schedules.c.due_at)).where(schedules.c.due_at.is_not(None))
    return connection.execute(query).scalar()


def take(book: Book, firing: Firing, message: Outgoing) -> None:
    """Take the time that a message is for; RacedError where somebody else has, or it was called off."""
    copy = message.copies[0]
    values = {
        "workspace": firing.workspace_id,
        "schedule": firing.schedule_id,
        "expected": firing.due_at,
        "new_due": firing.next_at,
        "at": book.now,
        "missed": firing.missed,
        "new_turn": copy.turn_id,
        "new_session": copy.session_id,
    }
    if not _TAKE.run(book.connection, values):
        raise RacedError
    details: dict[str, Any] = {"due_at": rfc3339(firing.due_at), "root_id": message.root_id}
    if firing.missed:
        details["missed"] = firing.missed
    book.note(
        firing.workspace_id,
        "schedule.fired",
        message.sender,
        agent_id=firing.agent_id,
        thread_id=message.thread_id,
        message_id=message.id,
        turn_id=copy.turn_id,
        session_id=copy.session_id,
        details=details,
        trace_id=message.trace_id,
    )


def skip(
    book: Book, row: Record, next_at: float | None, missed: int, *, state: str, code: str, message: str
) -> None:
    """Let a time pass without a turn, and say why; a reason that lasts is noted once. `state`: after it."""
    book.lock(row.workspace_id)
    values = {
        "workspace": row.workspace_id,
        "schedule": row.id,
        "expected": row.due_at,
        "new_due": next_at if state == "active" else None,
        "new_state": state,
        "at": book.now,
        "missed": missed,
        "code": code,
        "message": message,
    }
    if not _SKIP.run(book.connection, values) or (row.problem_code == code and state == "active"):
        return
    action = "schedule.skipped" if state == "active" else "schedule.stopped"
    note(book, row, action, MESH, {"code": code, "message": message, "due_at": rfc3339(row.due_at)})


def set_due(book: Book, row: Record, next_at: float | None) -> None:
    """Work out anew when it is due; nothing fires."""
    values = {"workspace": row.workspace_id, "schedule": row.id, "expected": row.due_at}
    _SET_DUE.run(book.connection, {**values, "new_due": next_at, "at": book.now})


def set_state(book: Book, row: Record, state: str, due_at: float | None, author_id: str) -> None:
    """Pause or resume it."""
    _SET_STATE.run(
        book.connection,
        {
            "workspace": row.workspace_id,
            "schedule": row.id,
            "new_state": state,
            "new_due": due_at,
            "at": book.now,
            "author": author_id,
        },
    )


def remove(connection: Connection, key: Key) -> bool:
    """Remove it; False where it is gone."""
    return _REMOVE.run(connection, {"workspace": key[0], "schedule": key[1]}) == 1


def note(book: Book, row: Record, action: str, actor: Actor, details: dict[str, Any] | None = None) -> None:
    """Put something about a schedule into the audit log."""
    known = {"schedule_id": row.id, "name": row.name}
    book.note(row.workspace_id, action, actor, agent_id=row.agent_id, details={**known, **(details or {})})
