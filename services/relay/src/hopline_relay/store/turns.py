"""The statements by which turns move: queued, running, queued again, ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, and_, bindparam, case, exists, or_, update

from hopline_relay.domain.batches import held_by_worker, rides
from hopline_relay.domain.left import OWN_WAKES
from hopline_relay.domain.values import MESH, Actor, Fault
from hopline_relay.store import children
from hopline_relay.store.batches import beside
from hopline_relay.store.book import Book
from hopline_relay.store.bulk import by_id
from hopline_relay.store.schema import EMPTY, QUEUED, RUNNING, deliveries, sessions, turns
from hopline_relay.store.sql import Record, Statement

# A turn that stands in its queue and has not begun, but for when it is due.
NOT_BEGUN: Final[Mapping[str, Any]] = {
    "state": "queued",
    "attempt": 0,
    "batch_id": "",
    "run_session_id": "",
    "epoch": 0,
    "instance_id": "",
    "slot": False,
    "started_at": None,
    "ended_at": None,
    "lease_until": None,
    "error_code": "",
    "error_message": "",
    "span": "",
}

# Not yet answered or given up. Spelled out: a list cannot be bound for many rows at once.
UNSERVED = or_(
    deliveries.c.state == "queued", deliveries.c.state == "delivered", deliveries.c.state == "taken"
)


@dataclass(frozen=True, slots=True)
class Ended:
    """A turn that is to end. It does only if it is in one of `seen`, and at `attempt` unless that is 0.

    `delivery`: what its delivery becomes, if nothing has answered it.
    """

    workspace_id: str
    turn_id: str
    seen: tuple[str, ...]
    state: str
    delivery: str
    attempt: int = 0
    # The tunnel it has to run on; None for any.
    epoch: int | None = None
    fault: Fault | None = None
    actor: Actor = MESH

    def fits(self, row: Record | None) -> bool:
        """Tell whether the turn is still what it was seen as."""
        return (
            row is not None
            and row.state in self.seen
            and self.attempt in (0, row.attempt)
            and self.epoch in (None, row.epoch)
        )


def never_ran(row: Record) -> bool:
    """Tell whether a turn, as it is, has never reached a worker or an agent that pulls."""
    return bool(row.state == "queued" and not row.attempt)


_FINISH = Statement(
    update(turns)
    .where(turns.c.workspace_id == bindparam("workspace"), turns.c.id == bindparam("turn"))
    .values(
        state=bindparam("new_state"),
        # One that ends in its queue may have run before it was put back there.
        started_at=case((turns.c.state == QUEUED, turns.c.ended_at), else_=turns.c.started_at),
        ended_at=bindparam("at"),
        lease_until=None,
        due_at=None,
        slot=False,
        error_code=bindparam("code"),
        error_message=bindparam("message"),
    )
)
_CLOSE_DELIVERY = Statement(
    update(deliveries)
    .where(
        deliveries.c.workspace_id == bindparam("workspace"),
        deliveries.c.message_id == bindparam("message_key"),
        deliveries.c.recipient_id == bindparam("recipient"),
        UNSERVED,
    )
    .values(state=bindparam("new_state"))
)
# Where todos are open they are looked at now: in the same statement, for whoever has none.
_FREED: Final[Mapping[str, Any]] = {
    "running_turn_id": "",
    "todos_due_at": case((sessions.c.todos, bindparam("at")), else_=sessions.c.todos_due_at),
    # The last one that the todos themselves have not brought about.
    "todos_turn_id": case(
        (and_(sessions.c.todos, bindparam("other") != EMPTY), bindparam("other")),
        else_=sessions.c.todos_turn_id,
    ),
}
_FREE_SESSION = Statement(
    update(sessions)
    .where(
        sessions.c.workspace_id == bindparam("workspace"),
        sessions.c.id == bindparam("session"),
        sessions.c.running_turn_id == bindparam("turn"),
    )
    .values(_FREED)
)
_PULLED = turns.alias("pulled")
_AROUND = turns.alias("around")
_FREE_PULL = Statement(
    update(sessions)
    .where(
        sessions.c.workspace_id == bindparam("workspace"),
        sessions.c.id == bindparam("session"),
        sessions.c.running_turn_id == bindparam("turn"),
        ~exists().where(
            and_(
                _PULLED.c.workspace_id == bindparam("workspace"),
                _PULLED.c.batch_id == bindparam("turn"),
                _PULLED.c.batch_id != EMPTY,
                _PULLED.c.state == RUNNING,
            )
        ),
        # Pulled from within a worker's turn, which goes on in this session.
        ~exists().where(
            and_(
                _AROUND.c.workspace_id == bindparam("workspace"),
                _AROUND.c.id == bindparam("turn"),
                _AROUND.c.session_id == bindparam("session"),
                _AROUND.c.run_session_id == EMPTY,
                _AROUND.c.state == RUNNING,
            )
        ),
    )
    .values(_FREED)
)


def finish(book: Book, endings: Sequence[Ended]) -> list[Record]:
    """End turns; returns the rows, as they were, of those that did."""
    connection = book.connection
    found = by_id(connection, turns, {(each.workspace_id, each.turn_id) for each in endings})
    done: list[tuple[Ended, Record]] = []
    for each in endings:
        row = found.pop((each.workspace_id, each.turn_id), None)
        if row is not None and each.fits(row):
            done.append((each, row))
    if not done:
        return []
    for _, row in done:
        if row.price and never_ran(row):
            book.charge(row.workspace_id, -row.price)
    _FINISH.many(connection, [_finish_values(book, each) for each, _ in done])
    _CLOSE_DELIVERY.many(connection, [_close_values(each, row) for each, row in done])
    children.ended(connection, [row for _, row in done])
    ran = [row for _, row in done if row.state == "running"]
    free_sessions(book, ran)
    _release_pulled(book, [row for row in ran if held_by_worker(row)])
    for each, row in done:
        _note_end(book, each, row)
    return [row for _, row in done]


_RELEASE = Statement(
    update(turns)
    .where(
        turns.c.workspace_id == bindparam("workspace"),
        turns.c.batch_id == bindparam("batch"),
        turns.c.batch_id != EMPTY,
        turns.c.state == RUNNING,
        turns.c.run_session_id != EMPTY,
    )
    .values(lease_until=bindparam("at"), due_at=bindparam("at"))
)


def _release_pulled(book: Book, rows: Sequence[Record]) -> None:
    """Let the leases end of messages that were pulled from within turns that have ended."""
    if rows:
        _RELEASE.many(
            book.connection,
            [{"workspace": row.workspace_id, "batch": row.id, "at": book.now} for row in rows],
        )


def _finish_values(book: Book, each: Ended) -> dict[str, Any]:
    return {
        "workspace": each.workspace_id,
        "turn": each.turn_id,
        "new_state": each.state,
        "at": book.now,
        "code": each.fault.code if each.fault else "",
        "message": each.fault.message if each.fault else "",
    }


def _close_values(each: Ended, row: Record) -> dict[str, Any]:
    return {
        "workspace": each.workspace_id,
        "message_key": row.message_id,
        "recipient": row.agent_id,
        "new_state": each.delivery,
    }


def free_sessions(book: Book, rows: Sequence[Record]) -> None:
    """Mark the sessions of turns that run no more as free; open todos there are looked at."""
    connection, at = book.connection, book.now
    alone = [
        {
            "workspace": row.workspace_id,
            "session": row.session_id,
            "turn": row.id,
            "at": at,
            "other": "" if row.cause in OWN_WAKES else row.id,
        }
        for row in rows
        if held_by_worker(row)
    ]
    if alone:
        _FREE_SESSION.many(connection, alone)
    pulled: dict[tuple[str, str, str], str] = {}
    for row in rows:
        if row.run_session_id:
            key = (row.workspace_id, row.run_session_id, row.batch_id)
            other = "" if row.cause in OWN_WAKES else row.batch_id
            pulled[key] = other or pulled.get(key, "")
    for (workspace_id, session_id, batch_id), other in pulled.items():
        values = {
            "workspace": workspace_id,
            "session": session_id,
            "turn": batch_id,
            "at": at,
            "other": other,
        }
        _FREE_PULL.run(connection, values)


def _note_end(book: Book, each: Ended, row: Record) -> None:
    details: dict[str, Any] = {"state": each.state, "depth": row.depth, "root_id": row.root_id}
    if each.delivery == "dead":
        details["delivery"] = "dead"
    if each.fault:
        details["code"], details["reason"] = each.fault.code, each.fault.message
    book.note(
        row.workspace_id,
        "turn.ended",
        each.actor,
        agent_id=row.agent_id,
        thread_id=row.thread_id,
        message_id=row.message_id,
        turn_id=row.id,
        session_id=row.session_id,
        details=details,
        trace_id=row.traceparent[3:35],
    )


# --- starting ------------------------------------------------------------------------------------

_CHANGED = (
    "state",
    "attempt",
    "batch_id",
    "run_session_id",
    "epoch",
    "instance_id",
    "slot",
    "started_at",
    "ended_at",
    "lease_until",
    "deadline_at",
    "due_at",
    "span",
)
_START = Statement(
    update(turns)
    .where(turns.c.workspace_id == bindparam("workspace"), turns.c.id == bindparam("turn"))
    .values({name: bindparam(f"new_{name}") for name in _CHANGED})
)
_HOLD_SESSION = Statement(
    update(sessions)
    .where(sessions.c.workspace_id == bindparam("workspace"), sessions.c.id == bindparam("session"))
    .values(running_turn_id=bindparam("turn"), used=True)
)
_SET_DELIVERY = Statement(
    update(deliveries)
    .where(
        deliveries.c.workspace_id == bindparam("workspace"),
        deliveries.c.message_id == bindparam("message_key"),
        deliveries.c.recipient_id == bindparam("recipient"),
        UNSERVED,
    )
    .values(state=bindparam("new_state"))
)


@dataclass(frozen=True, slots=True)
class Start:
    """A queued turn that is to run; times are unix seconds."""

    row: Record
    epoch: int
    slot: bool
    started_at: float
    lease_until: float
    deadline_at: float
    span: str
    delivery: str
    # Of a group: the turn that stands for all of it; of a pull also the session it runs in.
    batch_id: str = ""
    run_session_id: str = ""

    @property
    def id(self) -> str:
        """The turn."""
        return str(self.row.id)


def start(book: Book, starts: Sequence[Start], instance_id: str) -> list[Start]:
    """Make queued turns running; returns those that were still queued, in a session that is free.

    Those that ride along come after the one they ride with, and start only if it does.
    """
    connection = book.connection
    rows = by_id(connection, turns, {(each.row.workspace_id, each.row.id) for each in starts})
    alone = {(each.row.workspace_id, each.row.session_id) for each in starts if held_by_worker(each)}
    held = {key for key, row in by_id(connection, sessions, alone).items() if row.running_turn_id}
    started = []
    begun: set[str] = set()
    for each in starts:
        session = (each.row.workspace_id, each.row.session_id)
        row = rows.get((each.row.workspace_id, each.row.id))
        if row is None or row.state != "queued" or row.attempt != each.row.attempt:
            continue
        if held_by_worker(each):
            if session in held:
                continue
            held.add(session)
            begun.add(each.id)
        elif rides(each) and each.batch_id not in begun:
            continue
        started.append(each)
    if not started:
        return []
    _START.many(connection, [_start_values(each, instance_id) for each in started])
    hold_sessions(connection, [each for each in started if held_by_worker(each)])
    set_deliveries(connection, [(each.row, each.delivery) for each in started])
    for each in started:
        note_start(book, each)
    return started


def hold_sessions(connection: Connection, starts: Sequence[Start]) -> None:
    """Say that turns run in their sessions."""
    _HOLD_SESSION.many(
        connection,
        [
            {
                "workspace": each.row.workspace_id,
                "session": each.run_session_id or each.row.session_id,
                "turn": each.batch_id or each.row.id,
            }
            for each in starts
        ],
    )


def set_deliveries(connection: Connection, changes: Sequence[tuple[Record, str]]) -> None:
    """Set the state of the deliveries that turns serve, unless they are served already."""
    if changes:
        _SET_DELIVERY.many(
            connection,
            [
                {
                    "workspace": row.workspace_id,
                    "message_key": row.message_id,
                    "recipient": row.agent_id,
                    "new_state": state,
                }
                for row, state in changes
            ],
        )


def running(start: Start, instance_id: str) -> dict[str, Any]:
    """Return what a turn's row says otherwise once it has started."""
    return {
        "state": "running",
        "attempt": start.row.attempt + 1,
        "batch_id": start.batch_id,
        "run_session_id": start.run_session_id,
        "epoch": start.epoch,
        "instance_id": instance_id,
        "slot": start.slot,
        "started_at": start.started_at,
        "ended_at": None,
        "lease_until": start.lease_until,
        "deadline_at": start.deadline_at,
        "due_at": min(start.lease_until, start.deadline_at),
        "span": start.span,
    }


