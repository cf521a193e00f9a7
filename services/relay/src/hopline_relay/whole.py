"""Work that is done to its end, whether or not the call that began it stays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from hopline_rpc.calls import detach

T = TypeVar("T")


class Whole:
    """Runs pieces of work, each as a whole."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._under_way: dict[asyncio.Task[Any], None] = {}

    async def run(self, work: Coroutine[Any, Any, T], left: Callable[[asyncio.Task[T]], object]) -> T:
        """Return what the work comes to; `left` is called with it when the caller has gone before its end."""
        task = detach(work, name=self._name)
        self._under_way[task] = None
        task.add_done_callback(lambda done: self._under_way.pop(done, None))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(left)
            raise

    async def drained(self) -> None:
        """Wait until nothing is under way."""
        while self._under_way:
            await asyncio.wait(list(self._under_way))
