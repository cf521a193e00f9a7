"""What relays on one PostgreSQL tell each other: who lives, whose tunnels are where, what has come about.

None of it takes the locks of the record's transactions: a process that holds those up must not look dead.
All moments are the database's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from sqlalchemy import Connection, delete, func, insert, select, update

from hopline_relay.store.schema import instances, open_tunnels, turns

Agent = tuple[str, str]
"""(workspace id, agent id)"""

NOW: Final = func.extract("epoch", func.clock_timestamp())


class Whereabouts(NamedTuple):
    """What a relay says of an agent: places at its tunnels, whether they hold turns, and their isolation.

    Without places: it pulls there.
    """

    places: int
    held: int
    isolation: str


class Lost(NamedTuple):
    """A turn that is no longer what a worker has in hand, and why."""

    turn_id: str
    attempt: int
    epoch: int
    reason: str


def begin(connection: Connection, instance_id: str, started_at: float) -> None:
    """Write down a relay that begins."""
    values = {"id": instance_id, "started_at": started_at, "seen_at": NOW}
    connection.execute(insert(instances).values(values))


def beat(connection: Connection, instance_id: str, tunnels: int, address: str) -> bool:
    """Say that a relay lives; False: others hold it for dead."""
    done = connection.execute(
        update(instances)
        .where(instances.c.id == instance_id, instances.c.ended_at.is_(None))
        .values(seen_at=NOW, tunnels=tunnels, address=address)
    )
    return done.rowcount == 1


def fence(connection: Connection, seconds: float) -> list[str]:
    """Declare dead whoever has not been seen for so long; returns them.

    One that is in the middle of a commit is left for later: it lives, or its transaction ends soon.
    """
    silent = (
        select(instances.c.id)
        .where(instances.c.ended_at.is_(None), func.coalesce(instances.c.seen_at, 0.0) < NOW - seconds)
        .with_for_update(skip_locked=True)
    )
    ids = list(connection.execute(silent).scalars())
    if ids:
        connection.execute(update(instances).where(instances.c.id.in_(ids)).values(ended_at=NOW))
        connection.execute(delete(open_tunnels).where(open_tunnels.c.instance_id.in_(ids)))
    return ids


def others(connection: Connection, instance_id: str) -> dict[str, tuple[int, str]]:
    """Return the relays that live: how often what they say of their tunnels has changed, and addresses."""
    query = select(instances.c.id, instances.c.tunnels, instances.c.address).where(
        instances.c.ended_at.is_(None), instances.c.id != instance_id
    )
    return {row.id: (row.tunnels, row.address) for row in connection.execute(query)}


def dead(connection: Connection) -> set[str]:
    """Return the relays that are no more and have turns left that they started."""
    query = (
        select(turns.c.instance_id)
        .join(instances, instances.c.id == turns.c.instance_id)
        .where(turns.c.due_at.is_not(None), turns.c.state == "running", instances.c.ended_at.is_not(None))
        .distinct()
    )
    return set(connection.execute(query).scalars())


def tell(connection: Connection, instance_id: str, found: Mapping[Agent, Whereabouts | None]) -> None:
    """Write down what has changed of the agents at a relay; None: it is there no longer."""
    connection.exec_driver_sql(
        "DELETE FROM open_tunnels WHERE instance_id = %s AND (workspace_id, agent_id) IN"
        " (SELECT * FROM unnest(%s::text[], %s::text[]))",
        (instance_id, [key[0] for key in found], [key[1] for key in found]),
    )
    rows = [
        {"workspace_id": key[0], "agent_id": key[1], "instance_id": instance_id, **each._asdict()}
        for key, each in found.items()
        if each is not None
    ]
    if rows:
        connection.execute(insert(open_tunnels), rows)


def told(connection: Connection, instance_ids: Sequence[str]) -> dict[str, dict[Agent, Whereabouts]]:
    """Return what relays say of agents."""
    query = select(open_tunnels).where(open_tunnels.c.instance_id.in_(instance_ids))
    found: dict[str, dict[Agent, Whereabouts]] = {each: {} for each in instance_ids}
    for row in connection.execute(query):
        found[row.instance_id][row.workspace_id, row.agent_id] = Whereabouts(
            row.places, row.held, row.isolation
        )
    return found


_WITH_WORK: Final = (
    "SELECT k.w, k.i FROM unnest(%s::text[], %s::text[]) AS k(w, i) WHERE EXISTS (SELECT 1 FROM turns t"
    " WHERE t.workspace_id = k.w AND t.agent_id = k.i AND t.state = 'queued')"
)
_ENDED: Final = (
    "SELECT k.w, k.i FROM unnest(%s::text[], %s::text[]) AS k(w, i)"
    " LEFT JOIN debts d ON d.workspace_id = k.w AND d.turn_id = k.i"
    " LEFT JOIN turns t ON t.workspace_id = k.w AND t.id = k.i"
    " LEFT JOIN escalations e ON e.workspace_id = k.w AND e.id = k.i"
    " WHERE d.state <> 'open' OR e.state <> 'pending'"
    " OR (d.turn_id IS NULL AND t.state NOT IN ('queued', 'running'))"
)


def with_work(connection: Connection, agents: Sequence[Agent]) -> set[Agent]:
    """Return those of the agents for whom turns are queued."""
    return _those(connection, agents, _WITH_WORK)


def ended(connection: Connection, keys: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return those of the turns, and of the questions to owners, whose outcome is known."""
    return _those(connection, keys, _ENDED)


def _those(connection: Connection, keys: Sequence[tuple[str, str]], query: str) -> set[tuple[str, str]]:
    if not keys:
        return set()
    rows = connection.exec_driver_sql(query, ([key[0] for key in keys], [key[1] for key in keys]))
    return {(row[0], row[1]) for row in rows}


def lost(connection: Connection, held: Sequence[tuple[str, str, int, int]]) -> list[Lost]:
    """Return those turns that no longer run as (workspace, turn, attempt, epoch) says, and why they ended."""
    if not held:
        return []
    rows = connection.exec_driver_sql(
        "SELECT k.i, k.a, k.e, coalesce(t.error_message, '') FROM"
        " unnest(%s::text[], %s::text[], %s::int[], %s::bigint[]) AS k(w, i, a, e)"
        " LEFT JOIN turns t ON t.workspace_id = k.w AND t.id = k.i"
        " WHERE t.id IS NULL OR t.state <> 'running' OR t.attempt <> k.a OR t.epoch <> k.e",
        tuple(list(column) for column in zip(*held, strict=True)),
    )
    return [Lost(*row) for row in rows]
