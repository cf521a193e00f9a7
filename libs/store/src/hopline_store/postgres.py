"""PostgreSQL: how its engine is made, and how several processes write to one database.

Imported only where an address says `postgresql://`. What differs from SQLite is all here and behind
`hopline_store`: the statements of the services are the same for both.

Each service keeps its tables in a schema of its own, so that one address does for all of them.

One writer thread a process makes SQLite's transactions one after the other. Here the same is said by
advisory locks that a batch takes before its first statement: those of the workspaces its operations are
`within`, in one order, shared with all others; or, for an operation that does not say, that of the whole
schema, alone. So whoever reads in a transaction and then writes by what it read is right on both.
"""

from __future__ import annotations

import select
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

import psycopg
from hopline_rpc.errors import HoplineError
from psycopg.pq import TransactionStatus
from sqlalchemy import URL, Boolean, Column, Connection, Engine, String, create_engine, event
from sqlalchemy.dialects.postgresql.base import PGDDLCompiler
from sqlalchemy.exc import DBAPIError

from hopline_store.failures import is_locked

# Whoever does not get on lets go: a process that was stopped in a transaction must not stop the others.
_SESSION: Final = {
    "statement_timeout": "30s",
    "lock_timeout": "10s",
    "idle_in_transaction_session_timeout": "10s",
    # A peer that vanished without a word is noticed by both sides.
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "timezone": "UTC",
    # A batch is gone through once: planning it for its values costs more than it gives.
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
}
_CONNECT: Final = {
    "connect_timeout": 5,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
_CHANGES: Final = ("INSERT", "UPDATE", "DELETE", "MERGE")
_PREPARE_AFTER: Final = 2
_PREPARED: Final = 512
# How long a process that comes waits for the one that goes.
_LEAVING_SECONDS: Final = 5


def open_postgres(url: URL, name: str, connections: int) -> Engine:
    """Return an engine whose connections stand in the schema of a service, made where it is missing."""
    if url.drivername not in ("postgresql", "postgres", "postgresql+psycopg"):
        raise HoplineError(
            "invalid_argument", f"{url.drivername}:// is no address of a store; say postgresql://…"
        )
    schema = schema_of(name)
    settings = {**_SESSION, "search_path": schema}
    options = " ".join(f"-c {key}={value}" for key, value in settings.items())
    if given := url.query.get("options"):
        options = f"{options} {given if isinstance(given, str) else ' '.join(given)}"
    engine = create_engine(
        url.set(drivername="postgresql+psycopg").difference_update_query(["options"]),
        # The driver takes values by place, as SQLite's does.
        paramstyle="format",
        # It would ask each new connection for a type that nobody uses.
        use_native_hstore=False,
        pool_size=connections,
        max_overflow=2,
        pool_timeout=10,
        pool_recycle=3600,
        hide_parameters=True,
        connect_args={
            **_CONNECT,
            "application_name": f"hopline-{name}",
            "options": options,
            "prepare_threshold": _PREPARE_AFTER,
            "cursor_factory": _Cursor,
        },
    )
    engine.dialect.ddl_compiler = _Ddl
    event.listen(engine, "connect", _connected)
    return engine


def schema_of(name: str) -> str:
    """Return the schema in which a service keeps its tables."""
    return f"hopline_{name}"


def _connected(connection: Any, _record: Any) -> None:
    connection.prepared_max = _PREPARED
    connection.hopline_written = 0


class _Cursor(psycopg.Cursor[Any]):
    """Counts what changes rows, so that a refusal that has changed none need not be undone."""

    def execute(self, *args: Any, **kwargs: Any) -> _Cursor:
        super().execute(*args, **kwargs)
        self._count()
        return self

    def executemany(self, *args: Any, **kwargs: Any) -> None:
        super().executemany(*args, **kwargs)
        self._count()

    def _count(self) -> None:
        if self.rowcount > 0 and (self.statusmessage or "").startswith(_CHANGES):
            connection: Any = self.connection
            connection.hopline_written += 1


class _Ddl(PGDDLCompiler):
    """What tables look like here, so that the scripts of migrations are the same for both databases.

    Text is ordered by its bytes, as SQLite orders it, whatever the database's own collation is. SQLite's
    `DEFAULT 0` of a boolean is `false`.
    """

    def get_column_specification(self, column: Column[Any], **kwargs: Any) -> str:
        written = str(super().get_column_specification(column, **kwargs))  # type: ignore[no-untyped-call] # SQLAlchemy's own
        if isinstance(column.type, String) and not column.type.collation and column.computed is None:
            kind: str = self.dialect.type_compiler_instance.process(column.type, type_expression=column)
            return written.replace(f" {kind}", f' {kind} COLLATE "C"', 1)
        return written

    def get_column_default_string(self, column: Column[Any]) -> str | None:
        default = super().get_column_default_string(column)
        if isinstance(column.type, Boolean) and default in ("0", "1"):
            return "true" if default == "1" else "false"
        return default


class Locks:
    """The advisory locks of one service's schema (`hopline_store.writer.Order`).

    `alone`: the writer's connection holds the schema for as long as it lives, and no second writer is let in.
    Those that are not alone hold it together: of both kinds one keeps the other out.
    """

    def __init__(self, name: str, *, alone: bool = False) -> None:
        self._name = name
        self._space = _number(schema_of(name))
        self._alone = alone

    def connected(self, conn: Connection) -> None:
        """Take what a fresh connection has to hold; waits a moment for a process that is on its way out."""
        lock = "pg_advisory_lock" if self._alone else "pg_advisory_lock_shared"
        try:
            conn.exec_driver_sql(f"SET LOCAL lock_timeout = '{_LEAVING_SECONDS}s'")
            conn.exec_driver_sql(f"SELECT {lock}(%s, 1)", (self._space,))
        except DBAPIError as error:
            if is_locked(error):
                raise HoplineError("unavailable", self.taken, retry_after=1.0) from None
            raise
        finally:
            if not conn.invalidated:
                conn.rollback()

    @property
    def taken(self) -> str:
        """What is said where another process holds the schema."""
        if self._alone:
            return f"another {self._name} runs on this database, which takes one; stop it first"
        return f"a {self._name} that runs alone has this database; stop it first"

    def take(self, conn: Connection, withins: Iterable[Sequence[str] | None]) -> None:
        """Wait until nobody else writes where this transaction is going to; until it is over."""
        if self._alone:
            # Nobody else does. What is to be read while nothing was asked is the server saying goodbye.
            if _speaks(conn.connection.driver_connection):
                conn.exec_driver_sql("SELECT 1")
            return
        keys: set[int] = set()
        for within in withins:
            if within is None:
                conn.exec_driver_sql("SELECT pg_advisory_xact_lock(%s, 0)", (self._space,))
                return
            keys.update(_number(each) for each in within)
        locks = ["pg_advisory_xact_lock_shared(%s, 0)", *["pg_advisory_xact_lock(%s, %s)"] * len(keys)]
        values = [self._space, *(value for key in sorted(keys) for value in (self._space, key))]
        conn.exec_driver_sql(f"SELECT {', '.join(locks)}", tuple(values))

    def written(self, connection: Any) -> int | None:
        """Return how often a connection has changed rows; None where its transaction is beyond use."""
        if connection.info.transaction_status == TransactionStatus.INERROR:
            return None
        return int(connection.hopline_written)


def _speaks(connection: Any) -> bool:
    """Tell whether there is something to be read from a connection."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def _number(text: str) -> int:
    """Return a number that PostgreSQL takes for half the key of a lock; 0 and 1 mean something else."""
    number = zlib.crc32(text.encode()) - (1 << 31)
    return number if number not in (0, 1) else 2
