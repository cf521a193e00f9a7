"""Look-ups by many keys at the price of one statement."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache

from sqlalchemy import Column, Connection, Table, bindparam, select

from hopline_relay.store.sql import Record, Statement


def by_id(
    connection: Connection,
    table: Table,
    keys: Iterable[tuple[str, str]],
    column: Column[str] | None = None,
    *,
    lock: bool = False,
) -> dict[tuple[str, str], Record]:
    """Return the rows whose (workspace id, id) is among `keys`; `column` is another unique one than `id`.

    With `lock` nobody else changes them until the transaction is over.
    """
    named = table.c.id if column is None else column
    found = {}
    for workspace_id, ids in grouped(keys).items():
        query, name = _by_id(table, named, lock), named.name
        for row in query.all(connection, {"workspace": workspace_id, "ids": ids}):
            found[workspace_id, getattr(row, name)] = row
    return found


@lru_cache(maxsize=64)
def _by_id(table: Table, column: Column[str], lock: bool) -> Statement:
    query = select(table).where(
        table.c.workspace_id == bindparam("workspace"), column.in_(bindparam("ids", expanding=True))
    )
    return Statement(query.with_for_update() if lock else query, "ids")


def grouped(keys: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the ids by workspace, without repetitions and empty ones."""
    found: dict[str, set[str]] = defaultdict(set)
    for workspace_id, identifier in keys:
        if identifier:
            found[workspace_id].add(identifier)
    return {workspace_id: sorted(ids) for workspace_id, ids in found.items()}
