"""One agent under supervision: when its worker is started, ended, and started again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol

from hopline_rpc.clock import Clock
from hopline_rpc.errors import HoplineError

log = logging.getLogger("hopline.supervise")

_FIRST_SECONDS: Final = 1.0
_LONGEST_SECONDS: Final = 60.0
# One that ran for so long did not fail at its start.
HEALTHY_SECONDS: Final = 60.0
# What a worker that was asked to end gets for its turns; longer than its own grace.
END_SECONDS: Final = 30.0


@dataclass(frozen=True)
class State:
    """How it stands with the agent, as the relay said last."""

    waiting: int = 0
    running: int = 0
    is_attached: bool = False
    problem: str = ""

    @property
    def wants_worker(self) -> bool:
        """Whether there is work, and nobody who does it."""
        return self.waiting > 0 and not self.is_attached and not self.problem

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs, and nothing that waits could."""
        return not self.running and (not self.waiting or bool(self.problem))


class Running(Protocol):
    """A worker that was started."""

    @property
    def exited(self) -> asyncio.Future[int]:
        """Its exit status, once it has ended."""
        ...

    def end(self, *, at_once: bool = False) -> None:
        """Ask it to end, or make it."""
        ...

    async def close(self) -> None:
        """Take back what it was given, once it has ended."""
        ...


def pause(failures: int, chance: float) -> float:
    """Return how long after so many failures in a row it is started again; `chance` spreads them."""
    longest = min(_LONGEST_SECONDS, _FIRST_SECONDS * 2.0 ** min(failures - 1, 10))
    return longest * (0.5 + chance / 2)


class Attendant:
    """Starts and ends the worker of one agent."""

    def __init__(
        self,
        name: str,
        idle_seconds: float,
        start: Callable[[], Awaitable[Running]],
        clock: Clock,
        chance: Callable[[], float],
    ) -> None:
        self._name = name
        self._idle_seconds = idle_seconds
        self._start = start
        self._clock = clock
        self._chance = chance
        # None while the relay is not heard.
        self._state: State | None = None
        self._news = asyncio.Event()
        self._stopping = False
        self._failures = 0

    def told(self, state: State | None) -> None:
        """Note how it stands with the agent; None: nobody says so just now."""
        if (
            state is not None
            and state.problem
            and (self._state is None or self._state.problem != state.problem)
        ):
            log.warning("%s: not started: %s", self._name, state.problem)
        self._state = state
        self._news.set()

    def stop(self) -> None:
        """End the worker, and start none any more; `run` then returns."""
        self._stopping = True
        self._news.set()

    async def run(self) -> None:
        """Attend to the agent until `stop`."""
        while not self._stopping:
            if self._state is None or not self._state.wants_worker:
                await self._news_or(None)
                continue
            try:
                running = await self._start()
            except HoplineError as error:
                await self._failed(f"cannot be started: {error.message}")
                continue
            log.info("%s: started: %d waiting", self._name, self._state.waiting if self._state else 0)
            await self._attend(running)

    async def _attend(self, running: Running) -> None:
        """Stay with a worker until it has ended."""
        began = self._clock.monotonic()
        running.exited.add_done_callback(lambda _: self._news.set())
        try:
            why = await self._until_over(running)
            if why:
                await self._end(running, why)
                self._failures = 0
        finally:
            await running.close()
        if not why:
            if self._clock.monotonic() - began >= HEALTHY_SECONDS:
                self._failures = 0
            await self._failed(f"its worker ended with status {running.exited.result()}")

    async def _until_over(self, running: Running) -> str:
        """Return why the worker is to be ended; empty: it has ended by itself."""
        idle_since: float | None = None
        while not running.exited.done():
            if self._stopping:
                return "the supervisor ends"
            now = self._clock.monotonic()
            # Without news of the agent nothing is known of its turns: it stays.
            idle = self._state is not None and self._state.is_idle
            idle_since = (now if idle_since is None else idle_since) if idle else None
            left = None if idle_since is None else idle_since + self._idle_seconds - now
            if left is not None and left <= 0:
                return f"nothing to do for {self._idle_seconds:.0f} s"
            await self._news_or(left)
        return ""

    async def _end(self, running: Running, why: str) -> None:
        log.info("%s: ending its worker: %s", self._name, why)
        running.end()
        over = self._clock.monotonic() + END_SECONDS
        while not running.exited.done():
            left = over - self._clock.monotonic()
            if left <= 0:
                log.warning("%s: its worker did not end within %.0f s and is killed", self._name, END_SECONDS)
                running.end(at_once=True)
                await asyncio.wait({running.exited})
                break
            await self._news_or(left)
        log.info("%s: its worker has ended", self._name)

    async def _failed(self, what: str) -> None:
        """Say what went wrong, and let some time pass, more each time."""
        self._failures += 1
        seconds = pause(self._failures, self._chance())
        log.warning("%s: %s; if there is work it is started again in %.1f s", self._name, what, seconds)
        until = self._clock.monotonic() + seconds
        while not self._stopping and (left := until - self._clock.monotonic()) > 0:
            await self._news_or(left)

    async def _news_or(self, seconds: float | None) -> None:
        """Wait for news, or until so many seconds have passed."""
        timer = None if seconds is None else self._clock.call_later(seconds, self._news.set)
        try:
            await self._news.wait()
            self._news.clear()
        finally:
            if timer is not None:
                timer.cancel()
