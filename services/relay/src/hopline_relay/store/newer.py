"""How many newer messages of the same sender wait behind one that is shown to its recipient."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from sqlalchemy import Connection, bindparam, select

from hopline_relay.store.schema import QUEUED, turns
from hopline_relay.store.sql import Record, Statement

# More are not counted: that it is far behind is said by then.
MOST_NEWER: Final = 100

_QUEUED = (
    select(turns.c.session_id, turns.c.caused_by_id, turns.c.ordinal)
    .where(
        turns.c.workspace_id == bindparam("workspace"),
        turns.c.agent_id == bindparam("agent"),
        turns.c.state == QUEUED,
    )
    .order_by(turns.c.ordinal)
    .limit(bindparam("most"))
)
_IN_SESSIONS = Statement(
    _QUEUED.where(turns.c.session_id.in_(bindparam("sessions", expanding=True))), "sessions"
)
_AFTER = Statement(_QUEUED.where(turns.c.ordinal > bindparam("after")))


class Waiting(Protocol):
    """A queued turn, as far as this goes."""

    @property
    def caused_by_id(self) -> str:
        """Who sent its message."""
        ...

    @property
    def ordinal(self) -> int:
        """Its place in the queue."""
        ...


def in_sessions(
    connection: Connection, workspace_id: str, agent_id: str, session_ids: Sequence[str]
) -> list[Record]:
    """Return what waits in an agent's sessions."""
    values = {"workspace": workspace_id, "agent": agent_id, "sessions": list(session_ids)}
    return _IN_SESSIONS.all(connection, {**values, "most": MOST_NEWER * len(session_ids)})


def after(connection: Connection, workspace_id: str, agent_id: str, ordinal: int) -> list[Record]:
    """Return what waits behind a place of an agent's queue."""
    values = {"workspace": workspace_id, "agent": agent_id, "after": ordinal, "most": MOST_NEWER}
    return _AFTER.all(connection, values)


def count(turn: Waiting, queue: Iterable[Waiting]) -> int:
    """Return how many of a queue are newer and of the same sender."""
    found = sum(each.caused_by_id == turn.caused_by_id and each.ordinal > turn.ordinal for each in queue)
    return min(found, MOST_NEWER)
