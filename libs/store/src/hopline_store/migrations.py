"""Schema migrations with Alembic, run by the service itself when it starts.

A database that is up to date costs one look at its version and at the names of the scripts; Alembic is
not even imported. A service's `migrations/env.py` is three lines:

    from hopline_store.migrations import run_env
    from hopline_relay.store.tables import metadata
    run_env(metadata)
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from hopline_rpc.errors import HoplineError
from sqlalchemy import Connection, Engine, MetaData, inspect

_VERSIONS: Final = "versions"
# Replicas that start together take turns; any number that nobody else uses.
_ADVISORY_LOCK: Final = 7_401_740_217
_TURN_MILLISECONDS: Final = 120_000


def migrate(engine: Engine, script_location: str | Path, *, upto: str = "") -> None:
    """Bring a database to the newest revision of the scripts; nothing happens when it is there.

    `script_location` is a package or a folder. A database that a newer version has migrated is refused.
    `upto`: an empty one is brought to this older revision, for rows that were written by it.
    """
    folder = _folder(script_location)
    revisions = _revisions(folder)
    head = upto or _head(revisions, folder)
    if head not in revisions:
        raise _newer(head, _head(revisions, folder))
    with engine.connect() as conn:
        if _current(conn) == head:
            return
        conn.rollback()
        importlib.import_module("alembic.command")  # takes its time: not while others wait for the lock
        with _sqlite_prepared(conn), conn.begin():
            _bring_up(conn, folder, revisions, head)


def _bring_up(conn: Connection, folder: Path, revisions: dict[str, str | None], head: str) -> None:
    """Upgrade within a transaction, unless another process has done so since we looked."""
    # On SQLite the transaction itself is the lock: it began with BEGIN IMMEDIATE.
    if conn.dialect.name == "postgresql":
        conn.exec_driver_sql(f"SET LOCAL lock_timeout = {_TURN_MILLISECONDS}")
        conn.exec_driver_sql("SET LOCAL statement_timeout = 0")
        conn.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})")
        schema = conn.exec_driver_sql("SHOW search_path").scalar()
        conn.exec_driver_sql(f'CREATE SCHEMA IF NOT EXISTS "{schema}"')
    current = _current(conn)
    if current == head:
        return
    if current is not None and current not in revisions:
        raise _newer(current, head)
    _upgrade(conn, folder, head)


def _newer(found: str, head: str) -> HoplineError:
    return HoplineError(
        "failed_precondition",
        f"the database is newer than this version of Hopline (its revision is {found}, the newest"
        f" known here is {head}); install the newer version or restore a backup",
    )


def newest_revision(script_location: str | Path) -> str:
    """Return the revision that a database has once it is migrated."""
    folder = _folder(script_location)
    return _head(_revisions(folder), folder)


def revision_of(engine: Engine) -> str | None:
    """Return the revision that a database has; None where it has no tables of ours."""
    with engine.connect() as conn:
        return _current(conn)


@contextmanager
def _sqlite_prepared(conn: Connection) -> Iterator[None]:
    """Wait long enough for another process's migration, and let tables be copied.

    SQLite changes a table by copying it, and dropping the old one would take along the rows that refer to
    it. The switch works only outside a transaction; `_upgrade` checks the references before the commit.
    """
    if conn.dialect.name != "sqlite":
        yield
        return
    driver: Any = conn.connection.driver_connection
    (usual,) = driver.execute("PRAGMA busy_timeout").fetchone()
    driver.execute(f"PRAGMA busy_timeout={_TURN_MILLISECONDS}")
    driver.execute("PRAGMA foreign_keys=OFF")
    try:
        yield
    finally:
        driver.execute("PRAGMA foreign_keys=ON")
        driver.execute(f"PRAGMA busy_timeout={usual}")


def run_env(metadata: MetaData) -> None:
    """Run the migrations that Alembic has chosen; all that a service's `env.py` does."""
    from alembic import context

    connection: Connection | None = context.config.attributes.get("connection")
    if connection is not None:
        _run(context, connection, metadata)
        return
    # Called by the `alembic` command of a developer, who gives a database with `-x url=...`.
    from hopline_store.database import open_engine

    url = context.get_x_argument(as_dictionary=True)["url"]
    with open_engine(url).begin() as opened:
        _run(context, opened, metadata)


def _run(context: Any, connection: Connection, metadata: MetaData) -> None:
    # SQLite cannot alter most things in place: Alembic then copies the table.
    batch = connection.dialect.name == "sqlite"
    context.configure(connection=connection, target_metadata=metadata, render_as_batch=batch)
    context.run_migrations()


def _upgrade(conn: Connection, folder: Path, to: str) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.attributes["connection"] = conn
    command.upgrade(config, to)
    if conn.dialect.name == "sqlite":
        broken = conn.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
        if broken:
            raise RuntimeError(f"a migration left {len(broken)} rows that refer to nothing: {broken[:5]}")


def _folder(location: str | Path) -> Path:
    if isinstance(location, Path):
        return location
    spec = importlib.util.find_spec(location)
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(f"there is no package {location}")
    return Path(next(iter(spec.submodule_search_locations)))


def _revisions(folder: Path) -> dict[str, str | None]:
    """Read each script's revision and the one before it, without running it."""
    found: dict[str, str | None] = {}
    for script in sorted((folder / _VERSIONS).glob("*.py")):
        values = {}
        for statement in ast.parse(script.read_text(encoding="utf-8")).body:
            target = _assigned(statement)
            if target is not None and target[0] in {"revision", "down_revision"}:
                values[target[0]] = target[1]
        if "revision" in values:
            found[str(values["revision"])] = values.get("down_revision")
    return found


def _assigned(statement: ast.stmt) -> tuple[str, str | None] | None:
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target, value = statement.targets[0], statement.value
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        target, value = statement.target, statement.value
    else:
        return None
    if isinstance(target, ast.Name) and isinstance(value, ast.Constant):
        return target.id, value.value if isinstance(value.value, str) else None
    return None


def _head(revisions: dict[str, str | None], folder: Path) -> str:
    heads = set(revisions) - {before for before in revisions.values() if before is not None}
    if len(heads) != 1:
        raise ValueError(f"{folder} has {len(heads)} newest revisions; there must be one")
    return heads.pop()


def _current(conn: Connection) -> str | None:
    """Return the database's revision; None for an empty one."""
    if not inspect(conn).has_table("alembic_version"):
        return None
    version: str | None = conn.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    return version
