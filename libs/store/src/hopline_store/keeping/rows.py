"""Tables as lines of JSON, from one kind of database into another.

A line is a row; the first one names the columns and how their values are written: bytes as base64, JSON as
the text that it is in the database, everything else as itself.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, Final

from sqlalchemy import (
    JSON,
    Column,
    Connection,
    LargeBinary,
    MetaData,
    Table,
    Text,
    bindparam,
    cast,
    delete,
    func,
    insert,
    select,
)

from hopline_store.keeping.progress import Progress
from hopline_store.records import Records

_BATCH: Final = 1_000
_NOT_OURS: Final = frozenset({"alembic_version", "sqlite_sequence"})


def tables_of(conn: Connection, records: Records) -> list[Table]:
    """Return the tables that are carried along, those first that others refer to."""
    left = (*_NOT_OURS, *records.rebuilt)
    # SQLite keeps full text in tables of its own, named after the one that is asked.
    shadows = tuple(f"{name}_" for name in records.rebuilt)
    metadata = MetaData()
    metadata.reflect(conn, only=lambda name, _: name not in left and not name.startswith(shadows))
    return metadata.sorted_tables


def count(conn: Connection, table: Table) -> int:
    """Return how many rows a table has."""
    return conn.execute(select(func.count()).select_from(table)).scalar_one()


def dump(conn: Connection, table: Table, to: IO[bytes], progress: Progress) -> int:
    """Write a table's rows; returns how many."""
    columns = list(table.columns)
    to.write(_line([[column.name, _kind(column)] for column in columns]))
    writers = [_WRITE.get(_kind(column)) for column in columns]
    chosen = [cast(column, Text) if _kind(column) == "json" else column for column in columns]
    of, done = count(conn, table), 0
    progress(table.name, 0, of)
    rows = conn.execute(select(*chosen), execution_options={"yield_per": _BATCH})
    for part in rows.partitions():
        to.write(b"".join(_line(_values(row, writers)) for row in part))
        done += len(part)
        progress(table.name, done, of)
    return done


def load(conn: Connection, table: Table, lines: IO[bytes], of: int, progress: Progress) -> int:
    """Put the rows into an empty table; returns how many there were."""
    columns: list[list[str]] = json.loads(lines.readline())
    readers = [_READ.get(kind) for _, kind in columns]
    names = [name for name, _ in columns]
    values: dict[str, Any] = {}
    for name, kind in columns:
        value: Any = bindparam(f"v_{name}", type_=Text() if kind == "json" else table.c[name].type)
        values[name] = cast(value, JSON) if kind == "json" and conn.dialect.name != "sqlite" else value
    # What the migrations themselves have put there is in the archive as well.
    conn.execute(delete(table))
    statement, done = insert(table).values(values), 0
    keys = [f"v_{name}" for name in names]
    progress(table.name, 0, of)
    for part in _batches(lines):
        conn.execute(
            statement, [dict(zip(keys, _values(json.loads(line), readers), strict=True)) for line in part]
        )
        done += len(part)
        progress(table.name, done, of)
    return done


def _batches(lines: IO[bytes]) -> Iterator[list[bytes]]:
    part: list[bytes] = []
    for line in lines:
        part.append(line)
        if len(part) == _BATCH:
            yield part
            part = []
    if part:
        yield part


def _kind(column: Column[Any]) -> str:
    if isinstance(column.type, LargeBinary):
        return "bytes"
    return "json" if isinstance(column.type, JSON) else "value"


def _values(row: Sequence[Any], change: Sequence[Callable[[Any], Any] | None]) -> list[Any]:
    return [
        value if each is None or value is None else each(value)
        for value, each in zip(row, change, strict=True)
    ]


def _line(value: Any) -> bytes:
    return (
        json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass") + b"\n"
    )


def _encoded(value: bytes) -> str:
    return base64.b64encode(value).decode()


_WRITE: Final[dict[str, Callable[[Any], Any]]] = {"bytes": _encoded}
_READ: Final[dict[str, Callable[[Any], Any]]] = {"bytes": base64.b64decode}
