"""The store without threads: what a thread would do happens on the event loop, a few rounds later.

How many rounds comes from the seed, so that reads and commits interleave with calls in many ways, and in
the same way each time. Files lie in memory and are not flushed: a kill here is the end of a process, not
of a machine.
"""

from __future__ import annotations

import asyncio
import queue
import random
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from hopline_rpc.errors import HoplineError
from hopline_store import Database, Reader, Writer, migrate, open_engine
from sqlalchemy import Connection, Engine, event

T = TypeVar("T")

_MOST_ROUNDS = 3


class Process:
    """What a kill ends: stores that belong to it answer nothing any more."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.dead = False

    def rounds(self) -> int:
        """How many rounds of the event loop the next operation takes."""
        return self.rng.randrange(_MOST_ROUNDS)


class InlineWriter(Writer):
    """Commits on the event loop."""

    process: Process
    _waking = False

    def _start(self) -> asyncio.AbstractEventLoop:
        self._loop = asyncio.get_running_loop()
        return self._loop

    def _enqueue(self, kind: str, work: Any, within: Sequence[str] | None) -> asyncio.Future[Any]:
        if self.process.dead:
            raise HoplineError("unavailable", "this process was killed")
        future = super()._enqueue(kind, work, within)
        if not self._waking:
            self._waking = True
            self._wake(self.process.rounds())
        return future

    def _wake(self, rounds: int) -> None:
        loop = asyncio.get_running_loop()
        if rounds:
            loop.call_soon(self._wake, rounds - 1)
        else:
            loop.call_soon(self._commit)

    def _commit(self) -> None:
        self._waking = False
        if self.process.dead:
            return
        while True:
            try:
                entry = self._queue.get_nowait()
            except queue.Empty:
                return
            if entry is not None:
                batch, _ = self._collect(entry)
                self._hand_out(*self._process(batch))

    async def close(self) -> None:
        """Finish what is queued."""
        self._commit()
        await super().close()
        self._disconnect()


class InlineReader(Reader):
    """Reads on the event loop."""

    process: Process

    async def run(self, fn: Callable[[Connection], T]) -> T:
        """Run `fn` on a read-only connection and return its result."""
        for _ in range(self.process.rounds()):
            await asyncio.sleep(0)
        if self._closed or self.process.dead:
            raise HoplineError("unavailable", "the store is closed")
        result: T = self._read(fn)
        return result

    async def close(self) -> None:
        """Close the connections."""
        self._closed = True
        for conn in self._open:
            conn.close()
        self._open.clear()


@cache
def _engine(url: str | Path) -> Engine:
    """Return the engine of a file, the same in every life: it keeps the statements that it has compiled."""
    engine = open_engine(url)
    event.listen(engine, "connect", lambda conn, _: conn.execute("PRAGMA synchronous=OFF"))
    return engine


def opener(process: Process) -> Callable[..., Database]:
    """Return what stands in for `open_database`."""

    def open_inline(url: str | Path, *, migrations: str, name: str, **_: Any) -> Database:
        engine = _engine(url)
        migrate(engine, migrations)
        writer, reader = InlineWriter(engine, name=name), InlineReader(engine, name=name)
        writer.process = reader.process = process
        return Database(engine, writer, reader)

    return open_inline
