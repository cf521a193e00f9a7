"""Looking at batches: what waits in a session, and who rides along with a turn that runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from sqlalchemy import Connection, and_, bindparam, func, select

from hopline_relay.domain import batches
from hopline_relay.store.schema import EMPTY, QUEUED, RUNNING, messages, turns
from hopline_relay.store.sql import Record, Statement

# How many turns are looked at together for all sessions of a claim.
_CHUNK: Final = 512

_WAITING = Statement(
    select(turns, (func.length(messages.c.body) + func.length(messages.c.payload)).label("size"))
    .join(
        messages, and_(messages.c.workspace_id == turns.c.workspace_id, messages.c.id == turns.c.message_id)
    )
    .where(
        turns.c.workspace_id == bindparam("workspace"),
        turns.c.agent_id == bindparam("agent"),
        turns.c.state == QUEUED,
        turns.c.session_id.in_(bindparam("sessions", expanding=True)),
    )
    .order_by(turns.c.ordinal)
    .limit(_CHUNK),
    "sessions",
)
_OF_BATCHES = Statement(
    select(turns)
    .where(
        turns.c.workspace_id == bindparam("workspace"),
        turns.c.batch_id.in_(bindparam("batches", expanding=True)),
        turns.c.batch_id != EMPTY,
        turns.c.state == RUNNING,
        turns.c.run_session_id == EMPTY,
    )
    .order_by(turns.c.ordinal),
    "batches",
)


_CANCELED_WITH = Statement(
    select(turns).where(
        turns.c.workspace_id == bindparam("workspace"),
        turns.c.batch_id == bindparam("batch"),
        turns.c.batch_id != EMPTY,
        turns.c.state == "canceled",
        turns.c.run_session_id == EMPTY,
    )
)


def canceled_with(connection: Connection, row: Record) -> Sequence[Record]:
    """Return what was cancelled of the batch that a turn led."""
    return _CANCELED_WITH.all(connection, {"workspace": row.workspace_id, "batch": row.id})


def waiting_in(
    connection: Connection, workspace_id: str, agent_id: str, session_ids: Sequence[str]
) -> dict[str, list[Record]]:
    """Return what waits in an agent's sessions, oldest first, with the `size` of each message."""
    values = {"workspace": workspace_id, "agent": agent_id, "sessions": list(session_ids)}
    found: dict[str, list[Record]] = {}
    for row in _WAITING.all(connection, values):
        found.setdefault(row.session_id, []).append(row)
    return found


def beside(connection: Connection, rows: Iterable[Record]) -> list[Record]:
    """Return the turns that run in the batches of these, which are as they were seen, themselves left out.

    Costs nothing where none of them is in one.
    """
    grouped: dict[str, set[str]] = {}
    seen = set()
    for row in rows:
        seen.add(row.id)
        if batches.leads(row) or batches.rides(row):
            grouped.setdefault(row.workspace_id, set()).add(row.batch_id)
    return [
        row
        for workspace_id, ids in grouped.items()
        for row in _OF_BATCHES.all(connection, {"workspace": workspace_id, "batches": sorted(ids)})
        if row.id not in seen
    ]
