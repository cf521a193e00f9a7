"""The relay's record: its writer, its readers, and who wants to know when it has grown."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple, TypeVar

from hopline_rpc.clock import Clock, Handle
from hopline_rpc.errors import HoplineError
from hopline_store import Database, after_commit
from sqlalchemy import Connection, bindparam, select, true

from hopline_relay.meters import Meters
from hopline_relay.store.book import Book
from hopline_relay.store.schema import instances, quota_epochs
from hopline_relay.store.sql import Statement

log = logging.getLogger("hopline.relay")

T = TypeVar("T")

# How long what nobody waits for lies about for a transaction to go with.
_ALONG_SECONDS: Final = 0.1
_RETRY_SECONDS: Final = 1.0

_FENCE = Statement(
    select(quota_epochs.c.epoch, instances.c.ended_at)
    .select_from(quota_epochs.join(instances, true()))
    .where(quota_epochs.c.id == 1, instances.c.id == bindparam("instance"))
    .with_for_update(read=True)
)


class FencedError(Exception):
    """The counters' epoch is another one by now, or another process has declared this one dead."""


class _Along(NamedTuple):
    """What goes with the next commit."""

    op: Callable[[Book], object]
    within: tuple[str, ...] | None


class Journal:
    """Reads and writes the record. Every write is a transaction dated to the clock's now."""

    def __init__(self, database: Database, clock: Clock, instance_id: str, *, shared: bool = False) -> None:
        self.database = database
        self.clock = clock
        # Another one once this process was thought dead by others, and began anew.
        self.instance_id = instance_id
        # Whether other processes write to the same record.
        self.shared = shared
        self.meters = Meters()
        self._audit_listeners: list[Callable[[list[str]], None]] = []
        self._along: list[_Along] = []
        self._flush: Handle | None = None

    def on_audit(self, listener: Callable[[list[str]], None]) -> None:
        """Have `listener` called with the workspaces whose audit log has grown."""
        self._audit_listeners.append(listener)

    async def read(self, fn: Callable[[Connection], T]) -> T:
        """Run `fn` on a snapshot that holds everything committed so far."""
        return await self.database.reader.run(fn)

    async def write(
        self, op: Callable[[Book], T], *, epoch: int | None = None, within: Iterable[str] | None = None
    ) -> T:
        """Run `op` in a transaction; it may run twice and must change nothing but the book.

        With `epoch` it goes through only while that is the counters' epoch and this process is alive by
        the record; else `FencedError`. `within`: the workspaces that it is about; other processes write in
        others meanwhile. What does not say is about any, and alone while it runs.
        """
        self._send_along()
        about = None if within is None else tuple(dict.fromkeys(within))
        return await self.database.writer.run(self._transaction(op, epoch, about), about)

    def along(self, op: Callable[[Book], object], within: Iterable[str] | None = None) -> None:
        """Run `op` with the next commit, a moment from now at the latest; nobody waits for it.

        While the store cannot take it, it is tried again.
        """
        about = None if within is None else tuple(dict.fromkeys(within))
        self._add_along(_Along(op, about), _ALONG_SECONDS)

    def _add_along(self, op: _Along, seconds: float) -> None:
        self._along.append(op)
        if self._flush is None:
            self._flush = self.clock.call_later(seconds, self._send_along)

    def _send_along(self) -> None:
        if self._flush is None:
            return
        self._flush.cancel()
        self._flush = None
        along, self._along = self._along, []
        for each in along:
            transaction = self._transaction(each.op, None, each.within)
            self.database.writer.post(transaction, partial(self._not_sent, each), each.within)

    def _not_sent(self, each: _Along, error: BaseException) -> None:
        passes = isinstance(error, HoplineError) and error.retryable
        if passes and not self.database.writer.closed:
            self._add_along(each, _RETRY_SECONDS)
        else:
            log.warning("what nobody waits for could not be written: %r", error)

    def _transaction(
        self, op: Callable[[Book], T], epoch: int | None, within: tuple[str, ...] | None
    ) -> Callable[[Connection], T]:
        def transaction(connection: Connection) -> T:
            if epoch is not None:
                self._check_fence(connection, epoch)
            book = Book(connection, self.clock.now(), within)
            result = op(book)
            grown = book.close()
            if grown:
                after_commit(connection, lambda: self._tell(grown))
            return result

        return transaction

    def _check_fence(self, connection: Connection, epoch: int) -> None:
        row = _FENCE.one(connection, {"instance": self.instance_id})
        if row is None or row.epoch != epoch or row.ended_at is not None:
            raise FencedError

    def _tell(self, workspaces: list[str]) -> None:
        for listener in self._audit_listeners:
            listener(workspaces)
