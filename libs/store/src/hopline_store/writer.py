"""One writer thread a database, which commits everything that is queued at once.

A commit costs an fsync; shared by all who wait for one, it costs next to nothing. With one caller a
batch is one operation and nothing waits for company. Results are handed out after the commit, so what
was answered is on disk.

An operation gets the batch's connection. It must not commit or roll back, and it MAY BE RUN TWICE: when
one of a batch fails after having written something, the batch is rolled back and run again with a
savepoint around each. Whatever an operation changes outside the database, it changes through
`after_commit`. (Changes of the schema are not noticed as writing; migrations do not go through here.)
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from hopline_rpc.errors import HoplineError
from hopline_rpc.stats import COUNT_BUCKETS, Histogram
from sqlalchemy import Connection, Engine
from sqlalchemy.pool import StaticPool

from hopline_store.failures import (
    is_conflict,
    is_cut_off,
    is_locked,
    needs_room,
    store_failure,
    unavailable,
)

log = logging.getLogger("hopline.store")

T = TypeVar("T")
Item = TypeVar("Item")
Result = TypeVar("Result")

Op = Callable[[Connection], T]
Handler = Callable[[Connection, list[Any]], Sequence[Any]]
"""Treats items of one kind at once; returns a result or an exception for each, in order."""

Within = Sequence[str] | None
"""The workspaces that an operation reads and writes in; None where it may be any."""

MAX_BATCH: Final = 128
# How often a batch is run that meets transactions of other processes.
_TRIES: Final = 5
MAX_QUEUED: Final = 8192
_AFTER_COMMIT: Final = "hopline_after_commit"


class _Entry(NamedTuple):
    """What one caller waits for."""

    future: asyncio.Future[Any]
    kind: str  # empty: an operation of its own
    work: Any  # the operation, or the item
    within: Within = None


class Order(Protocol):
    """What makes the transactions of several processes follow each other, where a database does not."""

    def connected(self, conn: Connection) -> None:
        """Take what the writer's connection has to hold for as long as it lives."""
        ...

    def take(self, conn: Connection, withins: Iterable[Within]) -> None:
        """Wait until nobody else writes there; called first in a transaction, and over with it."""
        ...

    def written(self, connection: Any) -> int | None:
        """Return how often a driver's connection has changed rows; None where it is beyond telling."""
        ...


class _Outcome(NamedTuple):
    future: asyncio.Future[Any]
    result: Any
    error: BaseException | None


class _Unit(NamedTuple):
    """What runs together: one operation, or items that one handler treats at once."""

    entries: list[_Entry]
    handler: Handler | None

    def run(self, conn: Connection) -> list[_Outcome]:
        if self.handler is None:
            entry = self.entries[0]
            return [_Outcome(entry.future, entry.work(conn), None)]
        results = self.handler(conn, [entry.work for entry in self.entries])
        if len(results) != len(self.entries):
            raise RuntimeError("a handler returns one result for each item")
        return [
            _Outcome(entry.future, None, result)
            if isinstance(result, BaseException)
            else _Outcome(entry.future, result, None)
            for entry, result in zip(self.entries, results, strict=True)
        ]

    def singly(self) -> list[_Unit]:
        return [_Unit([entry], self.handler) for entry in self.entries]


class _RunAgainError(Exception):
    """A failed operation had written something: the batch has to be run again with savepoints."""


class _NotBegunError(Exception):
    """A connection had broken before the batch's first operation was run on it."""


