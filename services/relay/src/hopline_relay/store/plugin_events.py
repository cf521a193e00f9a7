"""The rows of what plugins are still to be told of, and of which revision they were told last."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Connection, bindparam, delete, func, select, update

from hopline_relay.domain.values import sibling
from hopline_relay.store.schema import plugin_events, plugin_handed, plugin_revisions
from hopline_relay.store.sql import Record, Statement, insert

if TYPE_CHECKING:
    from hopline_relay.store.book import Book
    from hopline_relay.store.sessions import SessionWish

Key = tuple[str, str]
"""(workspace id, plugin id)"""

# The kinds.
INSTALLED: Final = "plugin_installed"
UPDATED: Final = "plugin_updated"
SESSION_STARTED: Final = "session_started"

_OF_PLUGIN = (
    plugin_events.c.workspace_id == bindparam("workspace"),
    plugin_events.c.plugin_id == bindparam("plugin"),
)
_THIS = (*_OF_PLUGIN, plugin_events.c.ordinal == bindparam("number"))
_REMOVE = Statement(delete(plugin_events).where(*_THIS))
_PUT_OFF = Statement(
    update(plugin_events)
    .where(*_THIS)
    .values(attempts=bindparam("new_attempts"), due_at=bindparam("at"), problem=bindparam("why"))
)
_CLAIM = Statement(
    update(plugin_events)
    .where(*_THIS, plugin_events.c.due_at == bindparam("seen"))
    .values(due_at=bindparam("at"))
)
_FIRST = Statement(select(plugin_events).where(*_OF_PLUGIN).order_by(plugin_events.c.ordinal).limit(1))
_COUNT = Statement(select(func.count()).select_from(plugin_events).where(*_OF_PLUGIN))
_OLDEST = Statement(
    select(plugin_events.c.ordinal)
    .where(*_OF_PLUGIN, plugin_events.c.kind == SESSION_STARTED)
    .order_by(plugin_events.c.ordinal)
    .limit(bindparam("most"))
)
_REVISION = Statement(
    select(plugin_revisions).where(
        plugin_revisions.c.workspace_id == bindparam("workspace"),
        plugin_revisions.c.plugin_id == bindparam("plugin"),
    )
)
_PLUGIN = Statement(
    delete(plugin_revisions).where(
        plugin_revisions.c.workspace_id == bindparam("workspace"),
        plugin_revisions.c.plugin_id == bindparam("plugin"),
    )
)


def add(book: Book, key: Key, event_id: str, kind: str, body: Mapping[str, Any]) -> None:
    """Have a plugin told of something."""
    insert(book.connection, plugin_events, [_row(book, key, event_id, kind, body)])


def sessions_started(book: Book, wishes: Iterable[SessionWish]) -> None:
    """Have plugins told of sessions that were opened just now, each of those that its wish names."""
    rows = [
        _row(
            book,
            (wish.workspace_id, plugin_id),
            sibling("evt", wish.id),
            SESSION_STARTED,
            {
                "session_id": wish.id,
                "agent_id": wish.agent_id,
                "channel": wish.channel,
                "depth": wish.depth,
                "root_id": wish.root_id,
            },
        )
        for wish in wishes
        for plugin_id in wish.tells
    ]
    insert(book.connection, plugin_events, rows)


def _row(book: Book, key: Key, event_id: str, kind: str, body: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "workspace_id": key[0],
        "plugin_id": key[1],
        "ordinal": book.ordinal(key[0]),
        "id": event_id,
        "kind": kind,
        "body": json.dumps(body, ensure_ascii=False),
        "attempts": 0,
        "problem": "",
        "created_at": book.now,
        "due_at": book.now,
    }


def firsts(connection: Connection) -> Sequence[Record]:
    """Return of each plugin the event that it is to be told next; known by what it was told last."""
    keys = connection.execute(select(plugin_revisions.c.workspace_id, plugin_revisions.c.plugin_id)).all()
    found = (_FIRST.one(connection, {"workspace": key[0], "plugin": key[1]}) for key in keys)
    return [row for row in found if row is not None]


def remove(connection: Connection, row: Record) -> bool:
    """Forget one: it was taken, or is given up. False: somebody else has."""
    return _REMOVE.run(connection, _values(row)) == 1


def put_off(connection: Connection, row: Record, at: float, problem: str) -> None:
    """Count an attempt, and have it told again later."""
    more = {"new_attempts": row.attempts + 1, "at": at, "why": problem}
    _PUT_OFF.run(connection, {**_values(row), **more})


def claim(connection: Connection, row: Record, until: float) -> bool:
    """Have nobody else tell what was seen as due until then; False: somebody else has claimed it."""
    return _CLAIM.run(connection, {**_values(row), "seen": row.due_at, "at": until}) == 1


def drop_oldest(connection: Connection, row: Record, most: int) -> int:
    """Let no more than `most` wait for a plugin: the oldest of the sessions go. Returns how many."""
    values = {"workspace": row.workspace_id, "plugin": row.plugin_id}
    over = _COUNT.scalars(connection, values)[0] - most
    if over <= 0:
        return 0
    old = _OLDEST.scalars(connection, {**values, "most": over})
    _REMOVE.many(connection, [{**values, "number": ordinal} for ordinal in old])
    return len(old)


def _values(row: Record) -> dict[str, Any]:
    return {"workspace": row.workspace_id, "plugin": row.plugin_id, "number": row.ordinal}


# --- revisions -------------------------------------------------------------------------------------


def revision(connection: Connection, key: Key) -> Record | None:
    """Return of which revision a plugin was told last; None for none."""
    return _REVISION.one(connection, {"workspace": key[0], "plugin": key[1]})


def set_revision(connection: Connection, key: Key, number: int, version: str) -> None:
    """Note of which revision it is told."""
    _PLUGIN.run(connection, {"workspace": key[0], "plugin": key[1]})
    row = {"workspace_id": key[0], "plugin_id": key[1], "revision": number, "version": version}
    insert(connection, plugin_revisions, [row])


def known(connection: Connection) -> set[Key]:
    """Return every plugin that was ever told of itself."""
    query = select(plugin_revisions.c.workspace_id, plugin_revisions.c.plugin_id)
    return {(row.workspace_id, row.plugin_id) for row in connection.execute(query)}


def forget(connection: Connection, keys: Collection[Key]) -> None:
    """Forget plugins that are no more, with all that they were handed and were to be told."""
    for workspace_id, plugin_id in keys:
        for table in (plugin_revisions, plugin_events, plugin_handed):
            where = (table.c.workspace_id == workspace_id, table.c.plugin_id == plugin_id)
            connection.execute(delete(table).where(*where))
