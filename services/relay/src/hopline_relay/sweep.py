"""What time does to turns: leases that end, limits that are over, waits that could never end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

from hopline_directory import Directory
from hopline_rpc.calls import detach
from hopline_rpc.clock import Clock, utc_day
from hopline_rpc.errors import HoplineError
from sqlalchemy import Connection, and_, bindparam, delete, select

from hopline_relay import spans
from hopline_relay.admission import Admission, requeued_item
from hopline_relay.cancel import Cancels
from hopline_relay.dead_letters import DeadLetters
from hopline_relay.domain.batches import rides
from hopline_relay.domain.deadlock import Runs, beside, stuck
from hopline_relay.domain.values import MAX_ATTEMPTS, REQUEST_SECONDS, TOOL, Fault
from hopline_relay.endings import Ending, Endings
from hopline_relay.escalation_ends import EscalationEnds
from hopline_relay.journal import Journal
from hopline_relay.signals import Signals
from hopline_relay.store import limits, queues
from hopline_relay.store import turns as turn_store
from hopline_relay.store.book import Book
from hopline_relay.store.bulk import by_id
from hopline_relay.store.schema import EMPTY, RUNNING, debts, requests, turns, waits
from hopline_relay.store.sql import Record, Statement
from hopline_relay.store.turns import Ended
from hopline_relay.turns import Turns

log = logging.getLogger("hopline.relay.sweep")

SWEEP_SECONDS: Final = 0.5
# By how much the clock must have been set, and for how long this process must have stood still, to matter.
_SET_SECONDS: Final = 2.0
_STILL_SECONDS: Final = 5.0
# A step that takes longer than this will not end.
_DEAD_SECONDS: Final = 60.0
_FORGET_SECONDS: Final = 3600.0
_BATCH: Final = 500

# Both every half second, whether anything is due or not.
_DUE: Final = Statement(
    select(turns).where(turns.c.due_at <= bindparam("now")).order_by(turns.c.due_at).limit(bindparam("most"))
)
_WAITING: Final = Statement(select(waits.c.workspace_id).where(waits.c.waiter_turn_id != EMPTY).distinct())

_LOST: Final = Fault("unavailable", f"its worker was lost {MAX_ATTEMPTS} times")
_TOO_LONG: Final = Fault("deadline_exceeded", "it ran for longer than a turn may")
_UNSERVED: Final = Fault("deadline_exceeded", "it waited in the queue for longer than it may")
_DEADLOCK: Final = Fault("would_deadlock", "the agents would wait for each other for ever")


class Sweep:
    """Looks every half second at what is due."""

    def __init__(
        self,
        journal: Journal,
        directory: Directory,
        admission: Admission,
        endings: Endings,
        cancels: Cancels,
        letters: DeadLetters,
        tunnels: Turns,
        escalations: EscalationEnds,
        signals: Signals,
        clock: Clock,
    ) -> None:
        self._journal = journal
        self._directory = directory
        self._admission = admission
        self._endings = endings
        self._cancels = cancels
        self._letters = letters
        self._tunnels = tunnels
        self._escalations = escalations
        self._signals = signals
        self._clock = clock
        self._forget_at = clock.monotonic()
        # What the wall clock is ahead of the seconds that have passed; when the last pause began.
        self._ahead = clock.now() - clock.monotonic()
        self._rests_since = clock.monotonic()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to sweep."""
        self._task = detach(self._run(), name="relay sweep")

    async def close(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def is_alive(self) -> bool:
        """Tell whether it has gone round lately."""
        rested = self._clock.monotonic() - self._rests_since
        return self._task is not None and not self._task.done() and rested < _DEAD_SECONDS

    async def _run(self) -> None:
        steps: tuple[Callable[[], Awaitable[None]], ...] = (
            self.due,
            self.deadlocks,
            self._escalations.sweep,
            self._forget_hourly,
        )
        while True:
            for step in steps:
                try:
                    await step()
                except HoplineError as error:
                    log.warning("the sweep is put off: %s", error.message)
                except Exception:
                    log.exception("the sweep failed; it is tried again")
            self._signals.try_again()
            self._rests_since = self._clock.monotonic()
            await self._clock.sleep(SWEEP_SECONDS)

    # --- what is due ------------------------------------------------------------------------------

    async def due(self) -> None:
        """Treat every turn whose lease or limit is over."""
        await self._keep_time()
        while True:
            now = self._clock.now()
            rows = await self._journal.read(partial(_DUE.all, values={"now": now, "most": _BATCH}))
            again: list[Record] = []
            for row in rows:
                if row.cause == TOOL:
                    await self._cancels.fail(row, _TOO_LONG)  # no letter: nobody may call it again
                elif row.deadline_at <= now:
                    await self._cancels.fail(row, _UNSERVED if row.state == "queued" else _TOO_LONG, "dead")
                elif row.run_session_id:
                    await self._pull_over(row, again)
                elif row.attempt >= MAX_ATTEMPTS:
                    await self._cancels.fail(row, _LOST, "dead")
                else:
                    again.append(row)
            await self._requeue(again, now)
            if len(rows) < _BATCH:
                return

    async def _keep_time(self) -> None:
        """Renew all leases when the clock was set, or when nobody could be heard because we stood still.

        A laptop that slept, a machine that was paused: the workers are as they were.
        """
        ahead = self._clock.now() - self._clock.monotonic()
        set_on = ahead - self._ahead
        rested = self._clock.monotonic() - self._rests_since
        if abs(set_on) < _SET_SECONDS:
            if rested < _STILL_SECONDS:
                return
            set_on = 0.0
            ahead = self._ahead
        log.warning(
            "leases are renewed: the clock was set by %+.0f s, the sweep rested %.0f s", set_on, rested
        )
        instance = self._journal.instance_id
        # What waits is everybody's: each of several would move it.
        of, set_on = ({instance}, 0.0) if self._journal.shared else (None, set_on)
        await self._journal.write(
            lambda book: limits.renew(book, instance, self._directory.policy, set_on, of)
        )
        self._ahead, self._rests_since = ahead, self._clock.monotonic()

    async def _pull_over(self, row: Record, again: list[Record]) -> None:
        """End the lease of a pulled message: what is owed goes back to the inbox, the rest is done."""
        key = (row.workspace_id, row.id)
        owed = await self._journal.read(
            lambda connection: by_id(connection, debts, {key}, debts.c.turn_id).get(key)
        )
        if owed is None or owed.state != "open":
            ended = Ended(*key, ("running",), "completed", "done", attempt=row.attempt)
            await self._endings.end(Ending(ended))
        elif row.attempt >= MAX_ATTEMPTS:
            await self._cancels.fail(
                row, Fault("ended_without_answer", "it was taken and not answered"), "dead"
            )
        else:
            again.append(row)

    async def _requeue(self, rows: Sequence[Record], now: float) -> None:
        """Queue turns again whose worker is gone."""
        if not rows:
            return
        keys = {(row.workspace_id, row.id) for row in rows}
        attempts = {row.id: row.attempt for row in rows}

        def op(book: Book) -> list[Record]:
            found = queues.find(book.connection, keys)
            # Its worker may have come back in the meantime.
            lost = [
                row
                for row in found.values()
                if row.state == "running" and row.attempt == attempts[row.id] and row.due_at <= now
            ]
            return turn_store.requeue(book, lost, lambda each: self._directory.policy(each).queue_seconds)

        lost = await self._journal.write(op)
        for row in lost:
            gone = Ended(row.workspace_id, row.id, ("running",), "requeued", "queued", fault=_LOST)
            spans.turn_ended(self._journal.meters, self._directory, row, gone, now)
        await self._admission.told_ends([requeued_item(row, row.attempt) for row in lost])
        self._signals.slot_free(row.workspace_id for row in lost if row.slot)
        self._signals.claimable((row.workspace_id, row.agent_id) for row in lost)

    # --- waits that could never end ---------------------------------------------------------------

    async def deadlocks(self) -> None:
        """Fail the youngest ask of every circle of turns that wait for each other."""
        for workspace_id in await self._journal.read(partial(_WAITING.scalars, values={})):
            graph = await self._journal.read(partial(_graph, workspace_id=workspace_id))
            places = {
                agent: count
                for agent in {turn.agent for turn in graph}
                if (count := self._tunnels.places_source(workspace_id, agent)) > 0
            }
            held = stuck(graph, places)
            if held:
                youngest = max(held, key=lambda turn: turn.since)
                for turn_id in youngest.waits_for:
                    await self._cancels.cancel(workspace_id, turn_id, _DEADLOCK)

    # --- what is kept for a time only -------------------------------------------------------------

    async def _forget_hourly(self) -> None:
        if self._clock.monotonic() >= self._forget_at:
            await self.forget()
            self._forget_at = self._clock.monotonic() + _FORGET_SECONDS

    async def forget(self) -> None:
        """Drop request ids after their 24 hours, and dead letters that nobody wanted."""
        oldest = utc_day(self._clock.now() - REQUEST_SECONDS)
        for workspace in self._directory.workspaces():
            statement = delete(requests).where(
                requests.c.workspace_id == workspace.id, requests.c.day < oldest
            )
            await self._journal.write(partial(_run, statement=statement))
            await self._letters.forget(workspace.id)


def _run(book: Book, statement: Any) -> None:
    book.connection.execute(statement)


def _graph(connection: Connection, workspace_id: str) -> list[Runs]:
    """Return the turns that wait, what they wait for, and whatever else runs for the same agents."""
    asking = connection.execute(select(waits).where(waits.c.workspace_id == workspace_id)).all()
    waits_for: dict[str, list[str]] = {}
    since: dict[str, float] = {}
    for wait in asking:
        if wait.waiter_turn_id:
            waits_for.setdefault(wait.waiter_turn_id, []).append(wait.turn_id)
            since[wait.waiter_turn_id] = max(since.get(wait.waiter_turn_id, 0.0), wait.created_at)
    named = {(workspace_id, wait.turn_id) for wait in asking} | {(workspace_id, each) for each in waits_for}
    rows = queues.find(connection, named)
    agents = {row.agent_id for row in rows.values()}
    running = select(turns).where(
        and_(
            turns.c.workspace_id == workspace_id,
            turns.c.agent_id.in_(sorted(agents)),
            turns.c.state == RUNNING,
        )
    )
    for row in connection.execute(running):
        rows[workspace_id, row.id] = row
    for turn_id, targets in waits_for.items():
        # What rides along goes on with the turn that a worker holds.
        waits_for[turn_id] = [
            target.batch_id
            if (target := rows.get((workspace_id, each))) is not None and rides(target)
            else each
            for each in targets
        ]
    found = []
    for row in rows.values():
        if row.state == "queued" or (row.state == "running" and not rides(row)):
            turn = Runs(
                row.id,
                row.agent_id,
                row.session_id,
                row.state == "queued",
                tuple(waits_for.get(row.id, ())),
                since.get(row.id, 0.0),
            )
            found.append(beside(turn) if row.cause == TOOL else turn)
    return found
