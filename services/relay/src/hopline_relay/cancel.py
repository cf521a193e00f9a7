"""Cancelling: a turn, what only it waits for, and everything of an agent that is paused or deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from hopline_rpc.errors import HoplineError
from sqlalchemy import Connection

from hopline_relay.callers import no_turn
from hopline_relay.domain.batches import held_by_worker, leads, rides
from hopline_relay.domain.values import MESH, Actor, Fault
from hopline_relay.endings import Ending, Endings
from hopline_relay.escalation_ends import EscalationEnds
from hopline_relay.held import CancelOutcome, Held
from hopline_relay.journal import Journal
from hopline_relay.store import debting, queues, subtree
from hopline_relay.store.batches import canceled_with
from hopline_relay.store.sql import Record
from hopline_relay.store.turns import Ended
from hopline_relay.whole import Whole

# A chain is bounded by the depth rail; this bounds what one call may cancel.
MAX_CANCELED: Final = 10_000
_TRIES: Final = 5
_ROUNDS: Final = 100
_LIVE: Final = ("queued", "running")


async def _nothing_left(turns: Sequence[Record]) -> None:
    """Nothing was left."""


class Cancels:
    """Cancels turns."""

    def __init__(self, journal: Journal, endings: Endings, escalations: EscalationEnds) -> None:
        self._journal = journal
        self._endings = endings
        self._escalations = escalations
        # `[(workspace_id, agent_id, held, reason)]` that their workers must stop.
        self.on_cancel: Callable[[list[tuple[str, str, Held, str]]], None] = lambda stopped: None
        # Called with a turn that a person cancels: ends the answers that it owes, or goes on with, where they
        # are held, and returns the turns that owed them.
        self.on_canceled: Callable[[Record, Fault, Actor], Awaitable[list[Record]]] = _nothing_held
        # Called with turns of one workspace that were cancelled: what they left to themselves ends too.
        self.on_ended: Callable[[Sequence[Record]], Awaitable[None]] = _nothing_left
        self._whole = Whole("cancel")

    async def cancel_whole(
        self, workspace_id: str, turn_id: str, fault: Fault, actor: Actor, *, tell: bool
    ) -> CancelOutcome:
        """Do as `cancel`; a caller that goes away does not stop it half-way."""
        work = self.cancel(workspace_id, turn_id, fault, actor, tell=tell)
        return await self._whole.run(work, lambda done: done.cancelled() or done.exception())

    async def drained(self) -> None:
        """Wait until nothing is under way."""
        await self._whole.drained()

    async def cancel(
        self, workspace_id: str, turn_id: str, fault: Fault, actor: Actor = MESH, *, tell: bool = True
    ) -> CancelOutcome:
        """End a turn, then what only it waits for. `tell`: whoever asked is told.

        One that has ended keeps its state; what still goes on for it ends all the same, so that a call
        which was cut short is completed by the next.
        """
        for _ in range(_TRIES):
            rows = await self._journal.read(
                lambda connection: queues.find(connection, {(workspace_id, turn_id)})
            )
            row = rows.get((workspace_id, turn_id))
            if row is None:
                raise no_turn(turn_id)
            ended = row.state not in ("queued", "running")
            given_up = await self.on_canceled(row, fault, actor) if actor.kind != MESH.kind else []
            if not ended and not await self._end(row, fault, actor, tell=tell):
                continue
            above = {each.id: each for each in (row, *given_up)}
            if ended and leads(row):
                # A worker that stops a batch stops all of it.
                along = await self._journal.read(partial(canceled_with, row=row))
                above |= {each.id: each for each in along}
            below = await self.cascade(list(above.values()), fault, actor, wakes=True)
            if ended:
                # What it has asked its owner would go on with it.
                await self._escalations.turns_canceled(list(above.values()))
            if ended:
                # What is held of its answer is all that was left of it.
                return CancelOutcome("canceled" if given_up else row.state, below)
            return CancelOutcome("canceled", 1 + below)
        raise HoplineError("unavailable", "the turn keeps changing; try again")

    async def fail(self, row: Record, fault: Fault, delivery: str = "failed") -> bool:
        """End a turn as failed, then what only it waits for; its worker is told to stop."""
        ended = Ended(
            row.workspace_id, row.id, (row.state,), "failed", delivery, attempt=row.attempt, fault=fault
        )
        if not await self._endings.end(Ending(ended)):
            return False
        self._stop([row], fault.message)
        await self.cascade([row], fault, MESH)
        return True

    async def cascade(
        self, above: Sequence[Record], fault: Fault, actor: Actor, *, wakes: bool = False
    ) -> int:
        """Cancel what goes on only for these turns; returns how many turns ended.

        `wakes`: what replies to them would go on with as well. An agent that is paused or loses its worker
        gets those later.
        """
        canceled = 0
        # Those further down need not know who stands at the other end of the chain.
        fault = Fault(fault.code, "canceled with the work that it was asked for")
        for _ in range(_ROUNDS):
            if not above or canceled >= MAX_CANCELED:
                break
            if wakes:
                # First, so that whatever woke them just before is found below.
                await self.on_ended(above)
            find = partial(
                subtree.below,
                workspace_id=above[0].workspace_id,
                above=above,
                wakes=wakes,
                most=MAX_CANCELED,
            )
            live = await self._journal.read(find)
            # Nobody is left who could be told.
            ended = await asyncio.gather(*(self._end(row, fault, actor, tell=False) for row in live))
            canceled += sum(ended)
            # What was claimed or queued again meanwhile is looked for once more, below those above it.
            above = [row for row, done in zip(live, ended, strict=True) if done] + (
                [] if all(ended) else list(above)
            )
        return canceled

    async def resume(self, workspace_ids: Sequence[str]) -> None:
        """Complete what a process that died had begun to cancel."""
        fault = Fault("canceled", "canceled with the work that it was asked for")
        for workspace_id in workspace_ids:
            find = partial(subtree.left_over, workspace_id=workspace_id, now=self._journal.clock.now())
            for row in await self._journal.read(find):
                if await self._end(row, fault, MESH, tell=False):
                    await self.cascade([row], fault, MESH)

    async def agent_stopped(self, workspace_id: str, agent_id: str, fault: Fault, *, deleted: bool) -> None:
        """End what a paused or deleted agent runs and owes; with `deleted` also what goes on for it."""
        for _ in range(_TRIES):
            rows = await self._journal.read(
                lambda connection: _affected(connection, workspace_id, agent_id, deleted=deleted)
            )
            changed = False
            for row in rows:
                given_up = deleted and row.state == "queued" and row.agent_id == agent_id
                if await self._end(row, fault, MESH, tell=True, delivery="dead" if given_up else ""):
                    await self.cascade([row], fault, MESH)
                else:
                    changed = True  # queued again, say: it is looked at once more
            if not changed:
                return

    async def _end(self, row: Record, fault: Fault, actor: Actor, *, tell: bool, delivery: str = "") -> bool:
        """Cancel one turn; what ran in one batch with it is stopped and queued again."""
        held = await self._held_with(row)
        delivery = delivery or ("failed" if row.state == "running" else "withdrawn")
        ended = Ended(
            row.workspace_id,
            row.id,
            (row.state,),
            "canceled",
            delivery,
            attempt=row.attempt,
            fault=fault,
            actor=actor,
        )
        if not await self._endings.end(Ending(ended, tell=tell, spares=True)):
            return False
        self._stop(held, fault.message)
        return True

    async def _held_with(self, row: Record) -> list[Record]:
        """Return the turn that a worker holds for this one, as it is seen before the end."""
        if not rides(row):
            return [row]
        key = (row.workspace_id, row.batch_id)
        return list((await self._journal.read(lambda connection: queues.find(connection, {key}))).values())

    def _stop(self, rows: Sequence[Record], reason: str) -> None:
        stopped = [
            (row.workspace_id, row.agent_id, Held(row.id, row.attempt), reason)
            for row in rows
            if row.state == "running" and held_by_worker(row)
        ]
        if stopped:
            self.on_cancel(stopped)


async def _nothing_held(turn: Record, fault: Fault, actor: Actor) -> list[Record]:
    """Stand in for what holds answers."""
    return []


def _affected(connection: Connection, workspace_id: str, agent_id: str, *, deleted: bool) -> list[Record]:
    running = list(queues.running_of(connection, workspace_id, agent_id))
    if deleted:
        # What others owe it, nobody would get any more: that it has ended its own turns changes nothing.
        owed_to_it = debting.owed_to(connection, workspace_id, agent_id)
        found = queues.find(connection, {(workspace_id, debt.turn_id) for debt in owed_to_it})
        others = [row for row in found.values() if row.state in _LIVE]
        mine = [*running, *queues.queued_of(connection, workspace_id, agent_id, MAX_CANCELED)]
        known = {row.id for row in mine}
        return [*mine, *(row for row in others if row.id not in known)]
    owing = {(workspace_id, debt.turn_id) for debt in debting.owed_by(connection, workspace_id, agent_id)}
    known = {row.id for row in running}
    owed = queues.find(connection, owing)
    return running + [row for row in owed.values() if row.id not in known and row.state == "queued"]
