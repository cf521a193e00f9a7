"""An event loop and a clock in which time is a number: it goes on when nothing else is left to do.

Nothing waits for real. A driver that wants the others to run, but no time to pass, calls `settle`.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from typing import Any

from hopline_rpc.clock import Handle

_MOMENT = 1e-6


class _NoSelector(selectors.SelectSelector):
    """Instead of waiting for sockets, of which there are none, lets the loop's time go on."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("nothing can ever happen any more: everyone waits for somebody else")
        if timeout > 0:
            self.loop.pass_to_next_timer()
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs what is ready in the order in which it became so; `time()` is what it was set to."""

    _virtual = 0.0

    def __init__(self) -> None:
        selector = _NoSelector()
        selector.loop = self
        super().__init__(selector)
        inner: Any = self
        self._ready_ones: Any = inner._ready
        self._timers: list[asyncio.TimerHandle] = inner._scheduled

    def time(self) -> float:
        """Return virtual seconds."""
        return self._virtual

    def pass_to_next_timer(self) -> None:
        """Let time go on to the earliest timer, and a moment beyond: what is left of a wait may be too
        little to add to a large number."""
        self._virtual = max(self._virtual, self._timers[0].when() + _MOMENT)

    def skip(self, seconds: float) -> None:
        """Let time pass at once; what was due on the way runs next."""
        self._virtual += max(seconds, 0.0)

    async def run_for(self, seconds: float) -> None:
        """Let time pass from one timer to the next, and everything run that they wake."""
        ends = self._virtual + seconds
        await self.settle()
        while self._timers and self._timers[0].when() <= ends:
            self.pass_to_next_timer()
            await self.settle()
        self._virtual = max(self._virtual, ends)
        await self.settle()

    async def settle(self) -> None:
        """Let everything run that can without time passing."""
        while True:
            await asyncio.sleep(0)
            if not self._ready_ones and not self._due():
                return

    def forget_everything(self) -> None:
        """Drop all that is ready or scheduled, as the end of a process does."""
        self._ready_ones.clear()
        for timer in list(self._timers):
            timer.cancel()

    def _due(self) -> bool:
        return bool(self._timers) and self._timers[0].when() <= self._virtual


class VirtualClock:
    """The clock of the mesh: the loop's seconds, and a wall clock that may be set to anything."""

    def __init__(self, loop: VirtualLoop, wall: float) -> None:
        self.loop = loop
        self.offset = wall

    def now(self) -> float:
        """Return the wall clock in unix seconds."""
        return self.loop.time() + self.offset

    def monotonic(self) -> float:
        """Return seconds that never go backwards."""
        return self.loop.time()

    async def sleep(self, seconds: float) -> None:
        """Wait for virtual seconds."""
        await asyncio.sleep(max(0.0, seconds))

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Handle:
        """Run `callback` after virtual seconds."""
        return self.loop.call_later(max(0.0, seconds), callback)