def _start_values(each: Start, instance_id: str) -> dict[str, Any]:
    values = {f"new_{name}": value for name, value in running(each, instance_id).items()}
    return {"workspace": each.row.workspace_id, "turn": each.row.id, **values}


def note_start(book: Book, each: Start) -> None:
    """Say in the audit log that a turn has started."""
    row = each.row
    book.note(
        row.workspace_id,
        "turn.started",
        Actor("agent", row.agent_id),
        agent_id=row.agent_id,
        thread_id=row.thread_id,
        message_id=row.message_id,
        turn_id=row.id,
        session_id=each.run_session_id or row.session_id,
        details={"attempt": row.attempt + 1, "depth": row.depth, "root_id": row.root_id},
        trace_id=row.traceparent[3:35],
    )


# --- leases and queueing again -------------------------------------------------------------------

_LEASE = Statement(
    update(turns)
    .where(turns.c.workspace_id == bindparam("workspace"), turns.c.id == bindparam("turn"))
    .values(
        lease_until=bindparam("lease"),
        due_at=bindparam("due"),
        epoch=bindparam("new_epoch"),
        instance_id=bindparam("instance"),
    )
)


def set_leases(
    book: Book, leases: Sequence[tuple[Record, float]], instance_id: str, epoch: int | None = None
) -> None:
    """Let the leases of running turns end at a moment each; `epoch` moves them to another attachment."""
    if leases:
        _LEASE.many(
            book.connection,
            [
                {
                    "workspace": row.workspace_id,
                    "turn": row.id,
                    "lease": until,
                    "due": min(until, row.deadline_at),
                    "new_epoch": row.epoch if epoch is None else epoch,
                    "instance": instance_id,
                }
                for row, until in leases
            ],
        )


