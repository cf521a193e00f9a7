"""Copies of a mesh's databases, taken while it runs."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from hopline_rpc.errors import HoplineError
from sqlalchemy import Connection

from hopline_store.keeping import rows
from hopline_store.keeping.archive import Draft, Kind, Manifest, Stored
from hopline_store.keeping.progress import Progress
from hopline_store.migrations import newest_revision, revision_of
from hopline_store.postgres import schema_of
from hopline_store.records import Place, Records

# Four megabytes between two looks at the clock; the mesh writes meanwhile.
_PAGES: Final = 1_024
# What else lies in a data directory and is made anew, or says how a mesh runs just now.
_PASSING: Final = (".db", ".db-wal", ".db-shm", ".lock", ".sock")
_MADE_ANEW: Final = frozenset({"lock", "endpoints.json"})


def back_up(place: Place, stores: Sequence[Records], target: Path, progress: Progress) -> Manifest:
    """Write everything that a mesh keeps into one file: SQLite's files as they are, PostgreSQL's rows."""
    return _write(place, stores, target, "rows" if place.url else "sqlite", progress)


def export(place: Place, stores: Sequence[Records], target: Path, progress: Progress) -> Manifest:
    """Write everything that a mesh keeps into one file which any kind of database can take in."""
    return _write(place, stores, target, "rows", progress)


def _write(place: Place, stores: Sequence[Records], target: Path, kind: Kind, progress: Progress) -> Manifest:
    revisions = {each.name: _revision(place, each) for each in stores}
    with Draft(target, kind) as draft:
        write = _copy_files if kind == "sqlite" else (_dump_one if place.url else _dump_files)
        for each, tables in write(place, stores, draft, progress):
            draft.manifest.stores[each.name] = Stored(revision=revisions[each.name], tables=tables)
        for path in _other_files(place.folder):
            draft.add(f"files/{path.name}", path)
        return draft.manifest


_Written = Iterator[tuple[Records, dict[str, int]]]


def _copy_files(place: Place, stores: Sequence[Records], draft: Draft, progress: Progress) -> _Written:
    """Copy SQLite's files with what has been committed, whoever writes to them meanwhile."""
    for each in stores:
        with tempfile.TemporaryDirectory(dir=draft.folder, prefix=".hopline-") as room:
            copy = Path(room) / each.file
            with (
                closing(sqlite3.connect(f"{place.file(each).as_uri()}?mode=ro", uri=True)) as source,
                closing(sqlite3.connect(copy)) as kept,
            ):
                source.backup(kept, pages=_PAGES, progress=_told(each.name, progress))
            draft.add(f"stores/{each.file}", copy)
        yield each, {}


def _told(name: str, progress: Progress) -> Callable[[int, int, int], None]:
    def tell(_status: int, remaining: int, total: int) -> None:
        progress(name, total - remaining, total)

    return tell


def _dump_files(place: Place, stores: Sequence[Records], draft: Draft, progress: Progress) -> _Written:
    for each in stores:
        with place.open(each) as engine, engine.connect() as conn:
            conn.execution_options(hopline_reader=True)
            yield each, _dump(conn, each, draft, progress)


def _dump_one(place: Place, stores: Sequence[Records], draft: Draft, progress: Progress) -> _Written:
    """Write the rows of all services as they are at one moment."""
    with place.open(stores[0]) as engine, engine.connect() as conn:
        conn.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        conn.exec_driver_sql("SET LOCAL statement_timeout = 0")
        conn.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")
        for each in stores:
            conn.exec_driver_sql(f'SET LOCAL search_path = "{schema_of(each.name)}"')
            yield each, _dump(conn, each, draft, progress)


def _dump(conn: Connection, records: Records, draft: Draft, progress: Progress) -> dict[str, int]:
    found = {}
    for table in rows.tables_of(conn, records):
        with draft.entry(f"stores/{records.name}/{table.name}.jsonl") as entry:
            found[table.name] = rows.dump(conn, table, entry, progress)
    return found


def _revision(place: Place, records: Records) -> str:
    """Return a database's revision; only what this version knows is copied."""
    if not place.url and not place.file(records).is_file():
        raise HoplineError(
            "failed_precondition",
            f"there is no {place.file(records)}: name the mesh's data directory (--data), or its PostgreSQL"
            " (HOPLINE_DATABASE_URL)",
        )
    with place.open(records) as engine:
        found = revision_of(engine)
    if found is None:
        raise HoplineError("failed_precondition", f"the {records.name} has no tables: no mesh has run there")
    if found != (newest := newest_revision(records.migrations)):
        raise HoplineError(
            "failed_precondition",
            f"the {records.name} is at revision {found} and this version of Hopline at {newest}; run"
            " `hopline db upgrade` first, or use the version that goes with it",
        )
    return found


def _other_files(folder: Path) -> list[Path]:
    """Return the keys and tokens that lie beside the databases."""
    if not folder.is_dir():
        return []
    return [
        path
        for path in sorted(folder.iterdir())
        if path.is_file()
        and not path.is_symlink()
        and path.name not in _MADE_ANEW
        and not path.name.startswith(".")
        and not path.name.endswith(_PASSING)
    ]
