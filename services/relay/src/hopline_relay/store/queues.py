"""Looking at turns: queues, what runs, and the turns of a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from sqlalchemy import Connection, and_, bindparam, func, select

from hopline_relay.store.bulk import by_id, grouped
from hopline_relay.store.schema import EMPTY, QUEUED, RUNNING, deliveries, sessions, turns
from hopline_relay.store.sql import Record, Statement

# How many of a queue are looked at together.
_CHUNK: Final = 512

_QUEUED_OF = Statement(
    select(turns)
    .where(
        turns.c.workspace_id == bindparam("workspace"),
        turns.c.agent_id == bindparam("agent"),
        turns.c.state == QUEUED,
    )
    .order_by(turns.c.ordinal)
    .limit(bindparam("most"))
)
_COUNT_QUEUED = Statement(
    select(func.count()).where(
        turns.c.workspace_id == bindparam("workspace"),
        turns.c.agent_id == bindparam("agent"),
        turns.c.state == QUEUED,
    )
)
_WORK_OF = Statement(
    select(turns.c.agent_id, func.count().label("waiting"), func.max(turns.c.created_at).label("newest"))
    .where(
        turns.c.workspace_id == bindparam("workspace"),
        turns.c.agent_id.in_(bindparam("agents", expanding=True)),
        turns.c.state == QUEUED,
    )
    .group_by(turns.c.agent_id),
    "agents",
)
_WAITING = (
    select(turns.c.agent_id, turns.c.ordinal, turns.c.session_id, turns.c.id)
    .where(turns.c.workspace_id == bindparam("workspace"), turns.c.state == QUEUED)
    .order_by(turns.c.agent_id, turns.c.ordinal)
)
_WAITING_OF_ALL = Statement(
    _WAITING.where(turns.c.agent_id.in_(bindparam("agents", expanding=True))).limit(_CHUNK), "agents"
)
_WAITING_OF_ONE = Statement(
    _WAITING.where(turns.c.agent_id == bindparam("agent"), turns.c.ordinal > bindparam("after")).limit(_CHUNK)
)
_BUSY = Statement(
    select(sessions.c.id).where(
        sessions.c.workspace_id == bindparam("workspace"),
        sessions.c.id.in_(bindparam("ids", expanding=True)),
        sessions.c.running_turn_id != "",
    ),
    "ids",
)
_WITH_QUEUE = Statement(
    select(turns.c.agent_id)
    .where(
        turns.c.workspace_id == bindparam("workspace"),
        turns.c.agent_id.in_(bindparam("agents", expanding=True)),
        turns.c.state == QUEUED,
    )
    .distinct(),
    "agents",
)
_READY = Statement(
    select(turns.c.agent_id)
    .join(
        sessions,
        and_(sessions.c.workspace_id == turns.c.workspace_id, sessions.c.id == turns.c.session_id),
    )
    .where(
        turns.c.workspace_id == bindparam("workspace"),
        turns.c.agent_id.in_(bindparam("agents", expanding=True)),
        turns.c.state == QUEUED,
        sessions.c.running_turn_id == EMPTY,
    )
    .distinct(),
    "agents",
)
_RUNNING_OF = Statement(
    select(turns).where(
        turns.c.workspace_id == bindparam("workspace"),
        turns.c.agent_id == bindparam("agent"),
        turns.c.state == RUNNING,
    )
)


class Waits(NamedTuple):
    """How many turns of an agent are queued, and when the newest of them was made."""

    turns: int
    newest: float


def work_of(connection: Connection, workspace_id: str, agent_ids: Sequence[str]) -> dict[str, Waits]:
    """Return what waits for each of these agents that has something waiting."""
    rows = _WORK_OF.all(connection, {"workspace": workspace_id, "agents": agent_ids})
    return {row.agent_id: Waits(row.waiting, row.newest) for row in rows}


def count_queued(connection: Connection, workspace_id: str, agent_id: str) -> int:
    """Return how many turns of an agent are queued."""
    return int(_COUNT_QUEUED.scalars(connection, {"workspace": workspace_id, "agent": agent_id})[0])


def with_queue(connection: Connection, agents: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return those of the agents, given by (workspace, id), that have queued turns."""
    return _agents(_WITH_QUEUE, connection, agents)


def waiting(
    connection: Connection, agents: set[tuple[str, str]]
) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """Return those of the agents that have queued turns, and those that have one in a free session."""
    found = with_queue(connection, agents)
    return found, _agents(_READY, connection, found)


def _agents(
    statement: Statement, connection: Connection, agents: set[tuple[str, str]]
) -> set[tuple[str, str]]:
    return {
        (workspace_id, agent_id)
        for workspace_id, ids in grouped(agents).items()
        for agent_id in statement.scalars(connection, {"workspace": workspace_id, "agents": ids})
    }


def queued_of(connection: Connection, workspace_id: str, agent_id: str, most: int) -> Sequence[Record]:
    """Return an agent's queued turns, oldest first."""
    values = {"workspace": workspace_id, "agent": agent_id, "most": most}
    return _QUEUED_OF.all(connection, values)