_REQUEUE = Statement(
    update(turns)
    .where(turns.c.workspace_id == bindparam("workspace"), turns.c.id == bindparam("turn"))
    .values(
        state="queued",
        attempt=bindparam("new_attempt"),
        batch_id="",
        run_session_id="",
        slot=False,
        started_at=None,
        # It has run until now: rebuilt counters have to know, as those that were lost did.
        ended_at=bindparam("at"),
        lease_until=None,
        deadline_at=bindparam("deadline"),
        due_at=bindparam("deadline"),
    )
)


def requeue(book: Book, rows: Sequence[Record], queue_seconds: Any, *, free: bool = False) -> list[Record]:
    """Put running turns back into their queues, with what rides along; returns all of them, as they were.

    `queue_seconds(workspace_id)` is how long they may wait there. `free` gives their attempts back, but not
    those of what rides along: the next claim may be under way before the quota service has heard of it.
    """
    if not rows:
        return []
    along = beside(book.connection, rows)
    freed = {row.id for row in rows} if free else set()
    rows = [*rows, *along]
    _REQUEUE.many(
        book.connection,
        [
            {
                "workspace": row.workspace_id,
                "turn": row.id,
                "new_attempt": row.attempt - (row.id in freed),
                "at": book.now,
                "deadline": book.now + queue_seconds(row.workspace_id),
            }
            for row in rows
        ],
    )
    free_sessions(book, rows)
    set_deliveries(book.connection, [(row, "queued") for row in rows])
    for row in rows:
        book.note(
            row.workspace_id,
            "turn.requeued",
            MESH,
            agent_id=row.agent_id,
            thread_id=row.thread_id,
            message_id=row.message_id,
            turn_id=row.id,
            session_id=row.session_id,
            details={"attempt": row.attempt},
            trace_id=row.traceparent[3:35],
        )
    return list(rows)
