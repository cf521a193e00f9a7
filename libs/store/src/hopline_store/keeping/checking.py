"""Whether a database is whole, and of this version."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from hopline_rpc.errors import HoplineError
from sqlalchemy import Connection, Engine

from hopline_store.keeping.progress import Progress
from hopline_store.migrations import newest_revision, revision_of
from hopline_store.records import Place, Records

# How much of what a database says of itself is shown.
_SHOWN: Final = 5


@dataclass
class Finding:
    """What is known of one service's database."""

    store: str
    # Empty where there are no tables.
    revision: str
    newest: str
    problems: list[str] = field(default_factory=list)


def check(place: Place, records: Records, progress: Progress) -> Finding:
    """Look at a database, which may be in use."""
    finding = Finding(records.name, "", newest_revision(records.migrations))
    progress(records.name, 0, 0)
    if not place.url and not place.file(records).is_file():
        finding.problems.append(f"there is no {place.file(records)}")
        return finding
    try:
        with place.open(records) as engine:
            _look(engine, records, finding)
    except HoplineError as error:
        finding.problems.append(error.message.removeprefix(f"{records.name}: "))
    progress(records.name, 1, 1)
    return finding


def _look(engine: Engine, records: Records, finding: Finding) -> None:
    finding.revision = revision_of(engine) or ""
    with engine.connect() as conn:
        if conn.dialect.name == "sqlite":
            finding.problems += _damage(conn)
        else:
            conn.exec_driver_sql("SET LOCAL statement_timeout = 0")
        if not finding.revision:
            finding.problems.append("it has no tables: no mesh has run on it")
        elif finding.revision != finding.newest:
            finding.problems.append(
                f"it is at revision {finding.revision}, this version needs {finding.newest}:"
                " run `hopline db upgrade`, or the version that goes with it"
            )
        elif not finding.problems:
            finding.problems += records.check(conn)


def _damage(conn: Connection) -> list[str]:
    """Return what SQLite itself finds wrong with a file."""
    said = [str(row[0]) for row in conn.exec_driver_sql(f"PRAGMA integrity_check({_SHOWN})")]
    broken = [] if said == ["ok"] else said
    lost = conn.exec_driver_sql("PRAGMA foreign_key_check").fetchmany(_SHOWN)
    return [*broken, *(f"a row of {row[0]} refers to nothing in {row[2]}" for row in lost)]