def next_of(
    connection: Connection, workspace_id: str, room: Mapping[str, int]
) -> tuple[dict[str, list[Record]], set[str]]:
    """Return the oldest queued turn of each free session, oldest first, for agents with so much room.

    And the sessions in which more than that waits, as far as the queues were looked at.
    """
    crowded: set[str] = set()
    values = {"workspace": workspace_id, "agents": list(room)}
    waiting = _WAITING_OF_ALL.all(connection, values)
    if len(waiting) < _CHUNK:
        chosen = _choose(connection, workspace_id, waiting, dict(room), crowded)
    else:
        # Long queues are read by themselves, as far as there is room.
        chosen = [
            turn_id
            for agent_id, most in room.items()
            for turn_id in _choose_of(connection, workspace_id, agent_id, most, crowded)
        ]
    rows = find(connection, {(workspace_id, turn_id) for turn_id in chosen})
    found: dict[str, list[Record]] = {}
    for row in sorted(rows.values(), key=lambda row: row.ordinal):
        found.setdefault(row.agent_id, []).append(row)
    return found, crowded


def _choose_of(
    connection: Connection, workspace_id: str, agent_id: str, most: int, crowded: set[str]
) -> list[str]:
    values = {"workspace": workspace_id, "agent": agent_id}
    seen: set[str] = set()
    chosen: list[str] = []
    after = 0
    while len(chosen) < most:
        waiting = _WAITING_OF_ONE.all(connection, {**values, "after": after})
        fresh = [row for row in waiting if row.session_id not in seen]
        crowded |= seen & {row.session_id for row in waiting}
        chosen += _choose(connection, workspace_id, fresh, {agent_id: most - len(chosen)}, crowded)
        seen.update(row.session_id for row in fresh)
        if len(waiting) < _CHUNK:
            break
        after = waiting[-1].ordinal
    return chosen


def _choose(
    connection: Connection,
    workspace_id: str,
    waiting: Sequence[Record],
    room: dict[str, int],
    crowded: set[str],
) -> list[str]:
    """Return the ids of the first turn of each session in which none runs, as far as there is room."""
    oldest: dict[str, Record] = {}
    for row in waiting:
        if oldest.setdefault(row.session_id, row) is not row:
            crowded.add(row.session_id)
    if not oldest:
        return []
    busy = set(_BUSY.scalars(connection, {"workspace": workspace_id, "ids": list(oldest)}))
    chosen = []
    for session_id, row in oldest.items():
        if session_id not in busy and room[row.agent_id] > 0:
            room[row.agent_id] -= 1
            chosen.append(row.id)
    return chosen


def running_of(connection: Connection, workspace_id: str, agent_id: str) -> Sequence[Record]:
    """Return an agent's running turns."""
    return _RUNNING_OF.all(connection, {"workspace": workspace_id, "agent": agent_id})


def deepest_ended(connection: Connection, workspace_id: str, agent_id: str, since: float) -> Record | None:
    """Return the deepest of the turns that an agent ran and that ended at `since` or later."""
    query = (
        select(turns)
        .where(
            turns.c.workspace_id == workspace_id,
            turns.c.ended_at >= since,
            turns.c.agent_id == agent_id,
            turns.c.started_at.is_not(None),
        )
        .order_by(turns.c.depth.desc(), turns.c.ordinal.desc())
        .limit(1)
    )
    return connection.execute(query).first()


def find(connection: Connection, keys: set[tuple[str, str]]) -> dict[tuple[str, str], Record]:
    """Return turns by (workspace, id)."""
    return by_id(connection, turns, keys)


def newest_in(
    connection: Connection, workspace_id: str, session_id: str, caused_by: str = ""
) -> Record | None:
    """Return the newest turn of a session, or the newest that somebody caused."""
    query = _IN_SESSION.limit(1).where(
        deliveries.c.workspace_id == workspace_id, deliveries.c.session_id == session_id
    )
    if caused_by:
        query = query.where(turns.c.caused_by_id == caused_by)
    return connection.execute(query).first()


def of_session(
    connection: Connection, workspace_id: str, session_id: str, before: int, most: int
) -> list[Record]:
    """Return the newest turns of a session; `position` is what `before` goes by."""
    query = _IN_SESSION.limit(most).where(
        deliveries.c.workspace_id == workspace_id,
        deliveries.c.session_id == session_id,
        deliveries.c.ordinal < before,
    )
    return list(connection.execute(query).all())


# Each turn serves a delivery, and those are kept in the order of their session.
_IN_SESSION = (
    select(turns, deliveries.c.ordinal.label("position"))
    .select_from(deliveries)
    .join(turns, and_(turns.c.workspace_id == deliveries.c.workspace_id, turns.c.id == deliveries.c.turn_id))
    .where(deliveries.c.session_id != EMPTY)
    .order_by(deliveries.c.ordinal.desc())
)
