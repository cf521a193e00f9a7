"""Inserts of many rows and look-ups by many keys, at the price of one statement."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

from sqlalchemy import Column, Connection, Dialect, Row, Table, bindparam, select

Values = Mapping[str, Any]


class _Insert(NamedTuple):
    sql: str
    values: Callable[[Values], tuple[Any, ...]]
    columns: tuple[str, ...]


@lru_cache(maxsize=256)
def _insert(table: Table, dialect: Dialect) -> _Insert:
    """Compile a table's insert once: going through the compiler for every batch costs more than the rows."""
    compiled = table.insert().compile(dialect=dialect, column_keys=[column.name for column in table.columns])
    columns = tuple(compiled.positiontup or [column.name for column in table.columns])
    return _Insert(str(compiled), itemgetter(*columns), columns)


def insert(connection: Connection, table: Table, rows: Sequence[Values]) -> None:
    """Insert rows; each must give every column."""
    if not rows:
        return
    compiled = _insert(table, connection.dialect)
    if connection.dialect.positional:
        connection.exec_driver_sql(compiled.sql, [compiled.values(row) for row in rows])
    else:
        connection.exec_driver_sql(compiled.sql, [dict(row) for row in rows])


def by_id(
    connection: Connection, table: Table, keys: Iterable[tuple[str, str]], column: Column[str] | None = None
) -> dict[tuple[str, str], Row[Any]]:
    """Return the rows whose (workspace id, id) is among `keys`; `column` is another unique one than `id`."""
    named = table.c.id if column is None else column
    found = {}
    for workspace_id, ids in _grouped(keys).items():
        query = _by_id(table, named)
        for row in connection.execute(query, {"workspace": workspace_id, "ids": ids}):
            found[workspace_id, getattr(row, named.name)] = row
    return found


@lru_cache(maxsize=64)
def _by_id(table: Table, column: Column[str]) -> Any:
    return select(table).where(
        table.c.workspace_id == bindparam("workspace"), column.in_(bindparam("ids", expanding=True))
    )


def _grouped(keys: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    grouped: dict[str, set[str]] = defaultdict(set)
    for workspace_id, identifier in keys:
        if identifier:
            grouped[workspace_id].add(identifier)
    return {workspace_id: sorted(ids) for workspace_id, ids in grouped.items()}
