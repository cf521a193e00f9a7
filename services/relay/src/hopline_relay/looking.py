"""Looks for what is due: when the next of it is, when it is told of news, and every now and then.

What is due stands in the record, so that a look which fails, or a process that dies, loses nothing: the next
look finds it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from hopline_rpc.calls import detach
from hopline_rpc.clock import Clock
from hopline_rpc.errors import HoplineError

# How often is looked for what another process has set; and how soon again when something failed.
LOOK_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 2.0
SHARED_SECONDS: Final = 1.0


class Looking:
    """Calls `look` whenever something is due.

    `look` returns False where something has to be tried again soon; `next_due` when the next thing is due.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        look: Callable[[], Awaitable[bool]],
        next_due: Callable[[], Awaitable[float | None]],
        *,
        shared: bool = False,
    ) -> None:
        self._name = name
        # Where others write as well, what they set may be due at any time.
        self._most = SHARED_SECONDS if shared else LOOK_SECONDS
        self._clock = clock
        self._look = look
        self._next_due = next_due
        self._log = logging.getLogger(f"hopline.relay.{name}")
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._task = detach(self._run(), name=self._name)

    async def close(self) -> None:
        """Stop; what is due then is found by the next process."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def wake(self) -> None:
        """Say that something may be due earlier than was known."""
        self._news.set()

    async def _run(self) -> None:
        while True:
            self._news.clear()
            seconds = RETRY_SECONDS
            try:
                if await self._look():
                    seconds = await self._rest()
            except HoplineError as error:
                self._log.warning("%s are looked at later: %s", self._name, error.message)
            except Exception:
                self._log.exception("%s cannot be looked at just now", self._name)
            if seconds <= 0:
                continue  # something became due meanwhile
            timer = self._clock.call_later(seconds, self._news.set)
            try:
                await self._news.wait()
            finally:
                timer.cancel()

    async def _rest(self) -> float:
        """Return how long there is nothing to do."""
        due = await self._next_due()
        return self._most if due is None else min(self._most, max(0.0, due - self._clock.now()))
