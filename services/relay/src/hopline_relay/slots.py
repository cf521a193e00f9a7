"""Waiting within a turn: its run slot is somebody else's meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hopline_rpc.clock import Clock

from hopline_relay.admission import Admission
from hopline_relay.signals import Signals
from hopline_relay.waits import Outcome, Waiter


class Slots:
    """Gives run slots back while their turns wait."""

    def __init__(self, admission: Admission, signals: Signals, clock: Clock) -> None:
        self._admission = admission
        self._signals = signals
        self._clock = clock
        # How many calls wait within a turn right now: the last of them takes its slot back.
        self._calls: Counter[tuple[str, str]] = Counter()

    async def wait(self, waiter: Waiter, seconds: float, turn_id: str) -> Outcome | None:
        """Wait, with the run slot of the turn that the call comes from given back; retake it at once."""
        if waiter.outcome is not None or not turn_id:
            return await waiter.wait(self._clock, seconds)
        async with self.given_back(waiter.key[0], turn_id):
            return await waiter.wait(self._clock, seconds)

    @asynccontextmanager
    async def given_back(self, workspace_id: str, turn_id: str) -> AsyncIterator[None]:
        """Have the run slot of a turn given back meanwhile; it is retaken at once."""
        turn = (workspace_id, turn_id)
        self._calls[turn] += 1
        try:
            # In here: it may be heard although the call is cancelled before it comes back.
            await self._admission.set_waiting(workspace_id, turn_id, waiting=True)
            self._signals.slot_free([workspace_id])
            yield
        finally:
            self._calls[turn] -= 1
            self.over(workspace_id, turn_id)

    def over(self, workspace_id: str, turn_id: str) -> None:
        """Say that a turn waits no longer, unless another call of it does.

        Said when the wait ends, and again when its row is gone: counters that were rebuilt in between read
        that row.
        """
        if not self._calls[workspace_id, turn_id]:
            del self._calls[workspace_id, turn_id]
            self._admission.post_waiting(workspace_id, turn_id, waiting=False)
