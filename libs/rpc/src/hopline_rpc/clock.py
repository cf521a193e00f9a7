"""Time as an argument: the system's clock, and one that tests move by hand.

Time points are unix seconds as `float`. `now()` is the wall clock and may jump; durations are taken
from `monotonic()`. What waits, waits through the clock, so that a test can let an hour pass at once.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Protocol, TypeVar

from google.protobuf.timestamp_pb2 import Timestamp

T = TypeVar("T")

# Rounds of the event loop that a step of the manual clock gives to whoever it woke.
_SETTLE_ROUNDS = 25


class Handle(Protocol):
    """A callback that was asked for and can be called off."""

    def cancel(self) -> None:
        """Call it off; nothing happens if it has run."""
        ...


class Clock(Protocol):
    """Everything the mesh knows of time."""

    def now(self) -> float:
        """Return the wall clock in unix seconds."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go backwards, from an arbitrary start."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait; zero or less only yields."""
        ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Handle:
        """Run `callback` on the event loop after `seconds`."""
        ...


class SystemClock:
    """The real time."""

    def now(self) -> float:
        """Return the wall clock in unix seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Return the system's monotonic seconds."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait on the event loop."""
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Handle:
        """Run `callback` on the event loop after `seconds`."""
        return asyncio.get_running_loop().call_later(seconds, callback)


class _Alarm:
    """A callback of the manual clock."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Call it off."""
        self.callback = None


class ManualClock:
    """A clock that stands still until a test moves it.

    `advance` wakes the sleepers in the order of their time, each with the clock standing at exactly
    the moment it asked for, and lets what they woke run before it goes on.
    """

    def __init__(self, now: float = 1_750_000_000.0) -> None:
        self._now = now
        self._start = now
        self._alarms: list[tuple[float, int, _Alarm]] = []
        self._order = itertools.count()

    def now(self) -> float:
        """Return the time the test has set."""
        return self._now

    def monotonic(self) -> float:
        """Return the seconds this clock has been moved."""
        return self._now - self._start

    async def sleep(self, seconds: float) -> None:
        """Wait until the test has moved the clock far enough."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        alarm = self.call_later(seconds, lambda: None if woken.done() else woken.set_result(None))
        try:
            await woken
        finally:
            alarm.cancel()

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Handle:
        """Run `callback` when the test has moved the clock far enough."""
        alarm = _Alarm(callback)
        heapq.heappush(self._alarms, (self._now + seconds, next(self._order), alarm))
        return alarm

    async def advance(self, seconds: float) -> None:
        """Let time pass, waking everyone whose moment comes on the way."""
        target = self._now + seconds
        await self.settle()
        while self._alarms and self._alarms[0][0] <= target:
            due, _, alarm = heapq.heappop(self._alarms)
            if alarm.callback is not None:
                self._now = max(self._now, due)
                alarm.callback()
                await self.settle()
        self._now = target
        await self.settle()

    @staticmethod
    async def settle(rounds: int = _SETTLE_ROUNDS) -> None:
        """Let tasks that can run do so, without moving the clock."""
        for _ in range(rounds):
            await asyncio.sleep(0)

    @property
    def sleepers(self) -> int:
        """How many callbacks and sleepers wait for the clock."""
        return sum(1 for _, _, alarm in self._alarms if alarm.callback is not None)


async def wait_for(clock: Clock, awaitable: Awaitable[T], seconds: float) -> T:
    """Await something for at most `seconds` of this clock, else cancel it and raise TimeoutError."""
    work = asyncio.ensure_future(awaitable)
    expired = False

    def expire() -> None:
        nonlocal expired
        expired = True
        work.cancel()

    alarm = clock.call_later(seconds, expire)
    try:
        return await work
    except asyncio.CancelledError:
        # Both at once: whoever was cancelled has to end, and not to take it for the end of a wait.
        task = asyncio.current_task()
        if expired and work.cancelled() and not (task is not None and task.cancelling()):
            raise TimeoutError from None
        work.cancel()
        raise
    finally:
        alarm.cancel()


def to_timestamp(seconds: float) -> Timestamp:
    """Write unix seconds as a protobuf Timestamp, to the microsecond."""
    whole, micros = divmod(round(seconds * 1_000_000), 1_000_000)
    return Timestamp(seconds=whole, nanos=micros * 1000)


def from_timestamp(stamp: Timestamp) -> float:
    """Read a protobuf Timestamp as unix seconds."""
    return stamp.seconds + stamp.nanos / 1_000_000_000


def rfc3339(seconds: float) -> str:
    """Write unix seconds as UTC text with milliseconds, such as 2026-01-31T09:30:00.000Z."""
    moment = datetime.fromtimestamp(round(seconds * 1000) / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def parse_rfc3339(text: str) -> float:
    """Read RFC 3339 text as unix seconds; text without an offset is refused with ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("the time needs an offset, such as Z")
    return moment.timestamp()


def utc_day(seconds: float) -> str:
    """Return the UTC day of a moment, such as 2026-01-31."""
    return datetime.fromtimestamp(seconds, UTC).date().isoformat()
