"""The rows of what is still to be posted: to owners, and to what starts agents' workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, bindparam, delete, func, select, update

from hopline_relay.store.schema import WAKE, posts
from hopline_relay.store.sql import Record, Statement, insert

Key = tuple[str, str]

# The kinds: what an owner is told of, and what starts a worker (of a wake both subject and recipient are the
# agent).
ESCALATION: Final = "escalation"
ROOT: Final = "root"
WAKE_FAILED: Final = "wake_failed"
HOOK: Final = "hook"
TODOS_ASLEEP: Final = "todos_asleep"
WAKING: Final = "wake"

_DUE = Statement(
    select(posts).where(posts.c.due_at <= bindparam("now")).order_by(posts.c.due_at).limit(bindparam("most"))
)
_THIS = (posts.c.workspace_id == bindparam("workspace"), posts.c.id == bindparam("post"))
_CLAIM = Statement(
    update(posts).where(*_THIS, posts.c.due_at == bindparam("seen")).values(due_at=bindparam("at"))
)
_PUT_OFF = Statement(
    update(posts)
    .where(*_THIS)
    .values(attempts=bindparam("new_attempts"), due_at=bindparam("at"), problem=bindparam("why"))
)
_GIVE_UP = Statement(
    update(posts)
    .where(*_THIS)
    .values(
        attempts=bindparam("new_attempts"), due_at=None, problem=bindparam("why"), ended_at=bindparam("at")
    )
)
_REMOVE = Statement(delete(posts).where(*_THIS))
_WAKES = Statement(
    select(posts).where(
        posts.c.workspace_id == bindparam("workspace"),
        posts.c.kind == WAKE,
        posts.c.subject_id.in_(bindparam("agents", expanding=True)),
    ),
    "agents",
)
_ALL_WAKES = Statement(select(posts.c.workspace_id, posts.c.subject_id).where(posts.c.kind == WAKE))
_REMOVE_WAKE = Statement(
    delete(posts).where(
        posts.c.workspace_id == bindparam("workspace"),
        posts.c.kind == WAKE,
        posts.c.subject_id == bindparam("agent"),
    )
)


def add(connection: Connection, key: Key, kind: str, subject_id: str, recipient_id: str, at: float) -> None:
    """Have something posted."""
    row = {
        "workspace_id": key[0],
        "id": key[1],
        "kind": kind,
        "subject_id": subject_id,
        "recipient_id": recipient_id,
        "attempts": 0,
        "problem": "",
        "due_at": at,
        "ended_at": None,
    }
    insert(connection, posts, [row])


def due(connection: Connection, now: float, most: int) -> Sequence[Record]:
    """Return what is to be posted by now, the oldest first."""
    return _DUE.all(connection, {"now": now, "most": most})


def next_due(connection: Connection) -> float | None:
    """Return when the next one is to be posted; None for none."""
    return connection.execute(select(func.min(posts.c.due_at))).scalar()


def claim(connection: Connection, row: Record, until: float) -> bool:
    """Have nobody else post what was seen as due until then; False: somebody else has claimed it."""
    values = {"workspace": row.workspace_id, "post": row.id, "seen": row.due_at, "at": until}
    return _CLAIM.run(connection, values) == 1


def put_off(connection: Connection, row: Record, at: float, problem: str = "") -> bool:
    """Count an attempt and have it posted again later; False: it is no longer to be."""
    values = {
        "workspace": row.workspace_id,
        "post": row.id,
        "new_attempts": row.attempts + 1,
        "at": at,
        "why": problem,
    }
    return _PUT_OFF.run(connection, values) == 1


def give_up(connection: Connection, row: Record, at: float, problem: str) -> bool:
    """Keep it as one that is not tried again; False: it is there no longer."""
    values = {
        "workspace": row.workspace_id,
        "post": row.id,
        "new_attempts": row.attempts + 1,
        "at": at,
        "why": problem,
    }
    return _GIVE_UP.run(connection, values) == 1


def remove(connection: Connection, row: Record) -> bool:
    """Forget it: it was taken, or nobody is to be told any more. False: somebody else has."""
    return _REMOVE.run(connection, {"workspace": row.workspace_id, "post": row.id}) == 1


def wakes(connection: Connection, workspace_id: str, agent_ids: Sequence[str]) -> dict[str, Record]:
    """Return the wake of each of these agents that has one, given up or not."""
    rows = _WAKES.all(connection, {"workspace": workspace_id, "agents": agent_ids})
    return {row.subject_id: row for row in rows}


def all_wakes(connection: Connection) -> set[Key]:
    """Return every agent that has a wake, by workspace and id."""
    return {(row.workspace_id, row.subject_id) for row in _ALL_WAKES.all(connection, {})}


def remove_wake(connection: Connection, workspace_id: str, agent_id: str) -> None:
    """Forget an agent's wake: its worker is there, or it is woken otherwise."""
    _REMOVE_WAKE.run(connection, {"workspace": workspace_id, "agent": agent_id})
