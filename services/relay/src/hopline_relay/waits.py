"""Calls that wait for a turn: a future each, and a row in the record that outlives a crash.

The row goes only after the answer was handed over. One that is found at a start belongs to a call that
died: if its turn has ended by then, the answer is delivered as a message instead.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass

from hopline_rpc.clock import Clock

from hopline_relay.domain.values import Fault
from hopline_relay.journal import Journal
from hopline_relay.store import waiting


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the turn that somebody waits for came out: `completed`, `failed` or `canceled`."""

    status: str
    reply: str | None = None
    payload: str = ""
    reply_message_id: str = ""
    fault: Fault | None = None


class Waiter:
    """One call that waits. `outcome` is set once it is known; `gone` once the call has stopped waiting."""

    __slots__ = ("_woken", "gone", "id", "key", "outcome", "principal_id", "slot_turn_id")

    def __init__(self, wait_id: str, principal_id: str) -> None:
        self.id = wait_id
        self.principal_id = principal_id
        self.key: tuple[str, str] = ("", "")
        self.gone = False
        # The turn that the call is made from and whose run slot is free while it waits.
        self.slot_turn_id = ""
        self.outcome: Outcome | None = None
        self._woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def tell(self, outcome: Outcome) -> None:
        """Give the outcome to whoever waits."""
        self.outcome = outcome
        self._wake()

    async def wait(self, clock: Clock, seconds: float) -> Outcome | None:
        """Wait for the outcome; None when the time is over."""
        if self.outcome is None and seconds > 0:
            timer = clock.call_later(seconds, self._wake)
            try:
                await self._woken
            finally:
                timer.cancel()
        return self.outcome

    def _wake(self) -> None:
        if not self._woken.done():
            self._woken.set_result(None)


class Waits:
    """The calls of this process that wait."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._waiters: dict[tuple[str, str], list[Waiter]] = defaultdict(list)

    def register(self, workspace_id: str, turn_id: str, waiter: Waiter) -> None:
        """Have `waiter` told of the end of this turn."""
        waiter.key = (workspace_id, turn_id)
        if not waiter.gone:
            self._waiters[waiter.key].append(waiter)

    def leave(self, waiter: Waiter) -> None:
        """Stop waiting."""
        waiter.gone = True
        waiters = self._waiters.get(waiter.key)
        if waiters and waiter in waiters:
            waiters.remove(waiter)
            if not waiters:
                del self._waiters[waiter.key]

    def someone(self, workspace_id: str, turn_id: str, principal_id: str) -> bool:
        """Tell whether a call of this principal waits for the turn right now."""
        return any(
            waiter.principal_id == principal_id for waiter in self._waiters.get((workspace_id, turn_id), ())
        )

    def resolve(self, workspace_id: str, turn_id: str, principal_id: str, outcome: Outcome) -> bool:
        """Tell everyone who waits; False when the principal to whom the answer goes is not among them."""
        told = False
        for waiter in self._waiters.pop((workspace_id, turn_id), []):
            waiter.tell(outcome)
            told = told or waiter.principal_id == principal_id
        return told

    def forget(self, workspace_id: str, wait_id: str) -> None:
        """Drop a wait's row: its answer was handed over, or the call waits no longer."""
        key = (workspace_id, wait_id)
        self._journal.along(lambda book: waiting.remove(book.connection, [key]))
