"""Batches of two steps: the next one is prepared while the one before waits for the disk."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

from hopline_rpc.calls import detach
from hopline_rpc.errors import HoplineError

Item = TypeVar("Item")
Result = TypeVar("Result")

Results = Sequence[Result | BaseException]
Begin = Callable[[list[Item]], Awaitable[Awaitable[Results[Result]]]]

_MOST: Final = 128
# So many have to wait before a second batch begins: a small one would cost more than it gains.
_WORTH_IT: Final = 32
_UNDER_WAY: Final = 2
_BOUND: Final = 8192


class Pipeline(Generic[Item, Result]):
    """Calls `begin` for one batch after the other, in order of arrival.

    What it returns gives a result or an exception for each item; while that is awaited, the next batch may
    begin. A caller that goes away does not end the work. Over 8192 waiting items new ones are `overloaded`.
    """

    def __init__(self, name: str, begin: Begin[Item, Result]) -> None:
        self._name = name
        self._begin = begin
        self._waiting: deque[tuple[Item, asyncio.Future[Result]]] = deque()
        self._under_way: set[asyncio.Task[None]] = set()
        self._beginning = False

    async def submit(self, item: Item) -> Result:
        """Add an item and wait for its result."""
        return await self.enqueue(item)

    def enqueue(self, item: Item) -> asyncio.Future[Result]:
        """Add an item, and return the future of its result."""
        if len(self._waiting) >= _BOUND:
            raise HoplineError("overloaded", "the relay has too much to do", retry_after=1.0)
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        self._look()
        return future

    async def drained(self) -> None:
        """Wait until nothing is queued or under way."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def begun_before(self) -> None:
        """Wait until every batch that has begun by now is done."""
        begun = set(self._under_way)
        if begun:
            await asyncio.wait(begun)

    def _look(self) -> None:
        """Start the next batch if it is time for one."""
        if self._beginning or not self._waiting or len(self._under_way) >= _UNDER_WAY:
            return
        if self._under_way and len(self._waiting) < _WORTH_IT:
            return
        self._beginning = True
        task = detach(self._treat(), name=f"{self._name} batch")
        self._under_way.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._look()

    async def _treat(self) -> None:
        # Half of a crowd: the other half is prepared while this one is written.
        size = min(len(self._waiting), _MOST, max(_WORTH_IT, len(self._waiting) // 2))
        batch = [self._waiting.popleft() for _ in range(size)]
        try:
            try:
                rest = await self._begin([item for item, _ in batch])
            finally:
                self._beginning = False
                self._look()
            results = await rest
        except Exception as error:
            results = [error] * len(batch)
        for (_, future), result in zip(batch, results, strict=True):
            if future.done():
                continue
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)
