"""Answers to people that are held: what is kept, and why.

Whoever decides on one holds the workspace's head, as whoever ends a report's debt or a todo does: each sees
what the other has done. `seat_id` is the session in which an agent works for its answer: that of the prompt,
or the one in which a pulled prompt is served.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, and_, bindparam, delete, or_, select, tuple_, update

from hopline_relay.domain.holds import Kept, Reasons, Waited
from hopline_relay.domain.values import TASK, Actor
from hopline_relay.store import children, todos
from hopline_relay.store.book import Book
from hopline_relay.store.bulk import grouped
from hopline_relay.store.schema import QUEUED, deliveries, holds, messages, turns
from hopline_relay.store.schema import children as child_rows
from hopline_relay.store.sql import Record, Statement, insert

Key = tuple[str, str]
"""Workspace, and the turn that owes the answer."""
Place = tuple[str, str]
"""Workspace, and the session in which an agent works."""
MOST: Final = 200


@dataclass(frozen=True, slots=True)
class Seat:
    """Where an agent works for what goes back to one root."""

    workspace_id: str
    agent_id: str
    session_id: str
    root_id: str


def seat_of(turn: Record) -> Seat:
    """Return where a turn runs."""
    return Seat(turn.workspace_id, turn.agent_id, turn.run_session_id or turn.session_id, turn.root_id)


def seat_of_hold(row: Record) -> Seat:
    """Return where the agent works for an answer that is held."""
    return Seat(row.workspace_id, row.agent_id, row.seat_id, row.root_id)


# --- why ------------------------------------------------------------------------------------------

_REPORTS = messages.alias("reports")
_TASKS = messages.alias("tasks")
# Reports, and news that there will be none, which are queued for a session and have not been read.
_UNREAD = Statement(
    select(deliveries.c.recipient_id, deliveries.c.session_id, deliveries.c.turn_id)
    .select_from(turns)
    .join(
        _REPORTS, and_(_REPORTS.c.workspace_id == turns.c.workspace_id, _REPORTS.c.id == turns.c.message_id)
    )
    .join(
        _TASKS,
        and_(_TASKS.c.workspace_id == turns.c.workspace_id, _TASKS.c.id == _REPORTS.c.in_reply_to),
    )
    .join(
        deliveries,
        and_(deliveries.c.workspace_id == turns.c.workspace_id, deliveries.c.message_id == _TASKS.c.id),
    )
    .join(
        child_rows,
        and_(
            child_rows.c.workspace_id == turns.c.workspace_id,
            child_rows.c.session_id == deliveries.c.session_id,
        ),
    )
    .where(
        turns.c.workspace_id == bindparam("workspace"),
        turns.c.agent_id == bindparam("agent"),
        turns.c.state == QUEUED,
        turns.c.session_id == bindparam("session"),
        turns.c.root_id == bindparam("root"),
        _TASKS.c.kind == TASK,
        # Of the others nobody said that a report is wanted.
        child_rows.c.fire_and_forget.is_(False),
    )
    .order_by(turns.c.ordinal)
    .limit(MOST)
)


def reasons(connection: Connection, seat: Seat, now: float) -> Reasons:
    """Return what an answer of this session, under this root, is held for at this moment."""
    owing = children.owing(connection, seat.workspace_id, seat.session_id, seat.root_id)
    values = {"workspace": seat.workspace_id, "session": seat.session_id, "root": seat.root_id}
    unread = _UNREAD.all(connection, {**values, "agent": seat.agent_id})
    waited = [Waited(row.agent_id, row.session_id, row.turn_id) for row in owing]
    waited += [Waited(row.recipient_id, row.session_id, row.turn_id) for row in unread]
    unique = {each.turn_id: each for each in waited}
    open_todos = todos.holding(connection, seat.workspace_id, seat.session_id, now)
    return Reasons(tuple(unique.values()), open_todos)


_AT_WORK = Statement(
    select(turns.c.id)
    .where(
        turns.c.workspace_id == bindparam("workspace"),
        turns.c.agent_id == bindparam("agent"),
        or_(turns.c.state == "queued", turns.c.state == "running"),
        or_(turns.c.session_id == bindparam("session"), turns.c.run_session_id == bindparam("session")),
        turns.c.root_id == bindparam("root"),
        turns.c.id != bindparam("but"),
    )
    .limit(1)
)


def at_work(connection: Connection, seat: Seat, but: str = "") -> bool:
    """Tell whether a turn, but not `but`, runs or is queued that goes on with this work for a root."""
    values = {
        "but": but,
        "workspace": seat.workspace_id,
        "agent": seat.agent_id,
        "session": seat.session_id,
        "root": seat.root_id,
    }
    return _AT_WORK.one(connection, values) is not None


# --- what is kept ---------------------------------------------------------------------------------

_FIND = Statement(
    select(holds).where(holds.c.workspace_id == bindparam("workspace"), holds.c.turn_id == bindparam("turn"))
)
_IN_SEATS = Statement(
    select(holds)
    .where(
        holds.c.workspace_id == bindparam("workspace"),
        holds.c.seat_id.in_(bindparam("seats", expanding=True)),
    )
    .order_by(holds.c.ordinal),
    "seats",
)
_IN_SESSIONS = Statement(
    select(holds)
    .where(
        holds.c.workspace_id == bindparam("workspace"),
        holds.c.session_id.in_(bindparam("sessions", expanding=True)),
    )
    .order_by(holds.c.ordinal),
    "sessions",
)
_OF_AGENTS = Statement(
    select(holds)
    .where(
        holds.c.workspace_id == bindparam("workspace"),
        holds.c.agent_id.in_(bindparam("agents", expanding=True)),
        holds.c.ordinal < bindparam("before"),
    )
    .order_by(holds.c.ordinal.desc())
    .limit(bindparam("most")),
    "agents",
)
_AFTER = Statement(
    select(holds.c.workspace_id, holds.c.turn_id)
    .where(tuple_(holds.c.workspace_id, holds.c.turn_id) > tuple_(bindparam("workspace"), bindparam("turn")))
    .order_by(holds.c.workspace_id, holds.c.turn_id)
    .limit(bindparam("most"))
)
_SET = Statement(
    update(holds)
    .where(holds.c.workspace_id == bindparam("workspace"), holds.c.turn_id == bindparam("turn"))
    .values(
        state=bindparam("new_state"),
        body=bindparam("new_body"),
        wake_turn_id=bindparam("wake"),
        written_at=bindparam("written"),
    )
)
_DROP = Statement(
    delete(holds).where(holds.c.workspace_id == bindparam("workspace"), holds.c.turn_id == bindparam("turn"))
)


def find(connection: Connection, key: Key) -> Record | None:
    """Return what is held of the answer that a turn owes."""
    return _FIND.one(connection, {"workspace": key[0], "turn": key[1]})


def in_seats(connection: Connection, seats: Iterable[Place]) -> list[Record]:
    """Return what is held for these sessions, as (workspace, session) in which agents work; oldest first."""
    return [
        row
        for workspace_id, ids in grouped(seats).items()
        for row in _IN_SEATS.all(connection, {"workspace": workspace_id, "seats": ids})
    ]


def in_sessions(connection: Connection, workspace_id: str, session_ids: Sequence[str]) -> list[Record]:
    """Return what is held in sessions, oldest first."""
    if not session_ids:
        return []
    return _IN_SESSIONS.all(connection, {"workspace": workspace_id, "sessions": list(session_ids)})


def of_agents(
    connection: Connection, workspace_id: str, agent_ids: Sequence[str], before: int = 2**62, most: int = MOST
) -> list[Record]:
    """Return what is held of agents, newest first."""
    if not agent_ids:
        return []
    values = {"workspace": workspace_id, "agents": list(agent_ids), "before": before, "most": most}
    return _OF_AGENTS.all(connection, values)


def after(connection: Connection, key: Key) -> list[Key]:
    """Return the next of everything that is held, in an order of its own."""
    rows = _AFTER.all(connection, {"workspace": key[0], "turn": key[1], "most": MOST})
    return [(row.workspace_id, row.turn_id) for row in rows]


def kept(row: Record) -> Kept:
    """Return a draft as it is kept."""
    return Kept(row.body, row.state, row.wake_turn_id)


def keep(book: Book, turn: Record, seat: Seat, message: Record, draft: Kept) -> None:
    """Keep a draft of the answer to a message, which a turn owes."""
    insert(book.connection, holds, [_row(book, turn, seat, message, draft)])


def change(book: Book, before: Record, draft: Kept) -> None:
    """Keep another draft, or the same in another state."""
    _SET.run(
        book.connection,
        {
            "workspace": before.workspace_id,
            "turn": before.turn_id,
            "new_state": draft.state,
            "new_body": draft.text,
            "wake": draft.wake_turn_id,
            "written": before.written_at if draft.text == before.body else book.now,
        },
    )


def drop(connection: Connection, key: Key) -> bool:
    """Keep nothing any more of the answer that a turn owes; False where nothing was."""
    return _DROP.run(connection, {"workspace": key[0], "turn": key[1]}) == 1


def note(book: Book, row: Record, action: str, actor: Actor, details: Mapping[str, Any]) -> None:
    """Say in the audit log what happened to an answer; `row`: what is held of it, or the turn that owes."""
    book.note(
        row.workspace_id,
        action,
        actor,
        agent_id=row.agent_id,
        thread_id=row.thread_id,
        message_id=row.message_id,
        turn_id=row.turn_id if "turn_id" in row._fields else row.id,
        session_id=row.session_id,
        details={"root_id": row.root_id, **details},
    )


def counts(why: Reasons) -> dict[str, int]:
    """Return how much an answer is held for, for the audit log."""
    return {"waiting_on": len(why.waited), "open_todos": why.open_todos}


def _row(book: Book, turn: Record, seat: Seat, message: Record, draft: Kept) -> dict[str, Any]:
    return {
        "workspace_id": turn.workspace_id,
        "turn_id": turn.id,
        "ordinal": book.ordinal(turn.workspace_id),
        "agent_id": turn.agent_id,
        "session_id": turn.session_id,
        "seat_id": seat.session_id,
        "root_id": seat.root_id,
        "message_id": message.id,
        "thread_id": message.thread_id,
        "state": draft.state,
        "body": draft.text,
        "wake_turn_id": draft.wake_turn_id,
        "created_at": book.now,
        "written_at": book.now if draft.text else None,
    }
