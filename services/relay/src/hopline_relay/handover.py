"""Answers that were meant for a waiting call and never reached it: they are delivered as messages."""

from __future__ import annotations

from dataclasses import dataclass

from hopline_directory import Directory
from hopline_rpc.clock import Clock
from hopline_rpc.ids import IdMaker
from sqlalchemy import bindparam, select, update

from hopline_relay import answers
from hopline_relay.batching import Batcher
from hopline_relay.callers import named
from hopline_relay.domain.values import TOOL, Actor, Fault
from hopline_relay.journal import Journal
from hopline_relay.signals import Signals
from hopline_relay.store import waiting
from hopline_relay.store.book import Book
from hopline_relay.store.bulk import by_id
from hopline_relay.store.outgoing import Copy, Outgoing
from hopline_relay.store.schema import debts, deliveries, escalations, messages, turns
from hopline_relay.store.sql import Record, Statement, insert
from hopline_relay.store.writing import turn_row, write

Key = tuple[str, str]
"""(workspace id, id of the turn that owed the answer, or of the question to an owner)"""


@dataclass(frozen=True, slots=True)
class _Wake:
    """A message that was handed over to nobody, and the turn of whom that will take it.

    `asking_turn_id`: the turn that asked.
    """

    message: Record
    agent_id: str
    session_id: str
    asking_turn_id: str
    turn_id: str


class HandOver:
    """Takes answers back from calls that are gone."""

    def __init__(
        self, journal: Journal, directory: Directory, signals: Signals, ids: IdMaker, clock: Clock
    ) -> None:
        self._journal = journal
        self._directory = directory
        self._signals = signals
        self._ids = ids
        self._clock = clock
        self._batches: Batcher[Key, None] = Batcher("answers taken back", self._treat, clock=clock)

    def back(self, workspace_id: str, turn_id: str) -> None:
        """Deliver the outcome of this turn as a message: the call that it was handed to is gone."""
        self._batches.post((workspace_id, turn_id))

    async def recover(self) -> None:
        """Treat the waits of processes that have died: what was handed to them was lost with them."""
        left = await self._journal.read(waiting.left)
        keys = [(row.workspace_id, row.turn_id) for row in left]
        if keys:
            await self._treat(keys)
        dead = [(row.workspace_id, row.id) for row in left]
        await self._journal.write(lambda book: waiting.remove(book.connection, dead))

    async def drained(self) -> None:
        """Wait until nothing is under way."""
        await self._batches.drained()

    async def _treat(self, keys: list[Key]) -> list[None]:
        fresh = {key: self._ids.new_id("trn") for key in keys}
        within = [workspace_id for workspace_id, _ in keys]
        woken = await self._journal.write(lambda book: self._deliver(book, fresh), within=within)
        self._signals.claimable(woken)
        return [None] * len(keys)

    def _deliver(self, book: Book, fresh: dict[Key, str]) -> set[tuple[str, str]]:
        """Queue a wake for every answer that was handed to nobody; returns whom."""
        woken = self._deliver_owners_answers(book, fresh)
        owed = by_id(book.connection, debts, fresh, debts.c.turn_id)
        ended = {
            key: row for key, row in owed.items() if row.state != "open" and row.creditor_kind == "agent"
        }
        replies = by_id(
            book.connection,
            messages,
            {(row.workspace_id, row.reply_message_id) for row in ended.values() if row.reply_message_id},
        )
        asks = by_id(
            book.connection, messages, {(row.workspace_id, row.message_id) for row in ended.values()}
        )
        for key, debt in ended.items():
            if not self._is_there(debt.workspace_id, debt.creditor_id) or not debt.creditor_session_id:
                continue
            if asks[debt.workspace_id, debt.message_id].kind == TOOL:
                continue  # `check` still finds it; there is no model to wake
            reply = replies.get((debt.workspace_id, debt.reply_message_id))
            queue_seconds = self._directory.policy(debt.workspace_id).queue_seconds
            if reply is not None:
                wake = _Wake(
                    reply, debt.creditor_id, debt.creditor_session_id, debt.creditor_turn_id, fresh[key]
                )
                done = _wake(book, wake, queue_seconds)
            else:
                done = self._give_notice(book, debt, asks[debt.workspace_id, debt.message_id], queue_seconds)
            if done:
                woken.add((debt.workspace_id, debt.creditor_id))
        return woken

    def _deliver_owners_answers(self, book: Book, fresh: dict[Key, str]) -> set[Key]:
        woken = set()
        ended = by_id(book.connection, escalations, fresh)
        keys = {(row.workspace_id, row.answer_message_id) for row in ended.values()}
        said = by_id(book.connection, messages, keys)
        for key, row in ended.items():
            answer = said.get((row.workspace_id, row.answer_message_id))
            if answer is None or not self._is_there(row.workspace_id, row.agent_id):
                continue
            queue_seconds = self._directory.policy(row.workspace_id).queue_seconds
            wake = _Wake(answer, row.agent_id, row.session_id, row.turn_id, fresh[key])
            if _wake(book, wake, queue_seconds):
                woken.add((row.workspace_id, row.agent_id))
        return woken

    def _is_there(self, workspace_id: str, agent_id: str) -> bool:
        agent = self._directory.agent(workspace_id, agent_id)
        return agent is not None and not agent.deleted

    def _give_notice(self, book: Book, debt: Record, asked: Record, queue_seconds: float) -> bool:
        if _has_notice(book, debt):
            return False
        outgoing = answers.notice(
            debt,
            asked,
            name=named(self._directory, debt.workspace_id, "agent", debt.debtor_id).name,
            fault=Fault(debt.error_code, debt.error_message),
            ids=self._ids,
            queue_seconds=queue_seconds,
            now=self._clock.now(),
        )
        write(book, [outgoing])
        return True


