"""The rows of questions to owners, and the statements on them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, select, update

from hopline_relay.store.bulk import by_id
from hopline_relay.store.schema import EMPTY, PENDING, escalations
from hopline_relay.store.sql import Record, Statement, insert, record

Key = tuple[str, str]
"""(workspace id, id of the question)"""

_SAME = Statement(
    select(escalations)
    .where(
        escalations.c.workspace_id == bindparam("workspace"),
        escalations.c.state == PENDING,
        escalations.c.agent_id == bindparam("agent"),
        escalations.c.session_id == bindparam("session"),
        escalations.c.digest == bindparam("digest"),
    )
    .limit(1)
)
_EARLIER = Statement(
    select(escalations)
    .where(
        escalations.c.workspace_id == bindparam("workspace"),
        escalations.c.agent_id == bindparam("agent"),
        escalations.c.turn_id == bindparam("turn"),
        escalations.c.attempt < bindparam("attempt"),
        escalations.c.digest == bindparam("digest"),
    )
    .order_by(escalations.c.ordinal.desc())
    .limit(1)
)
_SESSIONS_OF_PENDING = Statement(
    select(escalations.c.session_id).where(
        escalations.c.workspace_id == bindparam("workspace"),
        escalations.c.state == PENDING,
        escalations.c.agent_id == bindparam("agent"),
    )
)
_PENDING = Statement(
    select(escalations).where(
        escalations.c.workspace_id == bindparam("workspace"), escalations.c.state == PENDING
    )
)
_OF_AGENT = Statement(
    select(escalations).where(
        escalations.c.workspace_id == bindparam("workspace"),
        escalations.c.state == PENDING,
        escalations.c.agent_id == bindparam("agent"),
    )
)
_OF_TURNS = Statement(
    select(escalations).where(
        escalations.c.workspace_id == bindparam("workspace"),
        escalations.c.state == PENDING,
        escalations.c.turn_id.in_(bindparam("turns", expanding=True)),
        escalations.c.turn_id != EMPTY,
    ),
    "turns",
)
_DUE = Statement(
    select(escalations)
    .where(escalations.c.state == PENDING, escalations.c.expires_at <= bindparam("now"))
    .order_by(escalations.c.expires_at)
    .limit(bindparam("most"))
)
_END = Statement(
    update(escalations)
    .where(
        escalations.c.workspace_id == bindparam("workspace"),
        escalations.c.id == bindparam("escalation"),
        escalations.c.state == PENDING,
    )
    .values(
        state=bindparam("new_state"),
        answer=bindparam("text"),
        answer_message_id=bindparam("message"),
        ended_by_kind=bindparam("kind"),
        ended_by_id=bindparam("by"),
        ended_at=bindparam("at"),
    )
)
_MOVE = Statement(
    update(escalations)
    .where(
        escalations.c.workspace_id == bindparam("workspace"),
        escalations.c.id == bindparam("escalation"),
        escalations.c.state == PENDING,
    )
    .values(owner_id=bindparam("owner"))
)


def add(connection: Connection, row: dict[str, Any]) -> Record:
    """Write a question; returns it as it will be read."""
    insert(connection, escalations, [row])
    return record(escalations, row)


def find(connection: Connection, key: Key, *, lock: bool = False) -> Record | None:
    """Return a question by (workspace, id)."""
    return by_id(connection, escalations, {key}, lock=lock).get(key)


def of_message(connection: Connection, workspace_id: str, message_id: str) -> Record | None:
    """Return the question that a message is."""
    identifier = f"esc_{message_id.partition('_')[2]}"
    return find(connection, (workspace_id, identifier))


def same(
    connection: Connection, workspace_id: str, agent_id: str, session_id: str, digest: bytes
) -> Record | None:
    """Return the pending question of a session that asks just this."""
    values = {"workspace": workspace_id, "agent": agent_id, "session": session_id, "digest": digest}
    return _SAME.one(connection, values)


def earlier(
    connection: Connection, workspace_id: str, agent_id: str, turn_id: str, attempt: int, digest: bytes
) -> Record | None:
    """Return the question that an earlier attempt of a turn has asked in just these words."""
    values = {"workspace": workspace_id, "agent": agent_id, "turn": turn_id, "attempt": attempt}
    return _EARLIER.one(connection, {**values, "digest": digest})


def pending_sessions(connection: Connection, workspace_id: str, agent_id: str) -> list[str]:
    """Return, for each pending question of an agent, the session it was asked from."""
    return _SESSIONS_OF_PENDING.scalars(connection, {"workspace": workspace_id, "agent": agent_id})


def pending_of_agent(connection: Connection, workspace_id: str, agent_id: str) -> Sequence[Record]:
    """Return an agent's pending questions."""
    return _OF_AGENT.all(connection, {"workspace": workspace_id, "agent": agent_id})


