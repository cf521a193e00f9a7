"""Turns single calls into batches: whatever has queued up while one batch was under way is the next."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

from hopline_rpc.calls import detach
from hopline_rpc.clock import Clock, Handle
from hopline_rpc.errors import HoplineError

log = logging.getLogger("hopline.relay")

Item = TypeVar("Item")
Result = TypeVar("Result")

_RETRY_SECONDS: Final = 1.0

Handler = Callable[[list[Item]], Awaitable[Sequence[Result | BaseException]]]


_Entry = tuple[Item, asyncio.Future[Result] | None]


class Batcher(Generic[Item, Result]):
    """Calls `handler` with at most `most` items at once, one call after the other, in order of arrival.

    The handler returns a result or an exception for each. A caller that goes away does not end the work.
    Over `bound` waiting items new ones are `overloaded`. With a `clock`, what was posted is tried again
    every second while it fails for a reason that passes, such as a full disk.
    """

    def __init__(
        self,
        name: str,
        handler: Handler[Item, Result],
        *,
        most: int = 128,
        bound: int = 8192,
        clock: Clock | None = None,
    ) -> None:
        self._name = name
        self._handler = handler
        self._most = most
        self._bound = bound
        self._waiting: deque[_Entry[Item, Result]] = deque()
        self._running: asyncio.Task[None] | None = None
        self._clock = clock
        self._again: deque[Item] = deque()
        self._alarm: Handle | None = None
        self._draining = False
        self._watching: list[asyncio.Future[None]] = []

    async def submit(self, item: Item) -> Result:
        """Add an item and wait for its result."""
        return await self.enqueue(item)

    def enqueue(self, item: Item) -> asyncio.Future[Result]:
        """Add an item, and return the future of its result."""
        if len(self._waiting) >= self._bound:
            raise HoplineError("overloaded", "the relay has too much to do", retry_after=1.0)
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._add(item, future)
        return future

    def post(self, item: Item) -> None:
        """Add an item that nobody waits for; a failure is logged. Not bounded: it follows from calls."""
        self._add(item, None)

    async def drained(self) -> None:
        """Wait until nothing is queued or under way; what has failed before is tried once more, now."""
        self._try_again()
        self._draining = True
        try:
            while self._running is not None:
                await asyncio.wait({self._running})
        finally:
            self._draining = False

    async def begun_before(self) -> None:
        """Wait until the batch that is under way by now is done."""
        if self._running is not None:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._watching.append(done)
            await done

    def _add(self, item: Item, future: asyncio.Future[Result] | None) -> None:
        self._waiting.append((item, future))
        if self._running is None:
            self._running = detach(self._run(), name=f"{self._name} batches")

    async def _run(self) -> None:
        try:
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
                await self._treat(batch)
                self._seen()
        finally:
            self._running = None
            self._seen()

    def _seen(self) -> None:
        """Tell whoever watches that a batch is done."""
        watching, self._watching = self._watching, []
        for done in watching:
            if not done.done():
                done.set_result(None)

    async def _treat(self, batch: list[_Entry[Item, Result]]) -> None:
        try:
            results = await self._handler([item for item, _ in batch])
        except Exception as error:
            results = [error] * len(batch)
        for (item, future), result in zip(batch, results, strict=True):
            if future is None:
                if isinstance(result, BaseException):
                    self._failed(item, result)
            elif future.done():
                continue
            elif isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)

    def _failed(self, item: Item, error: BaseException) -> None:
        """Keep a posted item for another try where that may help."""
        passes = isinstance(error, HoplineError) and error.retryable
        if self._clock is None or self._draining or not passes:
            log.warning("%s: %r", self._name, error)
            return
        self._again.append(item)
        if self._alarm is None:
            log.warning("%s: tried again until it works: %s", self._name, error)
            self._alarm = self._clock.call_later(_RETRY_SECONDS, self._try_again)

    def _try_again(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        while self._again:
            self._add(self._again.popleft(), None)
