"""Putting an archive back: into an empty place, all of it or nothing."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from hopline_rpc.errors import HoplineError
from sqlalchemy import Connection

from hopline_store.database import private_file
from hopline_store.keeping import rows
from hopline_store.keeping.archive import Archive, Stored
from hopline_store.keeping.progress import Progress
from hopline_store.migrations import migrate
from hopline_store.postgres import schema_of
from hopline_store.records import Place, Records

_DRAFT: Final = ".restoring-"


def restore(place: Place, stores: Sequence[Records], archive: Archive, progress: Progress) -> None:
    """Put an archive into a place that has nothing yet; afterwards every database is of this version.

    Raises `HoplineError`: the place is not empty, the archive is damaged or of a newer version.
    """
    manifest = archive.manifest
    missing = [name for name in manifest.stores if name not in {each.name for each in stores}]
    if missing:
        raise HoplineError(
            "failed_precondition", f"no {missing[0]} is installed here; install all of Hopline"
        )
    archive.verify()
    chosen = [each for each in stores if each.name in manifest.stores]
    if place.url and manifest.kind == "sqlite":
        raise HoplineError(
            "failed_precondition",
            f"{archive.path} has SQLite's files as they are; for PostgreSQL, restore it into a folder"
            " (without HOPLINE_DATABASE_URL), then `hopline export` from there and `hopline import` here",
        )
    if place.url:
        _refuse_used(place, chosen)
        _fill_schemas(place, chosen, archive, progress)
        _put_files(archive, place.folder)
        return
    for left in place.folder.glob(f"{_DRAFT}*"):
        shutil.rmtree(left, ignore_errors=True)  # of a run that was killed: the folder is held for this one
    with tempfile.TemporaryDirectory(dir=place.folder, prefix=_DRAFT) as room:
        draft = Place(Path(room))
        for each in chosen:
            if manifest.kind == "sqlite":
                _put_file(archive, f"stores/{each.file}", draft.file(each))
            else:
                _fill_file(draft, each, archive, progress)
            with draft.open(each) as engine:
                migrate(engine, each.migrations)
        _put_files(archive, place.folder)
        for each in chosen:
            draft.file(each).rename(place.file(each))


def refuse_used_folder(folder: Path, stores: Sequence[Records]) -> None:
    """Refuse a data directory that has databases already."""
    for each in stores:
        if (folder / each.file).exists():
            raise HoplineError(
                "failed_precondition",
                f"{folder / each.file} is there already, and nothing is written over; name an empty --data"
                " folder, or move this one away first",
            )


def _refuse_used(place: Place, stores: Sequence[Records]) -> None:
    for each in stores:
        with place.open(each) as engine, engine.connect() as conn:
            used = [
                table.name
                for table in rows.tables_of(conn, each)
                if table.name not in each.seeded and rows.count(conn, table)
            ]
        if used:
            raise HoplineError(
                "failed_precondition",
                f"the database has a mesh in it already (schema {schema_of(each.name)}, table {used[0]}), and"
                " nothing is written over; name an empty database, or drop the schemas hopline_* first",
            )


def _fill_file(draft: Place, records: Records, archive: Archive, progress: Progress) -> None:
    private_file(draft.folder, records.file)
    with draft.open(records) as engine:
        migrate(engine, records.migrations, upto=archive.manifest.stores[records.name].revision)
        with engine.begin() as conn:
            _fill(conn, records, archive, progress)


def _fill_schemas(place: Place, stores: Sequence[Records], archive: Archive, progress: Progress) -> None:
    """Fill the schemas of all services in one transaction, then bring them to this version."""
    with ExitStack() as stack:
        engines = [stack.enter_context(place.open(each)) for each in stores]
        for each, engine in zip(stores, engines, strict=True):
            # A schema that is there and empty is of this version, or of another: both are made anew.
            with engine.begin() as conn:
                conn.exec_driver_sql(f'DROP SCHEMA IF EXISTS "{schema_of(each.name)}" CASCADE')
            migrate(engine, each.migrations, upto=archive.manifest.stores[each.name].revision)
        with engines[0].begin() as conn:
            conn.exec_driver_sql("SET LOCAL statement_timeout = 0")
            conn.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")
            for each in stores:
                conn.exec_driver_sql(f'SET LOCAL search_path = "{schema_of(each.name)}"')
                _fill(conn, each, archive, progress)
        for each, engine in zip(stores, engines, strict=True):
            migrate(engine, each.migrations)


def _fill(conn: Connection, records: Records, archive: Archive, progress: Progress) -> None:
    stored: Stored = archive.manifest.stores[records.name]
    tables = {table.name: table for table in rows.tables_of(conn, records)}
    strange = sorted(set(stored.tables) ^ set(tables))
    if strange:
        raise HoplineError(
            "failed_precondition",
            f"{archive.path} and revision {stored.revision} of the {records.name} do not go together:"
            f" {strange[0]} is in only one of them",
        )
    for name, table in tables.items():
        expected = stored.tables[name]
        entry = f"stores/{records.name}/{name}.jsonl"
        try:
            with archive.entry(entry) as lines:
                found = rows.load(conn, table, lines, expected, progress)
        except (ValueError, KeyError, TypeError):
            raise archive.damaged(entry) from None
        if found != expected:
            raise HoplineError(
                "failed_precondition",
                f"{archive.path} has {found} rows of {records.name}.{name} and says {expected};"
                " take another copy of it",
            )


def _put_files(archive: Archive, folder: Path) -> None:
    """Put back keys and tokens; one that is there already stays."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in archive.manifest.files:
        if not (folder / name).exists():
            _put_file(archive, f"files/{name}", folder / name)


def _put_file(archive: Archive, name: str, target: Path) -> None:
    number = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(number, "wb") as file, archive.entry(name) as source:
        shutil.copyfileobj(source, file, 1 << 20)
        file.flush()
        os.fsync(file.fileno())
