"""Opening a database: its engine, its migrations, its writer and its readers."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hopline_rpc.errors import HoplineError
from hopline_rpc.metrics import Family, Point, histogram
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import StaticPool

from hopline_store.failures import driver_words, store_failure
from hopline_store.migrations import migrate
from hopline_store.reader import THREADS, Reader
from hopline_store.writer import Order, Writer

# Only another process can hold the lock: whoever waits for it waits for nothing of ours, and rather hears it.
BUSY_MILLISECONDS: Final = 1_000
# Every statement of the record, and its lists of each length; the driver keeps 128 unless told.
_STATEMENTS: Final = 512
_PRAGMAS: Final = (
    f"PRAGMA busy_timeout={BUSY_MILLISECONDS}",
    "PRAGMA journal_mode=WAL",
    # FULL: a commit is on disk when it returns. Shared by a batch it costs no more than NORMAL.
    "PRAGMA synchronous=FULL",
    # 40 MB of pages: hot ones are written over many times before they are copied, and copying waits for the
    # disk. At the default of 1000 every second busy batch would.
    "PRAGMA wal_autocheckpoint=10000",
    "PRAGMA foreign_keys=ON",
    "PRAGMA temp_store=MEMORY",
)


@dataclass(frozen=True)
class Database:
    """An open database."""

    engine: Engine
    writer: Writer
    reader: Reader

    async def ready(self) -> bool:
        """Tell whether the store answers."""
        try:
            await self.reader.run(lambda conn: conn.exec_driver_sql("SELECT 1").scalar())
        except HoplineError:
            return False
        return True

    def measure(self, name: str) -> list[Family]:
        """Return how the writer keeps up, under the name of the service it writes for."""
        labels = {"hopline.store": name}
        queued = (Point(labels, self.writer.queued),)
        text = "Operations that wait for the store's writer, or are in its batch."
        return [
            histogram(
                "hopline.store.commit.size",
                "{operation}",
                "How many operations one commit was for.",
                [(labels, self.writer.sizes)],
            ),
            Family("hopline.store.queued", "gauge", "{operation}", text, queued),
        ]

    async def close(self) -> None:
        """Finish what is queued and close everything."""
        await self.writer.close()
        await self.reader.close()
        self.engine.dispose()


def open_database(
    url: str | Path,
    *,
    migrations: str | None = None,
    name: str = "store",
    readers: int = THREADS,
    alone: bool = False,
) -> Database:
    """Open a database and bring it up to date.

    `url` is the path of an SQLite file, or `postgresql://…`; `sqlite://` is a database in memory, for
    tests. `migrations` names the package with the Alembic scripts, such as `hopline_relay.migrations`. On
    PostgreSQL the tables are in the schema of `name`, and with `alone` no second writer is let in, as none is
    beside others that is alone.
    """
    engine = open_engine(url, name, readers)
    # One connection is all that an in-memory database has: whoever uses it, uses it alone.
    lock = threading.RLock() if is_memory(engine) else None
    writer = Writer(engine, name=name, lock=lock, order=_order(engine, name, alone))
    try:
        if engine.dialect.name != "sqlite":
            writer.connect()
        if migrations is not None:
            migrate(engine, migrations)
    except DBAPIError as error:
        writer.disconnect()
        engine.dispose()
        text = store_failure(error)
        if text is None:
            raise
        raise HoplineError("unavailable", f"{text}: {_shown(url)} ({driver_words(error)})") from None
    except BaseException:
        writer.disconnect()
        engine.dispose()
        raise
    reader = Reader(engine, name=name, threads=readers, lock=lock)
    return Database(engine, writer, reader)


def _order(engine: Engine, name: str, alone: bool) -> Order | None:
    """Return what keeps the transactions of several processes apart; SQLite does so by itself."""
    if engine.dialect.name == "sqlite":
        return None
    from hopline_store.postgres import Locks

    return Locks(name, alone=alone)


def _shown(url: str | Path) -> str:
    """Return where a database is, in words without a password."""
    if isinstance(url, Path):
        return str(url)
    parsed = make_url(url)
    return f"{parsed.database} on {parsed.host}" if parsed.host else str(parsed.database)


def private_file(folder: Path, name: str) -> Path:
    """Make a database's file, and the folder it lies in, for their owner alone where they are missing."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = folder / name
    os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
    return file


def open_engine(url: str | Path, name: str = "store", readers: int = THREADS) -> Engine:
    """Return an engine set up the way the writer and the readers need it."""
    parsed = _parsed(url)
    if parsed.drivername != "sqlite":
        from hopline_store.postgres import open_postgres

        # The writer's, one a reader, and one for whoever looks after the database.
        return open_postgres(parsed, name, readers + 2)
    options: dict[str, Any] = {}
    if parsed.database in (None, "", ":memory:"):
        options["poolclass"] = StaticPool
    # Python's own handling of transactions is off; BEGIN is sent by `_begin` below.
    engine = create_engine(
        parsed,
        connect_args={
            "check_same_thread": False,
            "isolation_level": None,
            "cached_statements": _STATEMENTS,
        },
        **options,
    )
    event.listen(engine, "connect", _set_pragmas)
    event.listen(engine, "begin", _begin)
    return engine


def _parsed(url: str | Path) -> URL:
    if isinstance(url, Path):
        return URL.create("sqlite", database=str(url))
    try:
        return make_url(url)
    except (ArgumentError, ValueError):
        # Not said: there may be a password in it.
        text = "the address of the database must be like postgresql://user:password@host:5432/hopline"
        raise HoplineError("invalid_argument", text) from None


def is_memory(engine: Engine) -> bool:
    """Tell whether a database lives in memory, on one connection."""
    return isinstance(engine.pool, StaticPool)


def _set_pragmas(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    for pragma in _PRAGMAS:
        cursor.execute(pragma)
    cursor.close()


def _begin(conn: Connection) -> None:
    """Begin a transaction: a writer takes the lock at once, since a later upgrade could fail."""
    begin = "BEGIN" if conn.get_execution_options().get("hopline_reader") else "BEGIN IMMEDIATE"
    # Straight to the driver: SQLAlchemy's own way costs more than the statement, and every read comes by.
    driver: Any = conn.connection.driver_connection
    dbapi: Any = conn.dialect.dbapi
    try:
        driver.execute(begin)
    except dbapi.Error as error:
        raise DBAPIError.instance(begin, None, error, dbapi.Error, dialect=conn.dialect) from error