def pending_of_turns(connection: Connection, workspace_id: str, turn_ids: Sequence[str]) -> Sequence[Record]:
    """Return the pending questions that these turns have asked."""
    return _OF_TURNS.all(connection, {"workspace": workspace_id, "turns": list(turn_ids)})


def due(connection: Connection, now: float, most: int) -> Sequence[Record]:
    """Return pending questions whose time is over, the oldest first."""
    return _DUE.all(connection, {"now": now, "most": most})


def end(
    connection: Connection, row: Record, *, state: str, text: str, message_id: str, by: Key, at: float
) -> Record:
    """End a pending question; returns it as it is then. `by`: kind and id of whoever ended it."""
    values = {
        "workspace": row.workspace_id,
        "escalation": row.id,
        "new_state": state,
        "text": text,
        "message": message_id,
        "kind": by[0],
        "by": by[1],
        "at": at,
    }
    _END.run(connection, values)
    return row._replace(
        state=state,
        answer=text,
        answer_message_id=message_id,
        ended_by_kind=by[0],
        ended_by_id=by[1],
        ended_at=at,
    )


def move(connection: Connection, row: Record, owner_id: str) -> None:
    """Have a pending question go to another owner."""
    _MOVE.run(connection, {"workspace": row.workspace_id, "escalation": row.id, "owner": owner_id})


def options_of(row: Record) -> list[str]:
    """Return what may be answered; empty: anything."""
    return list(json.loads(row.options)) if row.options else []


def newest(
    connection: Connection,
    workspace_id: str,
    agents: Sequence[str],
    *,
    pending: bool,
    before: int,
    most: int,
) -> list[Record]:
    """Return the newest questions of agents, below an ordinal."""
    base = (
        select(escalations)
        .where(escalations.c.workspace_id == workspace_id, escalations.c.ordinal < before)
        .order_by(escalations.c.ordinal.desc())
        .limit(most)
    )
    if pending:
        query = base.where(escalations.c.state == PENDING, escalations.c.agent_id.in_(agents))
        return list(connection.execute(query).all())
    found: list[Record] = []
    for agent_id in agents:
        found += connection.execute(base.where(escalations.c.agent_id == agent_id)).all()
    return sorted(found, key=lambda row: -row.ordinal)[:most]


def pending(connection: Connection, workspace_id: str) -> Sequence[Record]:
    """Return all pending questions of a workspace."""
    return _PENDING.all(connection, {"workspace": workspace_id})


def waiting_turns(connection: Connection, turns: Sequence[Record]) -> set[str]:
    """Return those of the turns, which are of one workspace, that wait for their agents' owners."""
    running = {turn.id: turn.batch_id or turn.id for turn in turns if turn.state == "running"}
    if not running:
        return set()
    rows = pending_of_turns(connection, turns[0].workspace_id, sorted(set(running.values())))
    asking = {row.turn_id for row in rows}
    return {turn_id for turn_id, asks_as in running.items() if asks_as in asking}
