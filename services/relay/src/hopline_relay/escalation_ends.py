"""How questions to owners end: by an answer, in time, or withdrawn; and how the agent hears of it.

The end, its message and the wake of the agent are one transaction. The first end is the end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from hopline_directory import Directory
from hopline_rpc.clock import Clock
from hopline_rpc.errors import HoplineError
from hopline_rpc.faults import point
from hopline_rpc.ids import IdMaker

from hopline_relay.domain.escalations import KIND_ANSWER, expired_text, payload_of, withdrawn_text
from hopline_relay.domain.values import MESH, Actor
from hopline_relay.handover import HandOver
from hopline_relay.journal import Journal
from hopline_relay.signals import Signals
from hopline_relay.store import escalating, outbox, queues
from hopline_relay.store.book import Book
from hopline_relay.store.escalating import Key
from hopline_relay.store.outgoing import Copy, Outgoing
from hopline_relay.store.sql import Record
from hopline_relay.store.writing import write
from hopline_relay.waits import Outcome, Waits

log = logging.getLogger("hopline.relay")

_BATCH: Final = 200
_LOOK_SECONDS: Final = 30.0
_PAUSED: Final = "the agent was paused"
_CANCELED: Final = "the turn that asked was canceled"


@dataclass(frozen=True, slots=True)
class End:
    """How a question is to end. `tells`: the agent gets `text` as a message."""

    key: Key
    state: str
    text: str
    actor: Actor
    tells: bool = True
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of it: the question as it is now, and whether this end was its end."""

    row: Record
    done: bool


class EscalationEnds:
    """Ends questions."""

    def __init__(
        self,
        journal: Journal,
        directory: Directory,
        waits: Waits,
        hand_over: HandOver,
        signals: Signals,
        ids: IdMaker,
        clock: Clock,
        lifetime: float,
    ) -> None:
        self._journal = journal
        self._directory = directory
        self._waits = waits
        self._hand_over = hand_over
        self._signals = signals
        self._ids = ids
        self._clock = clock
        self._look_seconds = min(_LOOK_SECONDS, lifetime / 10)
        self._look_at = clock.monotonic()
        # Called when an owner is to be told of a question.
        self.on_notice: Callable[[], None] = lambda: None
        # Cancelled turns whose questions could not be withdrawn yet.
        self._left: list[Record] = []

    async def end(self, end: End, agent_id: str) -> Ended:
        """End a question of this agent that is still pending."""
        workspace_id, identifier = end.key
        awaited = self._waits.someone(workspace_id, identifier, agent_id)
        message_id, turn_id = self._ids.new_id("msg"), self._ids.new_id("trn")
        queue_seconds = self._directory.policy(workspace_id).queue_seconds

        def op(book: Book) -> Ended:
            row = escalating.find(book.connection, end.key, lock=True)
            if row is None or row.state != "pending":
                return Ended(row, done=False)
            if end.tells:
                copy = Copy(kind="agent", id=row.agent_id, session_id=row.session_id)
                if awaited:
                    copy.state = "taken"
                else:
                    copy.turn_id = turn_id
                write(book, [_message(row, end, message_id, copy, queue_seconds)])
            ended = escalating.end(
                book.connection,
                row,
                state=end.state,
                text=end.text,
                message_id=message_id if end.tells else "",
                by=(end.actor.kind, end.actor.id),
                at=book.now,
            )
            _note(book, ended, f"escalation.{end.state}", end.actor, end.reason)
            return Ended(ended, done=True)

        result = await self._journal.write(op)
        point("escalation.ended")
        if result.done:
            self._tell(result.row, awaited=awaited and end.tells, woken=end.tells and not awaited)
        return result

    def _tell(self, row: Record, *, awaited: bool, woken: bool) -> None:
        """Hand the end to the calls that wait for it, or wake the agent."""
        outcome = Outcome(row.state, row.answer)
        told = self._waits.resolve(row.workspace_id, row.id, row.agent_id, outcome)
        if awaited and not told:
            self._hand_over.back(row.workspace_id, row.id)
        if woken:
            self._signals.claimable([(row.workspace_id, row.agent_id)])

    # --- ends that nobody asks for ----------------------------------------------------------------

    async def sweep(self) -> None:
        """End what is over, looking as often as a question's life asks for, and no more often."""
        if self._clock.monotonic() >= self._look_at:
            self._look_at = self._clock.monotonic() + self._look_seconds
            await self.expire()

    async def expire(self) -> None:
        """End every question whose time is over, and what could not be ended before."""
        left, self._left = self._left, []
        if left:
            await self.turns_canceled(left)
        while True:
            now = self._clock.now()
            rows = await self._journal.read(partial(escalating.due, now=now, most=_BATCH))
            for row in rows:
                text = expired_text(row.expires_at - row.created_at)
                await self.end(End((row.workspace_id, row.id), "expired", text, MESH), row.agent_id)
            if len(rows) < _BATCH:
                return

    async def turns_canceled(self, turns: Sequence[Record]) -> None:
        """Withdraw what turns have asked that were cancelled, given as they were before.

        Where the store fails now the sweep does it: the turns have ended all the same.
        """
        try:
            await self._withdraw_of_turns(turns)
        except HoplineError as error:
            log.warning("questions of canceled turns are withdrawn later: %s", error.message)
            self._left += turns

    async def _withdraw_of_turns(self, turns: Sequence[Record]) -> None:
        for workspace_id in {turn.workspace_id for turn in turns}:
            ids = [turn.batch_id or turn.id for turn in turns if turn.workspace_id == workspace_id]
            rows = await self._journal.read(
                partial(escalating.pending_of_turns, workspace_id=workspace_id, turn_ids=ids)
            )
            for row in rows:
                if not await self._goes_on(row):
                    await self._withdraw(row, _CANCELED)

    async def _goes_on(self, row: Record) -> bool:
        """Tell whether a pull goes on of which a part was cancelled."""
        running = await self._journal.read(
            partial(queues.running_of, workspace_id=row.workspace_id, agent_id=row.agent_id)
        )
        return any(row.turn_id in (turn.id, turn.batch_id) for turn in running)

    async def agent_gone(self, workspace_id: str, agent_id: str, reason: str) -> None:
        """Withdraw whatever an agent has asked that was paused or deleted."""
        rows = await self._journal.read(
            partial(escalating.pending_of_agent, workspace_id=workspace_id, agent_id=agent_id)
        )
        for row in rows:
            await self._withdraw(row, reason)

    async def owned_by(self, workspace_id: str, agent_id: str, owner_id: str) -> None:
        """Let an agent's pending questions go to its owner, who may be another one now."""
        rows = await self._journal.read(
            partial(escalating.pending_of_agent, workspace_id=workspace_id, agent_id=agent_id)
        )
        moved = [row for row in rows if row.owner_id != owner_id]
        if moved:
            owner = self._directory.user(workspace_id, owner_id)
            tells = owner is not None and owner.has_webhook
            fresh = {row.id: self._ids.new_id("ntc") for row in moved if tells}
            await self._journal.write(lambda book: _move(book, moved, owner_id, fresh))
            self.on_notice()

    async def catch_up(self) -> None:
        """Do what was missed while no process of the relay was there."""
        for workspace in self._directory.workspaces():
            for row in await self._journal.read(partial(escalating.pending, workspace_id=workspace.id)):
                agent = self._directory.agent(workspace.id, row.agent_id)
                if agent is None:
                    continue
                if agent.deleted or agent.state == "paused":
                    await self._withdraw(row, "the agent was deleted" if agent.deleted else _PAUSED)
                elif await self._was_canceled(row):
                    await self._withdraw(row, _CANCELED)
                elif row.owner_id != agent.owner_id:
                    await self.owned_by(workspace.id, agent.id, agent.owner_id)

    async def _was_canceled(self, row: Record) -> bool:
        key = (row.workspace_id, row.turn_id)
        turn = (await self._journal.read(lambda connection: queues.find(connection, {key}))).get(key)
        return turn is not None and turn.state == "canceled" and not await self._goes_on(row)

    async def _withdraw(self, row: Record, reason: str) -> None:
        """End a question whose agent need not be told: what asked is over."""
        key = (row.workspace_id, row.id)
        end = End(key, "withdrawn", withdrawn_text(reason), MESH, tells=False, reason=reason)
        await self.end(end, row.agent_id)