class _BrokenError(Exception):
    """The store as a whole failed; `text` is for the callers."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def after_commit(conn: Connection, callback: Callable[[], object]) -> None:
    """Run `callback` on the event loop once the current operation's batch is committed.

    Callbacks run in the order they were asked for, before the results are handed out; those of an
    operation that fails are dropped with it.
    """
    conn.info[_AFTER_COMMIT].append(callback)


class Writer:
    """The only one who writes to a database."""

    def __init__(
        self,
        engine: Engine,
        *,
        name: str = "store",
        max_batch: int = MAX_BATCH,
        max_queued: int = MAX_QUEUED,
        lock: AbstractContextManager[Any] | None = None,
        order: Order | None = None,
    ) -> None:
        self._engine = engine
        self._order = order
        self._max_batch = max_batch
        self._max_queued = max_queued
        # An in-memory database has one connection, which readers use as well.
        self._lock = lock or nullcontext()
        self._queue: queue.SimpleQueue[_Entry | None] = queue.SimpleQueue()
        self._handlers: dict[str, tuple[Handler, bool]] = {}
        self._hooks: list[Callable[[], object]] = []
        self._queued = 0
        self._closed = False
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._conn: Connection | None = None
        # What has queued up while one batch waited for a lock is tried together: nobody waits twice.
        self._was_locked = False
        self.batches = 0
        self.operations = 0
        # How many operations one commit was for.
        self.sizes = Histogram(COUNT_BUCKETS)

    # --- on the event loop ------------------------------------------------------------------------

    async def run(self, op: Callable[[Connection], T], within: Within = None) -> T:
        """Run `op` in a transaction and return its result once that is committed.

        `within`: the workspaces that it is about; other processes write in others meanwhile. What does not
        say is about any, and on a database that several share it is alone while it runs.
        """
        result: T = await self._enqueue("", op, within)
        return result

    def post(
        self,
        op: Callable[[Connection], object],
        failed: Callable[[BaseException], None],
        within: Within = None,
    ) -> None:
        """Run `op` in a transaction that nobody waits for; `failed` gets what it fails with. Not bounded."""
        self._check_open()

        def look(done: asyncio.Future[Any]) -> None:
            if not done.cancelled() and (error := done.exception()) is not None:
                failed(error)

        self._put("", op, within).add_done_callback(look)

    async def submit(self, kind: str, item: Any, within: Within = None) -> Any:
        """Queue an item for the handler of its kind and return its result once that is committed."""
        if kind not in self._handlers:
            raise ValueError(f"no handler for {kind!r}")
        return await self._enqueue(kind, item, within)

    def register(
        self,
        kind: str,
        handler: Callable[[Connection, list[Item]], Sequence[Result | Exception]],
        *,
        gather: bool = False,
    ) -> None:
        """Say who treats the items of a kind.

        Items queued next to each other come together in one call. With `gather` all of a batch do, at
        the place of the first: for kinds whose order among concurrent others does not matter.
        """
        self._handlers[kind] = (handler, gather)

    def on_committed(self, hook: Callable[[], object]) -> None:
        """Run `hook` on the event loop after each commit, before the results are handed out."""
        self._hooks.append(hook)

    def connect(self) -> None:
        """Open the writer's connection now, where it has to be known that there can be one."""
        self._connection()

    def disconnect(self) -> None:
        """Let go of a connection that nothing was asked of yet."""
        self._disconnect()

    @property
    def closed(self) -> bool:
        """Whether nothing more is taken."""
        return self._closed

    @property
    def queued(self) -> int:
        """How many operations wait or run."""
        return self._queued

    def _enqueue(self, kind: str, work: Any, within: Within) -> asyncio.Future[Any]:
        self._check_open()
        if self._queued >= self._max_queued:
            raise HoplineError("overloaded", "the store has too much to do", retry_after=1.0)
        return self._put(kind, work, within)

    def _check_open(self) -> None:
        if self._closed:
            raise HoplineError("unavailable", "the store is closed")

    def _put(self, kind: str, work: Any, within: Within) -> asyncio.Future[Any]:
        loop = self._loop or self._start()
        future: asyncio.Future[Any] = loop.create_future()
        self._queued += 1
        self._queue.put(_Entry(future, kind, work, within))
        return future

    def _start(self) -> asyncio.AbstractEventLoop:
        self._loop = loop = asyncio.get_running_loop()
        self._thread = threading.Thread(
            target=self._work, args=(loop,), name=f"{self._name} writer", daemon=True
        )
        self._thread.start()
        return loop

    async def close(self) -> None:
        """Finish what is queued, then stop."""
        if self._closed:
            return
        self._closed = True
        if self._thread is not None:
            self._queue.put(None)
            await asyncio.to_thread(self._thread.join)
        else:
            self._disconnect()

    def _hand_out(self, outcomes: list[_Outcome], callbacks: list[Callable[[], object]]) -> None:
        """Give the callers of a batch what it came to."""
        self._queued -= len(outcomes)
        for callback in callbacks:
            try:
                callback()
            except Exception:
                log.exception("a callback after a commit failed")
        for future, result, error in outcomes:
            if future.done():
                continue  # its caller has gone
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

    # --- on the writer's thread -------------------------------------------------------------------

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        last = False
        while not last and (entry := self._queue.get()) is not None:
            batch, last = self._collect(entry)
            outcomes, callbacks = self._process(batch)
            try:
                loop.call_soon_threadsafe(self._hand_out, outcomes, callbacks)
            except RuntimeError:
                log.warning("%d results found no event loop any more", len(outcomes))
        self._disconnect()

    def _collect(self, first: _Entry) -> tuple[list[_Entry], bool]:
        """Take everything that is queued at this moment."""
        batch = [first]
        most = self._max_queued if self._was_locked else self._max_batch
        while len(batch) < most:
            try:
                entry = self._queue.get_nowait()
            except queue.Empty:
                break
            if entry is None:
                return batch, True
            batch.append(entry)
        return batch, False

    def _process(self, batch: list[_Entry]) -> tuple[list[_Outcome], list[Callable[[], object]]]:
        gone = [_Outcome(entry.future, None, None) for entry in batch if entry.future.cancelled()]
        units = self._units([entry for entry in batch if not entry.future.cancelled()])
        if not units:
            return gone, []
        try:
            with self._lock:
                outcomes, callbacks = self._run(units)
        except Exception as error:
            failure = self._failed(error)
            lost = [_Outcome(entry.future, None, failure) for unit in units for entry in unit.entries]
            return gone + lost, []
        self._was_locked = False
        self.batches += 1
        self.operations += len(outcomes)
        self.sizes.add(len(outcomes))
        return gone + outcomes, [*callbacks, *self._hooks]

    def _run(self, units: list[_Unit]) -> tuple[list[_Outcome], list[Callable[[], object]]]:
        run, tries, had = self._run_all, 1, self._conn is not None
        while True:
            try:
                return self._transaction(units, run)
            except _RunAgainError:
                run = self._run_each
            except _NotBegunError as error:
                # A server that was started again has forgotten the connection: nothing is lost yet.
                if not had:
                    raise error.__cause__ or error from None
                had = False
                self._drop()
            except Exception as error:
                if tries >= _TRIES or not is_conflict(error.__cause__ or error):
                    raise
                tries += 1

    def _units(self, entries: list[_Entry]) -> list[_Unit]:
        """Put together what one handler treats at once, in order of arrival."""
        units: list[_Unit] = []
        gathered: dict[str, _Unit] = {}
        for entry in entries:
            if not entry.kind:
                units.append(_Unit([entry], None))
                continue
            handler, gather = self._handlers[entry.kind]
            unit = gathered.get(entry.kind) if gather else (units[-1] if units else None)
            if unit is not None and unit.entries[0].kind == entry.kind:
                unit.entries.append(entry)
                continue
            units.append(_Unit([entry], handler))
            gathered[entry.kind] = units[-1]
        return units

    def _transaction(
        self, units: list[_Unit], run: Callable[[Connection, list[_Unit]], list[_Outcome]]
    ) -> tuple[list[_Outcome], list[Callable[[], object]]]:
        conn = self._connection()
        callbacks: list[Callable[[], object]] = []
        conn.info[_AFTER_COMMIT] = callbacks
        with conn.begin():
            if self._order is not None:
                self._take_turn(self._order, conn, units)
            outcomes = run(conn, units)
        return outcomes, callbacks

    def _take_turn(self, order: Order, conn: Connection, units: list[_Unit]) -> None:
        try:
            order.take(conn, [entry.within for unit in units for entry in unit.entries])
        except Exception as error:
            if is_cut_off(error):
                raise _NotBegunError from error
            raise

    def _run_all(self, conn: Connection, units: list[_Unit]) -> list[_Outcome]:
        """Run the batch without savepoints: the fast way, for batches in which nothing is undone."""
        outcomes: list[_Outcome] = []
        callbacks: list[Callable[[], object]] = conn.info[_AFTER_COMMIT]
        written = _written(conn, self._order)
        for unit in units:
            before, kept = written(), len(callbacks)
            try:
                outcomes += unit.run(conn)
            except Exception as error:
                _raise_if_broken(error)
                # A refusal that has written nothing needs no undoing; most are like that.
                if len(unit.entries) > 1 or before is None or written() != before:
                    raise _RunAgainError from error
                del callbacks[kept:]
                outcomes.append(_Outcome(unit.entries[0].future, None, error))
        return outcomes

    def _run_each(self, conn: Connection, units: list[_Unit]) -> list[_Outcome]:
        """Run the batch with a savepoint around each operation, so that a bad one fails alone."""
        outcomes: list[_Outcome] = []
        for unit in units:
            try:
                outcomes += _in_savepoint(conn, unit)
            except Exception as error:
                _raise_if_broken(error)
                if len(unit.entries) > 1:
                    outcomes += self._run_each(conn, unit.singly())
                else:
                    outcomes.append(_Outcome(unit.entries[0].future, None, error))
        return outcomes

    def _connection(self) -> Connection:
        if self._conn is None:
            conn = self._engine.connect()
            if self._order is not None:
                try:
                    self._order.connected(conn)
                except BaseException:
                    conn.close()
                    raise
            self._conn = conn
        return self._conn

    def _failed(self, error: Exception) -> BaseException:
        """Say why a whole batch failed, and start the next one on a fresh connection."""
        self._drop()
        cause = error.__cause__ or error
        self._was_locked = is_locked(cause)
        if needs_room(cause):
            self._make_room()
        text = error.text if isinstance(error, _BrokenError) else store_failure(error)
        return unavailable(cause, text) if text is not None else error

    def _drop(self) -> None:
        """Let go of a connection that may be broken."""
        if self._conn is not None and not isinstance(self._engine.pool, StaticPool):
            self._conn.invalidate()
        self._disconnect()

    def _make_room(self) -> None:
        """Take the log of writes into the database's file, which makes room where the log fills the disk."""
        try:
            connection = self._engine.raw_connection()
            try:
                connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")
            finally:
                connection.close()
        except Exception as error:
            log.warning("no room could be made for the store: %s", error)

    def _disconnect(self) -> None:
        if self._conn is not None:
            try:
                self._conn.close()
            except Exception:
                log.warning("a connection could not be closed", exc_info=True)
            self._conn = None


def _in_savepoint(conn: Connection, unit: _Unit) -> list[_Outcome]:
    kept = len(conn.info[_AFTER_COMMIT])
    try:
        with conn.begin_nested():
            return unit.run(conn)
    except Exception:
        del conn.info[_AFTER_COMMIT][kept:]
        raise


def _raise_if_broken(error: Exception) -> None:
    text = store_failure(error)
    if text is not None:
        raise _BrokenError(text) from error


def _written(conn: Connection, order: Order | None) -> Callable[[], int | None]:
    """Return what counts the changes so far; it says None where that cannot be told."""
    driver: Any = conn.connection.driver_connection
    if order is not None:
        return lambda: order.written(driver)
    return lambda: int(driver.total_changes)
