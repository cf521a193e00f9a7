"""An event loop and a clock in which time is a number: it goes on when nothing else is left to do.

Nothing waits for real. A driver that wants the others to run, but no time to pass, calls `settle`.
"""

from __future__ import annotations

import asyncio
import selectors
import weakref
from collections.abc import Callable
from typing import Any

from hopline_rpc.clock import Handle

_MOMENT = 1e-6


class _NoSelector(selectors.SelectSelector):
    """Instead of waiting for sockets, of which there are none, lets the loop's time go on."""

    loop: VirtualLoop

    # Called with 0 while anything is ready or due.
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout != 0 and self.loop.has_settled():
            return []
        if timeout is None:
            raise RuntimeError("nothing can ever happen any more: everyone waits for somebody else")
        if timeout:
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
        self._settling: list[asyncio.Future[None]] = []
        self._born: weakref.WeakKeyDictionary[asyncio.Task[Any], int] = weakref.WeakKeyDictionary()
        self._number = 0

    def time(self) -> float:
        """Return virtual seconds."""
        return self._virtual

    def create_task(self, *given: Any, **more: Any) -> asyncio.Task[Any]:
        """Make a task, and remember which came first."""
        task: asyncio.Task[Any] = super().create_task(*given, **more)
        self._number += 1
        self._born[task] = self._number
        return task

    def tasks(self) -> list[asyncio.Task[Any]]:
        """Return all tasks but the one that asks, the oldest first: by themselves they have no order."""
        me = asyncio.current_task()
        return sorted((task for task in asyncio.all_tasks() if task is not me), key=self._born.__getitem__)

    @property
    def _timers(self) -> list[asyncio.TimerHandle]:
        """The heap of timers: another list each time the loop has thrown many cancelled ones out."""
        inner: Any = self
        timers: list[asyncio.TimerHandle] = inner._scheduled
        return timers

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
        idle = self.create_future()
        self._settling.append(idle)
        await idle

    def has_settled(self) -> bool:
        """Wake who waits for nothing else to be ready; tells whether anyone did."""
        settling, self._settling = self._settling, []
        for idle in settling:
            if not idle.done():
                idle.set_result(None)
        return bool(settling)

    def forget_everything(self) -> None:
        """Drop all that is ready or scheduled, as the end of a process does."""
        self._ready_ones.clear()
        self._settling.clear()
        for timer in list(self._timers):
            timer.cancel()


class VirtualClock:
    """The clock of the mesh: the loop's seconds, and a wall clock that may be set to anything."""

    def __init__(self, loop: VirtualLoop, wall: float) -> None:
        self.loop = loop
        self._offset = wall
        self._latest = wall

    def set_by(self, seconds: float) -> None:
        """Set the wall clock forward or back; no time passes."""
        self._latest = self.latest()
        self._offset += seconds

    def latest(self) -> float:
        """Return the latest that the wall clock ever was."""
        return max(self._latest, self.now())

    def now(self) -> float:
        """Return the wall clock in unix seconds."""
        return self.loop.time() + self._offset

    def monotonic(self) -> float:
        """Return seconds that never go backwards."""
        return self.loop.time()

    async def sleep(self, seconds: float) -> None:
        """Wait for virtual seconds."""
        await asyncio.sleep(max(0.0, seconds))

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Handle:
        """Run `callback` after virtual seconds."""
        return self.loop.call_later(max(0.0, seconds), callback)
