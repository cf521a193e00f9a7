"""Claiming queued turns for tunnels: reach, run slots, leases, and what a worker gets to see."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from hopline.quota.v1 import admission_pb2 as quota_pb
from hopline_directory import Directory
from hopline_directory.records import OPERATOR
from hopline_rpc import telemetry
from hopline_rpc.clock import Clock
from hopline_rpc.faults import point
from hopline_rpc.principals import Principal

from hopline_relay.admission import Admission, requeued_item
from hopline_relay.domain.batches import gather, rides
from hopline_relay.domain.sources import SOURCES
from hopline_relay.domain.values import ANSWERS, LEASE_SECONDS, POST, WAKES, Fault
from hopline_relay.endings import Ending, Endings
from hopline_relay.finding import Found, find
from hopline_relay.held import ClaimedTurn, ClaimWish, Known
from hopline_relay.journal import Journal
from hopline_relay.signals import Signals
from hopline_relay.store import newer, queues
from hopline_relay.store import turns as turn_store
from hopline_relay.store.outgoing import Copy, Outgoing
from hopline_relay.store.sql import Record
from hopline_relay.store.turns import Ended, Start
from hopline_relay.view import Views

_WITHDRAWN: Final = Fault("canceled", "its sender may no longer start anything on this agent (withdrawn)")


class Claims:
    """Claims turns."""

    def __init__(
        self,
        journal: Journal,
        directory: Directory,
        admission: Admission,
        endings: Endings,
        signals: Signals,
        clock: Clock,
    ) -> None:
        self._journal = journal
        self._directory = directory
        self._admission = admission
        self._endings = endings
        self._signals = signals
        self._clock = clock
        self._views = Views(directory)
        # Turns that are not claimed just now: they were begun for the transaction that queues them, or the
        # quota service is about to hear that an attempt is over which the next claim would make again.
        self._withheld: set[str] = set()
        self._release: asyncio.Future[None] | None = None

    def withhold(self, turn_ids: set[str]) -> None:
        """Have none of these turns claimed or taken until they are released."""
        self._withheld |= turn_ids

    def release(self, turn_ids: set[str]) -> None:
        """Let these turns be claimed and taken again."""
        self._withheld -= turn_ids
        if self._release is not None:
            self._release.set_result(None)
            self._release = None

    @contextmanager
    def withholding(self, turn_ids: set[str]) -> Iterator[None]:
        """Withhold these turns meanwhile."""
        self.withhold(turn_ids)
        try:
            yield
        finally:
            self.release(turn_ids)

    async def released(self, turn_ids: set[str]) -> None:
        """Wait until none of these turns is withheld."""
        while not self._withheld.isdisjoint(turn_ids):
            if self._release is None:
                self._release = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._release)

    async def claim(self, wishes: Sequence[ClaimWish]) -> list[ClaimedTurn]:
        """Claim the oldest queued turns, one a session, as far as the wishes and the run slots go."""
        open_wishes = [
            wish for wish in wishes if wish.capacity > 0 and self.active(wish.workspace_id, wish.agent_id)
        ]
        if not open_wishes:
            return []
        batching = {
            (wish.workspace_id, wish.agent_id)
            for wish in open_wishes
            if self._directory.policy(wish.workspace_id).batch_inbox
        }
        found = await self._journal.read(lambda connection: find(connection, open_wishes, batching))
        reachable: list[tuple[ClaimWish, Record]] = []
        withdrawn: list[Record] = []
        for wish, row in found.turns:
            if row.id not in self._withheld:
                self._sort_out(wish, row, found, reachable, withdrawn)
        # Before anything runs: a failure here would leave what was started in nobody's hands.
        for row in withdrawn:
            await self._endings.end(Ending(withdrawal(row)))
        return await self._start(reachable, found)

    def _sort_out(
        self,
        wish: ClaimWish,
        row: Record,
        found: Found,
        reachable: list[tuple[ClaimWish, Record]],
        withdrawn: list[Record],
    ) -> None:
        """Say what starts: a turn with what rides along with it, of those whose senders still have reach."""

        def may(turn: Record) -> bool:
            message = found.messages[turn.workspace_id, turn.message_id]
            closed: bool = found.sessions[turn.workspace_id, turn.session_id].closed
            return not closed and may_still(self._directory, turn, message, found.authors)

        if not may(row):
            withdrawn.append(row)
            return
        waiting = [row]
        for each in found.behind.get(row.id, ()):
            if each.id in self._withheld:
                break  # what came after it stays behind it
            if may(each):
                waiting.append(each)
            else:
                withdrawn.append(each)
        if len(waiting) > 1:
            agent = self._directory.agent(row.workspace_id, row.agent_id)
            final_answers = agent is None or agent.reply_mode != "implicit"
            waiting = gather(waiting, final_answers=final_answers)
        found.behind[row.id] = waiting[1:]
        reachable.append((wish, row))

    def started(self, wish: ClaimWish, message: Outgoing, copy: Copy, newer: int) -> ClaimedTurn:
        """Return a turn that has started with its message as its worker gets it."""
        self._journal.meters.queue_waits.add(0.0)
        return self._claimed(wish, copy.turn, copy.session, message.row, message.delivered, copy.debt, newer)

    def active(self, workspace_id: str, agent_id: str) -> bool:
        """Tell whether an agent runs turns at all."""
        agent = self._directory.agent(workspace_id, agent_id)
        return agent is not None and agent.state == "active" and not agent.deleted

    async def _start(self, candidates: Sequence[tuple[ClaimWish, Record]], found: Found) -> list[ClaimedTurn]:
        """Take run slots, then make the turns running; who loses the race gives its slot back.

        What rides along runs in the slot of the turn that it rides with.
        """
        if not candidates:
            return []
        # A pull may be about to take one of them: who loses would tell of the attempt that the other begins.
        ids = {each.id for _, row in candidates for each in (row, *found.behind.get(row.id, ()))}
        await self.released(ids)
        with self.withholding(ids):
            return await self._begin_and_write(candidates, found)

    async def _begin_and_write(
        self, candidates: Sequence[tuple[ClaimWish, Record]], found: Found
    ) -> list[ClaimedTurn]:
        freed = {row.workspace_id: self._signals.freed(row.workspace_id) for _, row in candidates}
        slots = await self._admission.begin([self._begin(row) for _, row in candidates])
        point("relay.begun")
        starts: list[tuple[ClaimWish, Start]] = []
        for (wish, row), slot in zip(candidates, slots, strict=True):
            if slot:
                along = found.behind.get(row.id, [])
                starts.append((wish, self._plan(wish, row, batch_id=row.id if along else "")))
                starts += [(wish, self._plan(wish, each, batch_id=row.id, slot=False)) for each in along]
            else:
                self._signals.no_slot((row.workspace_id, row.agent_id), freed[row.workspace_id])
        if not starts:
            return []
        try:
            if riding := [start.row for _, start in starts if not start.slot]:
                await self._admission.begin([self._begin(row, needs_slot=False) for row in riding])
            won = await self._journal.write(
                lambda book: turn_store.start(
                    book, [start for _, start in starts], self._journal.instance_id
                ),
                within=[start.row.workspace_id for _, start in starts],
            )
        except BaseException:
            await self._give_back([start.row for _, start in starts])
            raise
        point("relay.claimed")
        running = {start.row.id for start in won}
        for start in won:
            self._journal.meters.queue_waits.add(max(0.0, start.started_at - start.row.created_at))
        lost = [start.row for _, start in starts if start.row.id not in running]
        if lost:
            await self._give_back(lost)
        riders: dict[str, list[Start]] = {}
        for start in won:
            if rides(start):
                riders.setdefault(start.batch_id, []).append(start)
        return [
            self._found(wish, start, riders.get(start.id, ()), found)
            for wish, start in starts
            if start.slot and start.id in running
        ]

    def _begin(self, row: Record, *, needs_slot: bool = True) -> quota_pb.BeginTurnItem:
        return quota_pb.BeginTurnItem(
            turn_id=row.id,
            workspace_id=row.workspace_id,
            agent_id=row.agent_id,
            depth=row.depth,
            root_id=row.root_id,
            attempt=row.attempt + 1,
            needs_slot=needs_slot,
            concurrent_runs=self._directory.policy(row.workspace_id).concurrent_runs,
        )

    def _plan(self, wish: ClaimWish, row: Record, *, batch_id: str, slot: bool = True) -> Start:
        now = self._clock.now()
        deadline_at = now + self._directory.policy(row.workspace_id).turn_seconds
        return Start(
            row,
            wish.epoch,
            slot=slot,
            started_at=now,
            # Only the turn that a worker holds has a lease of its own.
            lease_until=now + LEASE_SECONDS if slot else deadline_at,
            deadline_at=deadline_at,
            span=telemetry.reserve(row.traceparent),
            delivery="delivered",
            batch_id=batch_id,
        )

    async def _give_back(self, rows: Sequence[Record]) -> None:
        await self._admission.told_ends(await given_back(self._journal, rows))
        self._signals.slot_free(row.workspace_id for row in rows)
        self._signals.claimable((row.workspace_id, row.agent_id) for row in rows)

    def _found(self, wish: ClaimWish, start: Start, along: Sequence[Start], found: Found) -> ClaimedTurn:
        row = start.row
        key = (row.workspace_id, row.message_id)
        turn = self._claimed(
            wish,
            row._replace(**turn_store.running(start, self._journal.instance_id)),
            found.sessions[row.workspace_id, row.session_id],
            found.messages[key],
            found.copies[key],
            found.debts.get((row.workspace_id, row.id)),
            newer.count(row, found.queues.get(row.session_id, ())),
        )
        return self._with(turn, along, found) if along else turn

    def _with(self, turn: ClaimedTurn, along: Sequence[Start], found: Found) -> ClaimedTurn:
        """Add to a turn what rides along: it is as deep as the deepest of them."""
        reader = Principal(kind="agent", id=turn.agent_id, workspace_id=turn.workspace_id)
        now, more = self._clock.now(), []
        for start in along:
            key = (start.row.workspace_id, start.row.message_id)
            follow = newer.count(start.row, found.queues.get(start.row.session_id, ()))
            more.append(
                self._views.handed(reader, start.row, found.messages[key], found.copies[key], now, follow)
            )
        senders = dict.fromkeys(
            [turn.sender_display, *(getattr(message, "from").display for message in more)]
        )
        return replace(
            turn,
            messages=[*turn.messages, *more],
            depth=max(turn.depth, *(start.row.depth for start in along)),
            sender_display=", ".join(senders),
        )

    def _claimed(
        self,
        wish: ClaimWish,
        row: Record,
        session: Record,
        asked: Record,
        copies: Sequence[Record],
        debt: Record | None,
        newer: int,
    ) -> ClaimedTurn:
        reader = Principal(kind="agent", id=row.agent_id, workspace_id=row.workspace_id)
        message = self._views.handed(reader, row, asked, copies, self._clock.now(), newer)
        sender = getattr(message, "from")
        return ClaimedTurn(
            turn_id=row.id,
            workspace_id=row.workspace_id,
            agent_id=row.agent_id,
            attempt=row.attempt,
            session_id=row.session_id,
            session_title=session.title,
            channel=session.channel,
            root_id=row.root_id,
            depth=row.depth,
            cause=row.cause,
            continued=bool(session.used),
            deadline=row.deadline_at,
            traceparent=row.span,
            sender_display=sender.display,
            sender_kind=sender.kind,
            messages=[message],
            attachment=wish.attachment,
            known=Known(row, debt, asked),
        )


async def given_back(journal: Journal, rows: Sequence[Record]) -> list[quota_pb.EndTurnItem]:
    """Return what the quota service is told of turns that were begun there and not started here.

    `rows` are the turns as they were. One that has ended meanwhile is not queued again, and one that
    somebody else runs by now is not ours to end.
    """
    keys = {(row.workspace_id, row.id) for row in rows}
    now = await journal.read(lambda connection: queues.find(connection, keys))
    items = []
    for row in rows:
        found = now.get((row.workspace_id, row.id))
        state = found.state if found is not None else ""
        if state != "running":
            item = requeued_item(row, row.attempt + 1)
            if state != "queued":
                item.kind = quota_pb.END_KIND_DROPPED
            items.append(item)
    return items


def may_still(
    directory: Directory, row: Record, message: Record, authors: Mapping[tuple[str, str], str]
) -> bool:
    """Tell whether the sender of a queued start may still reach the agent that is to work on it.

    `authors` say in whose name schedules and webhooks speak; one that is gone speaks in nobody's.
    """
    if message.kind in ANSWERS or message.kind in WAKES:
        return True
    if message.from_kind == "user" or message.from_kind in SOURCES:
        agent = directory.agent(row.workspace_id, row.agent_id)
        person = authors.get((row.workspace_id, message.from_id), message.from_id)
        return agent is not None and directory.role_on_agent(person, agent) >= OPERATOR
    if message.from_kind == "plugin":
        plugin = directory.plugin(row.workspace_id, message.from_id)
        agent = directory.agent(row.workspace_id, row.agent_id)
        # Into a session that it was handed it may say something whoever runs it.
        own = message.kind == POST or (agent is not None and agent.plugin_id == message.from_id)
        return plugin is not None and plugin.is_confirmed and own
    sender = Principal(kind="agent", id=message.from_id, workspace_id=row.workspace_id)
    if message.from_id == row.agent_id:
        return directory.may_start(sender)  # to a copy of itself, or into another session of its own
    return directory.may_start_on(sender, row.agent_id)


def withdrawal(row: Record) -> Ended:
    """Return the end of a queued turn whose sender lost its reach."""
    return Ended(row.workspace_id, row.id, ("queued",), "canceled", "withdrawn", fault=_WITHDRAWN)