_UNTAKE = Statement(
    update(deliveries)
    .where(
        deliveries.c.workspace_id == bindparam("workspace"),
        deliveries.c.message_id == bindparam("message"),
        deliveries.c.recipient_id == bindparam("recipient"),
        deliveries.c.state == "taken",
        deliveries.c.turn_id == "",
    )
    .values(state="queued", turn_id=bindparam("turn"))
)


def _wake(book: Book, wake: _Wake, queue_seconds: float) -> bool:
    """Mark an answer as untaken and queue the turn that will take it."""
    message = wake.message
    values = {
        "workspace": message.workspace_id,
        "message": message.id,
        "recipient": wake.agent_id,
        "turn": wake.turn_id,
    }
    if _UNTAKE.run(book.connection, values) != 1:
        return False
    copy = Copy(
        kind="agent",
        id=wake.agent_id,
        session_id=wake.session_id,
        turn_id=wake.turn_id,
        ordinal=book.ordinal(message.workspace_id),
    )
    insert(book.connection, turns, [turn_row(book, _as_written(book, wake, queue_seconds), copy)])
    return True


def _as_written(book: Book, wake: _Wake, queue_seconds: float) -> Outgoing:
    message = wake.message
    asking = by_id(book.connection, turns, {(message.workspace_id, wake.asking_turn_id)})
    asked_in = asking.get((message.workspace_id, wake.asking_turn_id))
    return Outgoing(
        workspace_id=message.workspace_id,
        id=message.id,
        kind=message.kind,
        sender=Actor(message.from_kind, message.from_id),
        turn_id=message.from_turn_id,
        thread_id=message.thread_id,
        opens_thread=False,
        depth=message.depth,
        from_depth=message.from_depth,
        root_id=message.root_id,
        admitted_as=message.admitted_as,
        day=message.day,
        traceparent=message.traceparent,
        queue_seconds=queue_seconds,
        chain=asked_in.chain if asked_in is not None else "",
        subagent_links=asked_in.subagent_links if asked_in is not None else 0,
        hook_generation=message.hook_generation,
    )


_NOTICES = Statement(
    select(messages.c.id)
    .where(
        messages.c.workspace_id == bindparam("workspace"),
        messages.c.thread_id == bindparam("thread"),
        messages.c.in_reply_to == bindparam("message"),
        messages.c.kind == "notice",
    )
    .limit(1)
)


def _has_notice(book: Book, debt: Record) -> bool:
    """Tell whether the creditor was sent word before."""
    values = {"workspace": debt.workspace_id, "thread": debt.thread_id, "message": debt.message_id}
    return _NOTICES.one(book.connection, values) is not None
