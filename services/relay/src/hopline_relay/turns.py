"""What tunnels may do with turns. Every method batches through the writer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hopline_directory import Directory
from hopline_rpc.clock import Clock, Handle
from hopline_rpc.faults import point
from sqlalchemy import bindparam, update

from hopline_relay.admission import Admission, requeued_item
from hopline_relay.batching import Batcher
from hopline_relay.cancel import Cancels
from hopline_relay.claims import Claims
from hopline_relay.domain.batches import held_by_worker
from hopline_relay.domain.values import LEASE_SECONDS, TOOL, Actor, Fault
from hopline_relay.endings import Ending, Endings, final_answer
from hopline_relay.held import CancelOutcome, ClaimedTurn, ClaimWish, Held, TurnEnd
from hopline_relay.journal import Journal
from hopline_relay.signals import Signals
from hopline_relay.store import queues
from hopline_relay.store import turns as turn_store
from hopline_relay.store.batches import beside
from hopline_relay.store.book import Book
from hopline_relay.store.schema import attachments
from hopline_relay.store.sql import Record, Statement, insert
from hopline_relay.store.turns import Ended

__all__ = ["CancelOutcome", "ClaimWish", "ClaimedTurn", "Held", "TurnEnd", "Turns"]

_MAX_FAILURE = 2000
# A turn that is over by then was never seen as taken by anybody.
_ACCEPTED_SECONDS = 0.1

Agent = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Touch:
    """Turns of a worker whose lease or delivery is to change. `until` 0: they were accepted."""

    workspace_id: str
    agent_id: str
    held: tuple[Held, ...]
    epoch: int
    until: float


class Turns:
    """Ties tunnels to the record. The dispatcher registers itself in the attributes."""

    def __init__(
        self,
        journal: Journal,
        directory: Directory,
        admission: Admission,
        endings: Endings,
        cancels: Cancels,
        claims: Claims,
        signals: Signals,
        clock: Clock,
    ) -> None:
        self._journal = journal
        self._directory = directory
        self._admission = admission
        self._endings = endings
        self._cancels = cancels
        self._claims = claims
        self._signals = signals
        self._clock = clock
        self._touches: Batcher[_Touch, list[Held]] = Batcher("leases", self._touch)
        # Turns that were accepted and are not written as such yet, by workspace, agent and epoch.
        self._accepted: dict[tuple[str, str, int], set[Held]] = {}
        self._flush: Handle | None = None
        # `busy` or `idle` where a tunnel of the agent is open here, else None.
        self.presence_source: Callable[[str, str], str | None] = lambda workspace_id, agent_id: None
        # `none`, `user` or "" when nothing is attached.
        self.isolation_source: Callable[[str, str], str] = lambda workspace_id, agent_id: ""
        # How many turns at once the tunnels of the agent that are open here take; 0 without any.
        self.places_source: Callable[[str, str], int] = lambda workspace_id, agent_id: 0
        # `(workspace_id, agent_id, token_id, code, message)`: end these attachments; token_id "" is all.
        self.on_agent_gone: Callable[[str, str, str, str, str], None] = _nobody
        # Called with a workspace whose policy has changed.
        self.on_policy: Callable[[str], None] = lambda workspace_id: None
        self._on_claimable: Callable[[set[Agent]], None] = lambda agents: None
        signals.on_claimable(lambda agents: self._on_claimable(agents))

    def places(self, workspace_id: str, agent_id: str) -> int:
        """Return how many turns at once the tunnels of an agent that are open here take; 0 without any."""
        return self.places_source(workspace_id, agent_id)

    @property
    def on_claimable(self) -> Callable[[set[Agent]], None]:
        """Called with `{(workspace_id, agent_id)}` whose queue may hold something."""
        return self._on_claimable

    @on_claimable.setter
    def on_claimable(self, listener: Callable[[set[Agent]], None]) -> None:
        self._on_claimable = listener

    @property
    def on_cancel(self) -> Callable[[list[tuple[str, str, Held, str]]], None]:
        """Called with `[(workspace_id, agent_id, held, reason)]` that their workers must stop."""
        return self._cancels.on_cancel

    @on_cancel.setter
    def on_cancel(self, listener: Callable[[list[tuple[str, str, Held, str]]], None]) -> None:
        self._cancels.on_cancel = listener

    async def drained(self) -> None:
        """Write what is left, and wait until nothing is under way."""
        if self._flush is not None:
            self._flush.cancel()
        self._flush_accepted()
        await self._touches.drained()
        await self._endings.drained()

    async def attach(self, workspace_id: str, agent_id: str, told: Mapping[str, Any] | None = None) -> int:
        """Count one more attachment of the agent and return its epoch; the log says what is `told` of it."""

        def op(book: Book) -> int:
            epoch = _attach(book, workspace_id, agent_id)
            if told is not None:
                actor = Actor("agent", agent_id)
                book.note(workspace_id, "tunnel.attached", actor, agent_id=agent_id, details=told)
            return epoch

        return await self._journal.write(op, within=[workspace_id])

    async def resume(self, workspace_id: str, agent_id: str, held: Sequence[Held], epoch: int) -> list[Held]:
        """Move turns that a worker still holds to its new attachment; returns those still its own."""
        until = self._clock.now() + LEASE_SECONDS

        def op(book: Book) -> list[Held]:
            rows = _held_rows(book, workspace_id, agent_id, held, None)
            turn_store.set_leases(book, [(row, until) for row in rows], self._journal.instance_id, epoch)
            return [Held(row.id, row.attempt) for row in rows]

        return await self._journal.write(op, within=[workspace_id])

    async def claim(self, wishes: Sequence[ClaimWish]) -> list[ClaimedTurn]:
        """Claim queued turns, oldest first, at most one a session, as far as there are run slots."""
        return await self._claims.claim(wishes)

    async def accepted(self, workspace_id: str, agent_id: str, held: Sequence[Held], epoch: int) -> None:
        """Note that the worker has taken these turns; it is written a moment later, for many at once."""
        point("relay.accepted")
        self._accepted.setdefault((workspace_id, agent_id, epoch), set()).update(held)
        if self._flush is None:
            self._flush = self._clock.call_later(_ACCEPTED_SECONDS, self._flush_accepted)

    async def end(self, end: TurnEnd) -> bool:
        """Record the end of a turn. False: the frame was stale. Commits before it returns."""
        accepted = self._accepted.get((end.workspace_id, end.agent_id, end.epoch))
        if accepted:
            accepted.discard(end.held)
        answer, fault = final_answer(end.answer)
        state, delivery = "completed", "done"
        if end.canceled:
            state, delivery, fault = "canceled", "failed", Fault("canceled", "its worker stopped it")
        elif end.failure is not None or fault is not None:
            state, delivery = "failed", "failed"
            fault = fault or Fault("turn_failed", (end.failure or "")[:_MAX_FAILURE] or "its worker failed")
        ended = Ended(
            end.workspace_id,
            end.held.turn_id,
            ("running",),
            state,
            delivery,
            attempt=end.held.attempt,
            epoch=end.epoch,
            fault=fault,
            actor=Actor("agent", end.agent_id),
        )
        recorded = await self._endings.end(Ending(ended, answer, known=end.known, wrote=end.wrote))
        if recorded and end.canceled:
            await self._cancels.cancel(end.workspace_id, end.held.turn_id, Fault("canceled", "canceled"))
        return recorded

    async def renew(self, workspace_id: str, agent_id: str, held: Sequence[Held], epoch: int) -> list[Held]:
        """Renew leases; returns the turns that are no longer this worker's."""
        until = self._clock.now() + LEASE_SECONDS
        kept = await self._touches.submit(_Touch(workspace_id, agent_id, tuple(held), epoch, until))
        return [each for each in held if each not in kept]

    async def tunnel_lost(self, workspace_id: str, agent_id: str, held: Sequence[Held], epoch: int) -> None:
        """Give a worker whose stream broke 30 s to come back for these turns."""
        await self.renew(workspace_id, agent_id, held, epoch)

    async def give_back(self, workspace_id: str, agent_id: str, held: Sequence[Held], epoch: int) -> None:
        """Queue turns again that were claimed but never reached a worker; costs them no attempt."""

        def op(book: Book) -> list[Record]:
            rows = _held_rows(book, workspace_id, agent_id, held, epoch)
            return turn_store.requeue(
                book, rows, lambda each: self._directory.policy(each).queue_seconds, free=True
            )

        with self._claims.withholding({each.turn_id for each in held}):
            rows = await self._journal.write(op, within=[workspace_id])
            await self._admission.told_ends([requeued_item(row, row.attempt) for row in rows])
        if rows:
            self._signals.slot_free([workspace_id])
            self._signals.claimable([(workspace_id, agent_id)])

    async def cancel(self, workspace_id: str, turn_id: str, reason: str) -> CancelOutcome:
        """End a turn and what only it waits for."""
        return await self._cancels.cancel(workspace_id, turn_id, Fault("canceled", reason))

    def _flush_accepted(self) -> None:
        """Have what was accepted a moment ago written, unless it has ended since."""
        self._flush = None
        accepted, self._accepted = self._accepted, {}
        for (workspace_id, agent_id, epoch), held in accepted.items():
            if held:
                self._touches.post(_Touch(workspace_id, agent_id, tuple(held), epoch, 0.0))

    async def _touch(self, touches: list[_Touch]) -> list[list[Held]]:
        keys = {(touch.workspace_id, each.turn_id) for touch in touches for each in touch.held}

        def op(book: Book) -> list[list[Held]]:
            rows = queues.find(book.connection, keys)
            found = [
                _still_held(rows, touch.workspace_id, touch.agent_id, touch.held, touch.epoch)
                for touch in touches
            ]
            renewed, taken = [], []
            for touch, still in zip(touches, found, strict=True):
                if touch.until:
                    renewed += [(row, touch.until) for row in still]
                else:
                    taken += [(row, "taken") for row in [*still, *beside(book.connection, still)]]
            turn_store.set_leases(book, renewed, self._journal.instance_id)
            turn_store.set_deliveries(book.connection, taken)
            return [[Held(row.id, row.attempt) for row in still] for still in found]

        return await self._journal.write(op, within=[workspace_id for workspace_id, _ in keys])


