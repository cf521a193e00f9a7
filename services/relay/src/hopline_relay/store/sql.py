"""Statements that run often: compiled once, then handed to the driver as they are.

SQLAlchemy writes them, so that they are the dialect's own; going through its execution for each call costs
more than the statement itself. Rows come back as named tuples.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias, cast

from sqlalchemy import Connection, Dialect, Table
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql import Executable, Select

Record: TypeAlias = Any
"""A row; its attributes are the names of the columns."""
Values = Mapping[str, Any]

_PLACEHOLDERS: Final = {"qmark": "?", "format": "%s"}


class _Compiled(NamedTuple):
    sql: str
    names: tuple[str, ...]
    fixed: Values
    expanding: str  # the one parameter that stands for a list; empty for none


class Statement:
    """One statement. Values are given by the names of its bound parameters; one of them may be a list."""

    def __init__(self, statement: Any, expanding: str = "") -> None:
        self._statement: Executable = statement
        self._expanding = expanding
        self._make: Callable[[Any], Record] = tuple
        if isinstance(statement, Select) or (statement.is_dml and statement._returning):
            names = [column.name for column in statement.exported_columns]
            self._make = cast("Any", namedtuple)("Record", names)._make

    def all(self, connection: Connection, values: Values) -> list[Record]:
        """Return all rows."""
        cursor = self._execute(connection, values)
        rows = list(map(self._make, cursor.fetchall()))
        cursor.close()
        return rows

    def one(self, connection: Connection, values: Values) -> Record | None:
        """Return the first row, or None."""
        cursor = self._execute(connection, values)
        row = cursor.fetchone()
        cursor.close()
        return None if row is None else self._make(row)

    def scalars(self, connection: Connection, values: Values) -> list[Any]:
        """Return the first column of all rows."""
        cursor = self._execute(connection, values)
        found = [row[0] for row in cursor.fetchall()]
        cursor.close()
        return found

    def run(self, connection: Connection, values: Values) -> int:
        """Run it, and return how many rows it changed."""
        cursor = self._execute(connection, values)
        count = int(cursor.rowcount)
        cursor.close()
        return count

    def many(self, connection: Connection, rows: Sequence[Values]) -> None:
        """Run it for each of many values."""
        if not rows:
            return
        compiled = _compile(self, connection.dialect)
        fixed, names = compiled.fixed, compiled.names
        parameters = [tuple([row[name] if name in row else fixed[name] for name in names]) for row in rows]
        with driver(connection, compiled.sql) as cursor:
            cursor.executemany(compiled.sql, parameters)

    def _execute(self, connection: Connection, values: Values) -> Any:
        compiled = _compile(self, connection.dialect)
        sql = compiled.sql
        parameters: list[Any] = []
        listed = _padded(values[compiled.expanding]) if compiled.expanding else ()
        for name in compiled.names:
            if name == compiled.expanding:
                parameters.extend(listed)
            else:
                parameters.append(values[name] if name in values else compiled.fixed[name])
        if compiled.expanding:
            sql = sql.replace(_LIST, _placeholders(connection.dialect, len(listed)))
        with driver(connection, sql) as cursor:
            cursor.execute(sql, parameters)
        return cursor

    def compiled(self, dialect: Dialect) -> _Compiled:
        """Return the statement in the dialect's own words."""
        compiled = self._statement.compile(dialect=dialect)  # type: ignore[attr-defined] # every statement can
        sql = str(compiled)
        if self._expanding:
            sql = sql.replace(f"(__[POSTCOMPILE_{self._expanding}])", _LIST)
        return _Compiled(sql, tuple(compiled.positiontup), compiled.params, self._expanding)


_LIST: Final = "(__LIST__)"


@lru_cache(maxsize=512)
def _compile(statement: Statement, dialect: Dialect) -> _Compiled:
    return statement.compiled(dialect)


def _padded(values: Sequence[Any]) -> Sequence[Any]:
    """Repeat the last value up to a power of two: the driver then prepares a few lengths, not each."""
    missing = (1 << (len(values) - 1).bit_length()) - len(values) if values else 0
    return [*values, *[values[-1]] * missing] if missing else values


@lru_cache(maxsize=64)
def _placeholders(dialect: Dialect, count: int) -> str:
    # An empty list matches nothing.
    return f"({', '.join([_PLACEHOLDERS[dialect.paramstyle]] * count) if count else 'NULL'})"


@contextmanager
def driver(connection: Connection, sql: str) -> Iterator[Any]:
    """Give the driver's cursor, within the connection's transaction; errors come out as SQLAlchemy's."""
    if not connection.in_transaction():
        connection.begin()
    dbapi: Any = connection.dialect.dbapi
    try:
        yield connection.connection.cursor()
    except dbapi.Error as error:
        raise DBAPIError.instance(sql, None, error, dbapi.Error, dialect=connection.dialect) from error


@lru_cache(maxsize=64)
def _row_of(table: Table) -> tuple[Callable[[Any], Record], Callable[[Values], tuple[Any, ...]]]:
    names = [column.name for column in table.columns]
    return cast("Any", namedtuple)("Record", names)._make, itemgetter(*names)


def record(table: Table, row: Values) -> Record:
    """Return a row that is written as it will be read."""
    make, values = _row_of(table)
    return make(values(row))


# --- inserts ---------------------------------------------------------------------------------------


class _Insert(NamedTuple):
    sql: str
    values: Callable[[Values], tuple[Any, ...]]


@lru_cache(maxsize=256)
def _insert(table: Table, dialect: Dialect) -> _Insert:
    compiled = table.insert().compile(dialect=dialect, column_keys=[column.name for column in table.columns])
    return _Insert(str(compiled), itemgetter(*(compiled.positiontup or ())))


def insert(connection: Connection, table: Table, rows: Sequence[Values]) -> None:
    """Insert rows; each must give every column."""
    if rows:
        sql, values = _insert(table, connection.dialect)
        with driver(connection, sql) as cursor:
            cursor.executemany(sql, [values(row) for row in rows])
