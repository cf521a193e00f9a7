"""What is open right now: how much runs and waits for each agent, and what open turns wait for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import Connection, bindparam, func, select

from hopline_relay.store import escalating, queues
from hopline_relay.store.bulk import by_id
from hopline_relay.store.schema import RUNNING, holds, messages, sessions, turns, waits
from hopline_relay.store.sql import Record, Statement

# So many of what one agent runs are shown; and so many turns of one tree.
MOST_RUNNING: Final = 10
MOST_NODES: Final = 500

_COUNTS: Final = Statement(
    # Of the index alone: at a backlog of many thousands the rows themselves would take the time.
    select(turns.c.agent_id, func.count().label("found"), func.min(turns.c.ordinal).label("first"))
    .where(
        turns.c.workspace_id == bindparam("workspace"),
        turns.c.agent_id.in_(bindparam("agents", expanding=True)),
        turns.c.state == bindparam("state"),
    )
    .group_by(turns.c.agent_id),
    "agents",
)
_SLOTS: Final = Statement(
    select(turns.c.id).where(
        turns.c.workspace_id == bindparam("workspace"),
        turns.c.agent_id.in_(bindparam("agents", expanding=True)),
        turns.c.state == RUNNING,
        turns.c.slot.is_(True),
    ),
    "agents",
)
_FIRST: Final = Statement(
    select(turns)
    .where(
        turns.c.workspace_id == bindparam("workspace"),
        turns.c.agent_id == bindparam("agent"),
        turns.c.state == bindparam("state"),
    )
    .order_by(turns.c.ordinal)
    .limit(bindparam("most"))
)
_WAITS: Final = Statement(
    select(waits).where(waits.c.workspace_id == bindparam("workspace"), waits.c.waiter_turn_id != "")
)
_TREE: Final = Statement(
    select(turns)
    .where(turns.c.workspace_id == bindparam("workspace"), turns.c.root_id == bindparam("root"))
    .order_by(turns.c.ordinal)
    .limit(bindparam("most"))
)


@dataclass(frozen=True, slots=True)
class Count:
    """So many, and where the first of them stands."""

    found: int
    first: int


@dataclass(frozen=True, slots=True)
class Open:
    """What open turns wait for, as the record has it."""

    # By the turn that waits: what for.
    waits: dict[str, Record] = field(default_factory=dict)
    escalations: dict[str, Record] = field(default_factory=dict)
    # By session: the turn that runs in it.
    busy: dict[str, str] = field(default_factory=dict)
    holds: dict[str, Record] = field(default_factory=dict)


def counts(
    connection: Connection, workspace_id: str, agent_ids: Sequence[str], state: str
) -> dict[str, Count]:
    """Return how many turns each of the agents has in a state, for those that have some."""
    if not agent_ids:
        return {}
    rows = _COUNTS.all(connection, {"workspace": workspace_id, "agents": agent_ids, "state": state})
    return {row.agent_id: Count(row.found, row.first) for row in rows}


def slots_used(connection: Connection, workspace_id: str, agent_ids: Sequence[str]) -> int:
    """Return how many run slots are taken: a turn that waits has given its own back."""
    if not agent_ids:
        return 0
    holding = _SLOTS.scalars(connection, {"workspace": workspace_id, "agents": agent_ids})
    waiting = {row.waiter_turn_id for row in _WAITS.all(connection, {"workspace": workspace_id})}
    return sum(turn_id not in waiting for turn_id in holding)


def first(
    connection: Connection, workspace_id: str, agent_id: str, state: str, most: int
) -> Sequence[Record]:
    """Return the oldest turns of an agent in a state."""
    values = {"workspace": workspace_id, "agent": agent_id, "state": state, "most": most}
    return _FIRST.all(connection, values)


def tree(connection: Connection, workspace_id: str, root_id: str) -> Sequence[Record]:
    """Return the turns of a root in order; one more than is shown, where there are more."""
    return _TREE.all(connection, {"workspace": workspace_id, "root": root_id, "most": MOST_NODES + 1})


def excerpts(connection: Connection, rows: Sequence[Record]) -> dict[str, str]:
    """Return the texts that turns were asked with, by message."""
    found = by_id(
        connection, messages, {(row.workspace_id, row.message_id) for row in rows if row.message_id}
    )
    return {key[1]: row.body for key, row in found.items()}


def open_of(connection: Connection, workspace_id: str, rows: Sequence[Record]) -> Open:
    """Return what these turns wait for."""
    going = [row for row in rows if row.state in ("queued", "running")]
    asked_as = {row.batch_id or row.id for row in going if row.state == "running"}
    keys = {(workspace_id, row.id) for row in rows}
    return Open(
        waits={row.waiter_turn_id: row for row in _WAITS.all(connection, {"workspace": workspace_id})},
        escalations={
            row.turn_id: row
            for row in (
                escalating.pending_of_turns(connection, workspace_id, sorted(asked_as)) if asked_as else ()
            )
        },
        busy={
            key[1]: row.running_turn_id
            for key, row in by_id(
                connection, sessions, {(workspace_id, row.session_id) for row in going}
            ).items()
            if row.running_turn_id
        },
        holds={row.turn_id: row for row in _held(connection, keys)},
    )


def _held(connection: Connection, keys: set[tuple[str, str]]) -> Sequence[Record]:
    if not keys:
        return []
    query = select(holds).where(
        holds.c.workspace_id == next(iter(keys))[0], holds.c.turn_id.in_([key[1] for key in keys])
    )
    return connection.execute(query).all()


def turn(connection: Connection, key: tuple[str, str]) -> Record | None:
    """Return a turn."""
    return queues.find(connection, {key}).get(key)
