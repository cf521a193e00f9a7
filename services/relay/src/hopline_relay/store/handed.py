"""The rows of what plugins were handed, so that it outlives the process."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, bindparam, delete, select

from hopline_relay.store.schema import plugin_handed
from hopline_relay.store.sql import Statement, insert

Entry = tuple[str, str, str, str]
"""(workspace id, plugin id, kind, value)"""

_REMOVE = Statement(
    delete(plugin_handed).where(
        plugin_handed.c.workspace_id == bindparam("workspace"),
        plugin_handed.c.plugin_id == bindparam("plugin"),
        plugin_handed.c.kind == bindparam("what"),
        plugin_handed.c.value == bindparam("which"),
    )
)
_PRUNE = Statement(delete(plugin_handed).where(plugin_handed.c.until <= bindparam("now")))


def live(connection: Connection, now: float) -> list[tuple[Entry, float]]:
    """Return what still counts, and until when; the earliest first."""
    query = select(plugin_handed).where(plugin_handed.c.until > now).order_by(plugin_handed.c.until)
    return [
        ((row.workspace_id, row.plugin_id, row.kind, row.value), row.until)
        for row in connection.execute(query)
    ]


def put(connection: Connection, entries: Mapping[Entry, float]) -> None:
    """Write entries in the place of what was known of them."""
    names = ("workspace", "plugin", "what", "which")
    _REMOVE.many(connection, [dict(zip(names, entry, strict=True)) for entry in entries])
    rows = [
        {"workspace_id": entry[0], "plugin_id": entry[1], "kind": entry[2], "value": entry[3], "until": until}
        for entry, until in entries.items()
    ]
    insert(connection, plugin_handed, rows)


def prune(connection: Connection, now: float) -> None:
    """Delete what counts no more."""
    _PRUNE.run(connection, {"now": now})