def _message(row: Record, end: End, message_id: str, copy: Copy, queue_seconds: float) -> Outgoing:
    """Return the message by which an agent hears of the end of its question.

    It runs where the question came from, and is charged to nobody: no day stands on it.
    """
    return Outgoing(
        workspace_id=row.workspace_id,
        id=message_id,
        kind=KIND_ANSWER,
        sender=end.actor if end.state == "answered" else MESH,
        chain_turn_id=row.turn_id,
        body=end.text,
        payload=payload_of(row.id, end.state, row.question, escalating.options_of(row)),
        thread_id=row.thread_id,
        opens_thread=False,
        in_reply_to=row.message_id,
        depth=row.depth,
        from_depth=row.depth,
        root_id=row.root_id,
        admitted_as="answer",
        day="",
        traceparent=row.traceparent,
        copies=[copy],
        queue_seconds=queue_seconds,
    )


def _move(book: Book, rows: Sequence[Record], owner_id: str, notices: Mapping[str, str]) -> None:
    for row in rows:
        now = escalating.find(book.connection, (row.workspace_id, row.id), lock=True)
        if now is not None and now.state == "pending" and now.owner_id != owner_id:
            escalating.move(book.connection, now, owner_id)
            note_escalation(book, now, "escalation.moved", MESH, {"new_owner_id": owner_id})
            if now.id in notices:
                notice = (now.workspace_id, notices[now.id])
                outbox.add(book.connection, notice, outbox.ESCALATION, now.id, owner_id, book.now)


def _note(book: Book, row: Record, action: str, actor: Actor, reason: str = "") -> None:
    note_escalation(book, row, action, actor, {"reason": reason} if reason else {})


def note_escalation(book: Book, row: Record, action: str, actor: Actor, details: dict[str, str]) -> None:
    """Say in the audit log what happened to a question."""
    book.note(
        row.workspace_id,
        action,
        actor,
        agent_id=row.agent_id,
        thread_id=row.thread_id,
        message_id=row.message_id,
        turn_id=row.turn_id,
        session_id=row.session_id,
        details={"escalation_id": row.id, "owner_id": row.owner_id, "depth": row.depth, **details},
        trace_id=row.traceparent[3:35],
    )
