"""Waiting for an RPC that waits: progress meanwhile, and an early end by a drain or a revocation.

Whatever ends a wait, it ends the wait alone: the work in the mesh goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from hopline_rpc.calls import CallInfo, LiveCalls
from hopline_rpc.clock import Clock
from hopline_rpc.errors import HoplineError
from hopline_rpc.ids import IdMaker
from hopline_rpc.principals import Principal

Answer = TypeVar("Answer")
Report = Callable[[float, float, str], Awaitable[None]]
"""`await report(progress, total, message)` sends a progress notification."""

# Often enough for clients and proxies that give up after 15 s of silence.
PROGRESS_SECONDS: Final = 5.0


class Waits:
    """The waits of this gateway that are going on."""

    def __init__(self, clock: Clock, ids: IdMaker) -> None:
        self._clock = clock
        self._ids = ids
        self._ended = False
        self.live = LiveCalls()

    async def run(
        self,
        principal: Principal,
        work: Coroutine[Any, Any, Answer],
        seconds: int,
        report: Report | None,
        what: str,
    ) -> Answer:
        """Await `work`, reporting every few seconds how much of `seconds` has passed."""
        if self._ended:
            work.close()
            raise _draining()
        task = asyncio.ensure_future(work)
        call = CallInfo("wait", "", self._ids, task)
        call.principal = principal
        self.live.add(call)
        try:
            if report is not None:
                # Over a stream that nobody reads a report would never return; the RPC does by then.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(seconds + PROGRESS_SECONDS):
                        await self._report_until_done(task, seconds, report, what)
            return await task
        except asyncio.CancelledError:
            if call.ending is not None:
                raise call.ending from None
            raise
        finally:
            task.cancel()
            self.live.discard(call)

    async def _report_until_done(
        self, task: asyncio.Future[Answer], seconds: int, report: Report, what: str
    ) -> None:
        started = self._clock.monotonic()
        while not task.done():
            tick = asyncio.ensure_future(self._clock.sleep(PROGRESS_SECONDS))
            both: set[asyncio.Future[Any]] = {task, tick}
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                tick.cancel()
            if not task.done():
                passed = round(self._clock.monotonic() - started, 1)
                await report(min(passed, seconds), seconds, f"{what} ({passed:g} s of at most {seconds})")

    def end_all(self) -> None:
        """End every wait, and let no new one begin."""
        self._ended = True
        self.live.end(lambda call: True, _draining())


def _draining() -> HoplineError:
    return HoplineError(
        "unavailable", "the gateway is shutting down and ended the wait; the work itself goes on"
    )
