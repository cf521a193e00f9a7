"""Schedules and webhooks as those who sent something: in whose name they spoke, and their end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from sqlalchemy import Connection, bindparam, delete, select

from hopline_relay.domain.sources import SCHEDULE, SOURCES, WEBHOOK
from hopline_relay.store.schema import incoming_webhooks, schedules
from hopline_relay.store.sql import Record, Statement

_TABLES: Final = {SCHEDULE: schedules, WEBHOOK: incoming_webhooks}
_AUTHORS: Final = {
    kind: Statement(
        select(table.c.id, table.c.author_id).where(
            table.c.workspace_id == bindparam("workspace"), table.c.id.in_(bindparam("ids", expanding=True))
        ),
        "ids",
    )
    for kind, table in _TABLES.items()
}


def authors_of(connection: Connection, messages: Iterable[Record]) -> dict[tuple[str, str], str]:
    """Return, by workspace and id, in whose name the schedules and webhooks spoke that sent any of these.

    Costs nothing where none of them did.
    """
    named: dict[tuple[str, str], set[str]] = defaultdict(set)
    for message in messages:
        if message.from_kind in SOURCES:
            named[message.workspace_id, message.from_kind].add(message.from_id)
    return {
        (workspace_id, row.id): row.author_id
        for (workspace_id, kind), ids in named.items()
        for row in _AUTHORS[kind].all(connection, {"workspace": workspace_id, "ids": sorted(ids)})
    }


def agents_with_any(connection: Connection) -> set[tuple[str, str]]:
    """Return the agents, with their workspaces, that have a schedule or a webhook."""
    found = set()
    for table in _TABLES.values():
        query = select(table.c.workspace_id, table.c.agent_id).distinct()
        found |= {(row.workspace_id, row.agent_id) for row in connection.execute(query)}
    return found


def remove_all_of(connection: Connection, workspace_id: str, agent_id: str) -> None:
    """Remove the schedules and webhooks of an agent that is gone."""
    for table in _TABLES.values():
        connection.execute(
            delete(table).where(table.c.workspace_id == workspace_id, table.c.agent_id == agent_id)
        )
