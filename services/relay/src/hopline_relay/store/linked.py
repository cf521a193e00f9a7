"""Sessions seen from the other end: those they have opened, and what they are to those that opened them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, bindparam, func, select

from hopline_relay.store import children
from hopline_relay.store.schema import EMPTY, OPEN, debts, sessions
from hopline_relay.store.sessions import STANDING, standing_of
from hopline_relay.store.sql import Record, Statement

# So many are shown of each.
MOST: Final = 20

_OF_ONE: Final = (
    sessions.c.workspace_id == bindparam("workspace"),
    sessions.c.opened_by_session_id == bindparam("opener"),
    sessions.c.opened_by_session_id != EMPTY,
)
_NEWEST: Final = Statement(
    select(sessions).where(*_OF_ONE).order_by(sessions.c.ordinal.desc()).limit(bindparam("most"))
)
_COUNT: Final = Statement(select(func.count().label("found")).where(*_OF_ONE))
_OWED: Final = Statement(
    select(debts.c.turn_id).where(
        debts.c.workspace_id == bindparam("workspace"),
        debts.c.turn_id.in_(bindparam("turns", expanding=True)),
        debts.c.state == OPEN,
    ),
    "turns",
)


@dataclass(frozen=True, slots=True)
class Linked:
    """What hangs on a session: the newest that it has opened, and how many in all.

    `child`: what it is as a child, if it is one, and whether it owes a report. `live_children`: of its own.
    `peer_session_id`: the other end of a standing conversation, and the agent that has it.
    """

    count: int
    newest: list[Record]
    child: Record = None
    owes_report: bool = False
    live_children: int = 0
    peer_session_id: str = ""
    peer_id: str = ""


def linked(connection: Connection, workspace_id: str, rows: Sequence[Record]) -> dict[str, Linked]:
    """Return what hangs on each of these sessions."""
    keys = {(workspace_id, row.id) for row in rows}
    found = children.of_sessions(connection, keys)
    turn_ids = [child.turn_id for child in found.values()]
    owing = set(_OWED.scalars(connection, {"workspace": workspace_id, "turns": turn_ids})) if turn_ids else ()
    live = children.live(connection, keys)
    shown = {}
    for row in rows:
        child = found.get((workspace_id, row.id))
        count, newest = _opened(connection, workspace_id, row.id)
        peer_id = _peer(row)
        peer = standing_of(connection, workspace_id, peer_id, row.agent_id) if peer_id else ""
        owes = child is not None and child.turn_id in owing
        shown[row.id] = Linked(count, newest, child, owes, live[workspace_id, row.id], peer, peer_id)
    return shown


def _peer(row: Record) -> str:
    """Return with whom a session is one end of the standing conversation."""
    return str(row.pair.split("/")[1]) if row.pair.endswith(STANDING) else ""


def _opened(connection: Connection, workspace_id: str, session_id: str) -> tuple[int, list[Record]]:
    values = {"workspace": workspace_id, "opener": session_id}
    newest = _NEWEST.all(connection, {**values, "most": MOST})
    count = len(newest) if len(newest) < MOST else int(_COUNT.scalars(connection, values)[0])
    return count, newest
