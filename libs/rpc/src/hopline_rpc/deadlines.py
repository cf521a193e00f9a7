"""One timer for everything that may run out of time.

Most calls finish long before their deadline, and a timer for each would cost every call what only few
need. The one timer stands at the earliest deadline it knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final, Generic, Protocol, TypeVar

# Event loops count in milliseconds and may be that much early.
_EARLY: Final = 0.001


class Timed(Protocol):
    """Something with a deadline on the event loop's clock; None: it may take as long as it likes."""

    deadline: float | None

    def expire(self) -> None:
        """End it because its time is over. It may leave the set later."""
        ...


T = TypeVar("T", bound=Timed)


class Deadlines(Generic[T]):
    """A set whose members are told when their time is over: first come, first told."""

    def __init__(self) -> None:
        self._members: dict[T, None] = {}
        self._due: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[T]:
        return iter(self._members)

    def add(self, member: T) -> None:
        """Take a member in."""
        self._members[member] = None
        if member.deadline is not None and (self._due is None or member.deadline < self._due):
            self._set_timer(member.deadline)

    def discard(self, member: T) -> None:
        """Let a member go, if it is one."""
        self._members.pop(member, None)

    def _set_timer(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = due
        self._timer = asyncio.get_running_loop().call_at(due, self._look)

    def _look(self) -> None:
        """Tell those whose time is over, and stand at the next deadline."""
        now = asyncio.get_running_loop().time() + _EARLY
        self._due = self._timer = None
        late = []
        soonest: float | None = None
        for member in self._members:
            due = member.deadline
            if due is None:
                continue
            if due <= now:
                late.append(member)
            elif soonest is None or due < soonest:
                soonest = due
        if soonest is not None:
            self._set_timer(soonest)
        for member in late:
            member.expire()
