"""Sessions seen from the other end: those that a session has opened on other agents."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, bindparam, func, select

from hopline_relay.store.schema import EMPTY, sessions
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


@dataclass(frozen=True, slots=True)
class Opened:
    """What a session has opened: the newest, and how many in all."""

    count: int
    newest: list[Record]


def opened_by(connection: Connection, workspace_id: str, session_ids: Iterable[str]) -> dict[str, Opened]:
    """Return what each of these sessions has opened."""
    return {session_id: _opened(connection, workspace_id, session_id) for session_id in session_ids}


def _opened(connection: Connection, workspace_id: str, session_id: str) -> Opened:
    values = {"workspace": workspace_id, "opener": session_id}
    newest = _NEWEST.all(connection, {**values, "most": MOST})
    count = len(newest) if len(newest) < MOST else int(_COUNT.scalars(connection, values)[0])
    return Opened(count, newest)
