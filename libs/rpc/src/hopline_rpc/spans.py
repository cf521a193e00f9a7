"""The local span store: a bounded SQLite file that `hopline trace` reads.

Standard library only, so that reading a trace costs no import of the telemetry packages.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

MAX_SPANS: Final = 200_000
_PRUNE_EVERY: Final = 2_000
_MAX_TRACE: Final = 10_000
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS spans (
  id INTEGER PRIMARY KEY,
  trace_id TEXT NOT NULL, span_id TEXT NOT NULL, parent_id TEXT NOT NULL,
  name TEXT NOT NULL, kind TEXT NOT NULL, service TEXT NOT NULL,
  start_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL, status TEXT NOT NULL,
  attributes TEXT NOT NULL, links TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS spans_trace ON spans (trace_id);
CREATE TABLE IF NOT EXISTS subjects (value TEXT NOT NULL, trace_id TEXT NOT NULL,
  PRIMARY KEY (value, trace_id)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS subjects_trace ON subjects (trace_id);
"""
# Attributes by whose value a trace is found: whatever a person has at hand.
FIND_BY: Final = (
    "hopline.turn.id",
    "hopline.message.id",
    "hopline.thread.id",
    "hopline.session.id",
    "messaging.message.id",
    "messaging.message.conversation_id",
    "gen_ai.conversation.id",
)


class Row(NamedTuple):
    """A span as it is stored; attributes and links are JSON."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    kind: str
    service: str
    start_ns: int
    end_ns: int
    status: str
    attributes: str
    links: str


class SpanStore:
    """Writes spans. Several processes may write one file; readers open it themselves."""

    def __init__(self, path: Path | str, max_spans: int = MAX_SPANS) -> None:
        self._max_spans = max_spans
        self._written = 0
        # The exporter's thread writes, the thread that shuts down closes; never both at once.
        self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        # A lost span costs a line in a drawing: no waiting for the disk.
        self._connection.execute("PRAGMA synchronous=OFF")
        self._connection.executescript(_SCHEMA)

    def write(self, rows: Iterable[Row]) -> None:
        """Add spans, and drop the oldest beyond the bound."""
        batch = list(rows)
        marks = ", ".join("?" * len(Row._fields))
        sql = f"INSERT INTO spans ({', '.join(Row._fields)}) VALUES ({marks})"  # noqa: S608 - constants
        found = [(value, row.trace_id) for row in batch for value in _subjects(row)]
        with self._connection:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(sql, batch)
            self._connection.executemany("INSERT OR IGNORE INTO subjects VALUES (?, ?)", found)
        self._written += len(batch)
        if self._written >= min(_PRUNE_EVERY, self._max_spans):
            self._written = 0
            self._prune()

    def _prune(self) -> None:
        last = self._connection.execute("SELECT max(id) FROM spans").fetchone()[0] or 0
        self._connection.execute("DELETE FROM spans WHERE id <= ?", (last - self._max_spans,))
        self._connection.execute(
            "DELETE FROM subjects WHERE NOT EXISTS"
            " (SELECT 1 FROM spans WHERE spans.trace_id = subjects.trace_id)"
        )

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def _subjects(row: Row) -> list[str]:
    if ".id" not in row.attributes:
        return []  # most spans name nothing; reading their JSON would cost more than storing them
    attributes = json.loads(row.attributes)
    return [value for key in FIND_BY if isinstance(value := attributes.get(key), str)]


def read_trace(path: Path | str, key: str) -> list[dict[str, Any]]:
    """Return the spans of a trace in order of their start, at most 10 000.

    `key` is a trace id, a `traceparent`, or the id of a turn, message, thread or session in it.
    """
    if not Path(path).exists():
        return []
    with closing(sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)) as connection:
        return _select(connection, _trace_ids(connection, key))


def _trace_ids(connection: sqlite3.Connection, key: str) -> list[str]:
    parts = key.split("-")
    if len(parts) == 4 and len(parts[1]) == 32:
        return [parts[1]]
    rows = connection.execute("SELECT trace_id FROM subjects WHERE value = ? LIMIT 100", (key,)).fetchall()
    return [row[0] for row in rows] or [key]


def _select(connection: sqlite3.Connection, trace_ids: list[str]) -> list[dict[str, Any]]:
    marks = ", ".join("?" * len(trace_ids))
    sql = (
        f"SELECT {', '.join(Row._fields)} FROM spans WHERE trace_id IN ({marks})"  # noqa: S608 - constants
        f" ORDER BY start_ns, id LIMIT {_MAX_TRACE}"
    )
    found = []
    for row in connection.execute(sql, trace_ids):
        span = dict(zip(Row._fields, row, strict=True))
        span["attributes"] = json.loads(span["attributes"])
        span["links"] = json.loads(span["links"])
        found.append(span)
    return found
