"""Calls of tools that wait for a run slot, or for a place at a worker; nothing of them is in the record yet.

First in, first out. What comes free wakes a few at the head of the line: one of them gets it, the others
keep their places, and whoever leaves the line wakes the next.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hopline_rpc.clock import Clock, wait_for
from hopline_rpc.errors import HoplineError

# Calls of one agent's tools that wait at most.
MAX_WAITING: Final = 256
_AT_ONCE: Final = 4


class NoPlaceError(Exception):
    """There is no run slot (`slot`), or no place at a worker of the agent, for the call of a tool."""

    def __init__(self, agent_id: str, *, slot: bool) -> None:
        super().__init__("no place for the call of a tool")
        self.agent_id = agent_id
        self.slot = slot


@dataclass(slots=True, eq=False)
class Waiting:
    """One call, from its first attempt on; `number` is its place in the line."""

    workspace_id: str
    number: int
    # How often something had come free when it was tried last.
    seen: int
    why: NoPlaceError | None = None
    news: asyncio.Future[None] | None = None


class ToolQueue:
    """The lines of all workspaces."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._numbers = itertools.count(1)
        self._lines: dict[str, dict[int, Waiting]] = {}
        self._freed: Counter[str] = Counter()

    def enter(self, workspace_id: str) -> Waiting:
        """Return a place in the line, for a call that is about to be tried."""
        return Waiting(workspace_id, next(self._numbers), self._freed[workspace_id])

    async def wait(self, call: Waiting, why: NoPlaceError, seconds: float) -> None:
        """Wait until it may try again; TimeoutError when its time is over."""
        call.why = why
        line = self._lines.setdefault(call.workspace_id, {})
        if (
            sum(each.why is not None and each.why.agent_id == why.agent_id for each in line.values())
            >= MAX_WAITING
        ):
            raise HoplineError(
                "inbox_full", f"{MAX_WAITING} calls of its tools wait already; try again later"
            )
        call.news = asyncio.get_running_loop().create_future()
        line[call.number] = call
        if call.seen != self._freed[call.workspace_id]:
            self._wake(call.workspace_id, _like(why))  # it may have been for this one
        try:
            await wait_for(self._clock, call.news, seconds)
        finally:
            del line[call.number]
            if not line:
                del self._lines[call.workspace_id]
            call.seen = self._freed[call.workspace_id]

    def leave(self, call: Waiting) -> None:
        """Let the next one try: more may have come free than this one took."""
        if call.why is not None:
            self._wake(call.workspace_id, _like(call.why))

    def slot_free(self, workspace_id: str) -> None:
        """Say that a run slot has come free."""
        self._freed[workspace_id] += 1
        self._wake(workspace_id, lambda why: why.slot)

    def place_free(self, workspace_id: str, agent_id: str) -> None:
        """Say that a place at a worker of an agent has come free."""
        self._freed[workspace_id] += 1
        self._wake(workspace_id, lambda why: not why.slot and why.agent_id == agent_id)

    def gone(self, workspace_id: str, agent_id: str) -> None:
        """Say that a worker of an agent has left: whoever waits for one hears what is the matter now."""
        self._freed[workspace_id] += 1
        self._wake(workspace_id, lambda why: why.agent_id == agent_id, MAX_WAITING)

    def _wake(self, workspace_id: str, wanted: Callable[[NoPlaceError], bool], most: int = _AT_ONCE) -> None:
        line = self._lines.get(workspace_id)
        if not line:
            return
        for number in sorted(line):
            call = line[number]
            if call.why is None or call.news is None or not wanted(call.why):
                continue
            if not call.news.done():
                call.news.set_result(None)
            most -= 1
            if not most:
                return


def _like(why: NoPlaceError) -> Callable[[NoPlaceError], bool]:
    return lambda other: other.slot == why.slot and (why.slot or other.agent_id == why.agent_id)
