"""Reads beside the writer, each on a snapshot of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, TypeVar

from hopline_rpc.errors import HoplineError
from sqlalchemy import Connection, Engine

from hopline_store.failures import is_cut_off, store_failure, unavailable

T = TypeVar("T")

THREADS: Final = 4
MAX_QUEUED: Final = 4096


class Reader:
    """A few threads with a read-only connection each.

    A function sees one state of the database from its first read to its last, whatever is written
    meanwhile; it sees everything that was committed before it began.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        name: str = "store",
        threads: int = THREADS,
        max_queued: int = MAX_QUEUED,
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        self._engine = engine
        self._max_queued = max_queued
        self._shared = lock is not None
        self._lock = lock or nullcontext()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=f"{name} reader")
        self._local = threading.local()
        self._open: list[Connection] = []
        self._queued = 0
        self._closed = False

    async def run(self, fn: Callable[[Connection], T]) -> T:
        """Run `fn` on a read-only connection and return its result."""
        if self._closed:
            raise HoplineError("unavailable", "the store is closed")
        if self._queued >= self._max_queued:
            raise HoplineError("overloaded", "the store has too much to do", retry_after=1.0)
        self._queued += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, self._read, fn)
        finally:
            self._queued -= 1

    async def close(self) -> None:
        """Finish what runs, then close the connections."""
        if self._closed:
            return
        self._closed = True
        await asyncio.to_thread(self._pool.shutdown)
        for conn in self._open:
            conn.close()
        self._open.clear()

    def _read(self, fn: Callable[[Connection], T], *, again: bool = True) -> T:
        had = getattr(self._local, "conn", None) is not None
        try:
            with self._lock:
                conn = self._connection()
                try:
                    return fn(conn)
                finally:
                    if not conn.invalidated:
                        conn.rollback()
        except Exception as error:
            text = store_failure(error)
            if text is None:
                raise
            self._forget()
            if had and again and is_cut_off(error):
                # A server that was started again has forgotten the connections of before.
                return self._read(fn, again=False)
            raise unavailable(error, text) from None

    def _connection(self) -> Connection:
        conn: Connection | None = getattr(self._local, "conn", None)
        if conn is None:
            conn = self._engine.connect().execution_options(hopline_reader=True)
            if conn.dialect.name == "sqlite" and not self._shared:
                conn.exec_driver_sql("PRAGMA query_only=ON")
                conn.rollback()
            elif conn.dialect.name == "postgresql":
                conn = conn.execution_options(postgresql_readonly=True, isolation_level="REPEATABLE READ")
            self._local.conn = conn
            self._open.append(conn)
        return conn

    def _forget(self) -> None:
        """Drop this thread's connection; the next read opens another."""
        conn: Connection | None = getattr(self._local, "conn", None)
        if conn is not None:
            self._local.conn = None
            self._open.remove(conn)
            if not self._shared:
                conn.invalidate()
            conn.close()