def _nobody(workspace_id: str, agent_id: str, token_id: str, code: str, message: str) -> None:
    """Stand in for the dispatcher where there is none."""


def _held_rows(
    book: Book, workspace_id: str, agent_id: str, held: Sequence[Held], epoch: int | None
) -> list[Record]:
    rows = queues.find(book.connection, {(workspace_id, each.turn_id) for each in held})
    return _still_held(rows, workspace_id, agent_id, held, epoch)


def _still_held(
    rows: dict[tuple[str, str], Record],
    workspace_id: str,
    agent_id: str,
    held: Sequence[Held],
    epoch: int | None,
) -> list[Record]:
    """Return those of the turns that are running, this worker's and at this attempt."""
    found = []
    for each in held:
        row = rows.get((workspace_id, each.turn_id))
        if (
            row is not None
            and row.agent_id == agent_id
            and row.state == "running"
            and held_by_worker(row)
            and row.cause != TOOL
            and row.attempt == each.attempt
            and epoch in (None, row.epoch)
        ):
            found.append(row)
    return found


_COUNT = Statement(
    update(attachments)
    .where(attachments.c.workspace_id == bindparam("workspace"), attachments.c.agent_id == bindparam("agent"))
    .values(epoch=attachments.c.epoch + 1)
    .returning(attachments.c.epoch)
)


def _attach(book: Book, workspace_id: str, agent_id: str) -> int:
    values = {"workspace": workspace_id, "agent": agent_id}
    counted = _COUNT.one(book.connection, values)
    if counted is not None:
        return int(counted.epoch)
    insert(book.connection, attachments, [{"workspace_id": workspace_id, "agent_id": agent_id, "epoch": 1}])
    return 1
