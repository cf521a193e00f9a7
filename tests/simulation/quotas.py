"""What the quota service may decide, said plainly, beside what it does decide.

`WatchedStore` is the real store; everything that it is told and answers is told to a `QuotaModel` too, in
the order in which it happens, and every decision has to be the model's. When the counters are rebuilt,
the model is rebuilt from the relay's tables by queries of its own.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hopline_quota.domain.values import (
    Admitted,
    Begin,
    Decision,
    End,
    EndKind,
    Item,
    Kind,
    Price,
    Record,
    Refusal,
    RootCount,
    Settlement,
    Waiting,
)
from hopline_quota.store.memory import MemoryStore
from hopline_rpc.clock import Clock, utc_day


class Violation(AssertionError):  # noqa: N818 - what a simulation is after, not an error of its own
    """A promise that was broken."""


def require(condition: object, what: str) -> None:
    """Raise unless a promise holds."""
    if not condition:
        raise Violation(what)


@dataclass
class Charge:
    """A message that was admitted."""

    item: Item
    depth: int
    root: str
    day: str
    at: float
    state: str = "open"  # then committed or refunded


@dataclass
class Moment:
    """When something happened, on the monotonic clock. Rebuilt from wall times it may be a range."""

    low: float
    high: float
    wall: float

    def seen_again(self, monotonic: float, wall: float) -> None:
        """Widen by what a process would think that only knows the wall times."""
        guess = monotonic - max(0.0, wall - self.wall)
        self.low, self.high = min(self.low, guess), max(self.high, guess)


@dataclass
class Run:
    """A turn that runs."""

    id: str
    agent: str
    depth: int
    root: str
    attempt: int
    slot: bool
    waiting: bool = False


@dataclass
class Gone:
    """A turn that has run, once."""

    id: str
    depth: int
    root: str
    when: Moment


@dataclass
class QuotaModel:
    """Counts what was admitted and what runs."""

    clock: Clock
    database: Path
    charges: dict[str, Charge] = field(default_factory=dict)
    kept: list[Charge] = field(default_factory=list)
    sent: Counter[tuple[str, str]] = field(default_factory=Counter)
    received: Counter[tuple[str, str]] = field(default_factory=Counter)
    roots: Counter[str] = field(default_factory=Counter)
    queued: dict[str, str] = field(default_factory=dict)
    running: dict[str, Run] = field(default_factory=dict)
    gone: dict[str, list[Gone]] = field(default_factory=dict)
    starts: dict[tuple[str, str], list[Moment]] = field(default_factory=dict)
    # What was paid in, the price of each turn that is alive, and what all were charged.
    deposited: int = 0
    prices: dict[str, int] = field(default_factory=dict)
    charged: int = 0
    # What people granted roots on top of the policy.
    extras: Counter[str] = field(default_factory=Counter)
    day: str = ""
    epoch: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    highest_slots: int = 0
    deepest: int = 0
    broken: list[str] = field(default_factory=list)

    # -- figures -----------------------------------------------------------------------------------

    def today(self) -> str:
        """Never backwards, and never more than one day ahead of a clock that was set back."""
        wall = self.clock.now()
        self.day = min(max(self.day, utc_day(wall)), utc_day(wall + 86_400.0))
        return self.day

    def under_way(self) -> set[str]:
        """Return the turns of charges that are not settled."""
        return {
            recipient.turn_id
            for charge in self.charges.values()
            if charge.state == "open"
            for recipient in charge.item.recipients
        }

    def slots(self) -> int:
        return sum(1 for run in self.running.values() if run.slot and not run.waiting)

    def _depths(self, agent: str, window: float) -> tuple[int, int, set[str]]:
        """Return the least and the most that the agent's turns count for, and the roots that may count."""
        runs = [run for run in self.running.values() if run.agent == agent]
        if runs:
            deepest = max(run.depth for run in runs)
            return deepest, deepest, {run.root for run in runs}
        now = self.clock.monotonic()
        maybe = [gone for gone in self.gone.get(agent, ()) if gone.when.high + window > now]
        surely = [gone.depth for gone in maybe if gone.when.low + window > now]
        return (
            max(surely, default=0),
            max((gone.depth for gone in maybe), default=0),
            {gone.root for gone in maybe},
        )

    def _stamps(self, one: str, other: str, window: float) -> tuple[int, int]:
        now = self.clock.monotonic()
        stamps = self.starts.get(_pair(one, other), ())
        return (
            sum(1 for stamp in stamps if stamp.low + window > now),
            sum(1 for stamp in stamps if stamp.high + window > now),
        )

    # -- admission ---------------------------------------------------------------------------------

    def decided(self, item: Item, decision: Decision) -> None:
        """Check a decision, and take it over."""
        known = self.charges.get(item.key)
        if known is not None and known.state == "open":
            require(isinstance(decision, Admitted), f"{item.key} was refused the second time")
            return
        if item.kind is Kind.START:
            self._check_start(item, decision)
        elif item.kind is Kind.PERSON:
            passes = isinstance(decision, Admitted)
            require(passes != self._too_dear(item), f"a person, with credit or without: {decision}")
        elif item.kind is Kind.SOURCE:
            full = any(self._waiting(each.agent_id) >= item.limits.inbox_backlog for each in item.recipients)
            passes = isinstance(decision, Admitted)
            require(passes != (full or self._too_dear(item)), f"from outside, full {full}: {decision}")
        elif item.kind is Kind.WAKE:
            self._check_wake(item, decision)
        else:
            require(isinstance(decision, Admitted), f"an answer was refused: {decision}")
        if isinstance(decision, Refusal):
            self.refusals[decision.reason] += 1
            return
        require(decision.day == self.today(), f"charged to {decision.day} on {self.today()}")
        self._recall(item.answer_root_id, item.answer_root)
        self._charge(item, decision)

    def _recall(self, root_id: str, count: RootCount | None) -> None:
        """Take over what the record says of an old root: wakes that cost nothing are among it."""
        if count is not None:
            self.roots[root_id] = max(self.roots[root_id], count.turns)

    def _too_dear(self, item: Item) -> bool:
        price, turns = item.limits.turn_price, sum(1 for each in item.recipients if each.turn_id)
        return bool(price and self.deposited - self.charged < price * turns)

    def _check_wake(self, item: Item, decision: Decision) -> None:
        """A note of the mesh itself: held to its root, to what waits already and to credits alone."""
        known = item.answer_root.turns if item.answer_root is not None else 0
        used = max(self.roots[item.answer_root_id], known) + 1 - self.extras[item.answer_root_id]
        full = any(self._waiting(each.agent_id) >= item.limits.inbox_backlog for each in item.recipients)
        held = used > item.limits.root_turns or full or self._too_dear(item)
        passes = isinstance(decision, Admitted)
        require(passes != held, f"a wake under a root with {used} turns, full {full}: {decision}")

    def _check_start(self, item: Item, decision: Decision) -> None:
        limits, sender, today = item.limits, item.sender_id, self.today()
        turns = sum(1 for recipient in item.recipients if recipient.turn_id)
        least, most, roots = self._depths(sender, limits.causality_window_seconds)
        if item.handed is not None:
            # What a plugin does goes back to the worst of its sender's place and of what it was handed.
            least, most = max(least, item.handed.depth), max(most, item.handed.depth)
            roots = roots | set(item.handed.root_ids)
        sure, possible = set[str](), set[str]()
        if isinstance(decision, Admitted):
            require(
                least + 1 <= decision.depth <= most + 1,
                f"{sender} starts at depth {decision.depth}, which must be {least + 1} to {most + 1}",
            )
            over = decision.depth > limits.max_depth
            require(not (turns and over), f"depth {decision.depth} of {limits.max_depth}")
            self._check_root(item, decision, roots, least)
            wanted = self.roots[decision.root_id] + turns - self.extras[decision.root_id]
            require(not turns or wanted <= limits.root_turns, f"{decision.root_id} starts {wanted} turns")
        if turns and least + 1 > limits.max_depth:
            sure.add("depth_exceeded")
        if turns and most + 1 > limits.max_depth:
            possible.add("depth_exceeded")
        uses = [self.roots[root] + turns - self.extras[root] for root in roots or {item.new_root_id}]
        if max(uses) > limits.root_turns:
            possible.add("root_exhausted")
        by_all = sum(count for (_, day), count in self.sent.items() if day == today)
        if self.sent[sender, today] >= limits.sent_per_day or by_all >= limits.sent_per_day * limits.agents:
            sure.add("quota_exceeded")
        if self._too_dear(item):
            sure.add("credits_exhausted")
        for agent, _ in item.recipients:
            self._check_recipient(item, agent, sure, possible)
        if isinstance(decision, Refusal):
            require(decision.reason in sure | possible, f"refused without a reason: {decision}")
        else:
            require(not sure, f"{sender} is admitted in spite of {sorted(sure)}")

    def _check_root(self, item: Item, decision: Admitted, roots: set[str], least: int) -> None:
        if item.handed is not None:
            require(decision.root_id in roots | {item.new_root_id}, f"root {decision.root_id} from nowhere")
            return
        cause = self.running.get(item.cause_turn_id)
        if cause is not None and cause.agent == item.sender_id:
            require(decision.root_id == cause.root, f"root {decision.root_id} in place of {cause.root}")
        elif least:
            require(decision.root_id in roots, f"root {decision.root_id} is none of {sorted(roots)}")
            used = self.roots[decision.root_id]
            if self._runs(item.sender_id):
                require(
                    used == max(self.roots[root] for root in roots), "a root that is not the most used one"
                )
        elif decision.opened_root:
            require(decision.root_id == item.new_root_id, "another new root than the one given")

    def _runs(self, agent: str) -> bool:
        return any(run.agent == agent for run in self.running.values())

    def _check_recipient(self, item: Item, agent: str, sure: set[str], possible: set[str]) -> None:
        limits = item.limits
        if self.received[agent, self.today()] >= limits.received_per_day:
            sure.add("quota_exceeded")
        if self._waiting(agent) >= limits.inbox_backlog:
            sure.add("inbox_full")
        if limits.pair_budget:
            least, most = self._stamps(item.sender_id, agent, limits.pair_window_seconds)
            if least >= limits.pair_budget:
                sure.add("pair_budget_exceeded")
            if most >= limits.pair_budget:
                possible.add("pair_budget_exceeded")

    def _waiting(self, agent: str) -> int:
        return sum(1 for owner in self.queued.values() if owner == agent)

    def _charge(self, item: Item, admitted: Admitted) -> None:
        now = self.clock.monotonic()
        charge = Charge(item, admitted.depth, admitted.root_id, admitted.day, now)
        self.charges[item.key] = charge
        self.kept.append(charge)
        if item.kind is Kind.START:
            self.deepest = max(self.deepest, admitted.depth)
        self._count(charge, 1)
        for agent, turn in item.recipients:
            if turn and turn not in self.running:
                self.queued[turn] = agent
            if turn and item.limits.turn_price:
                self.prices[turn] = item.limits.turn_price
                self.charged += item.limits.turn_price
            if item.kind is Kind.START:
                stamp = Moment(now, now, self.clock.now())
                self.starts.setdefault(_pair(item.sender_id, agent), []).append(stamp)

    def _count(self, charge: Charge, by: int) -> None:
        item = charge.item
        if item.counts_as_sent:
            self.sent[item.sender_id, charge.day] += by
        for agent, turn in item.recipients:
            self.received[agent, charge.day] += by if item.counts_as_received else 0
            self.roots[charge.root] += by if turn else 0

    def settled(self, settlement: Settlement) -> None:
        """Take over what became of a charge."""
        charge = self.charges.get(settlement.key)
        if charge is None or charge.state != "open":
            return
        charge.state = "committed" if settlement.committed else "refunded"
        if settlement.committed:
            return
        self._count(charge, -1)
        for agent, turn in charge.item.recipients:
            self.queued.pop(turn, None)
            self.charged -= self.prices.pop(turn, 0)
            if charge.item.kind is Kind.START:
                stamps = self.starts[_pair(charge.item.sender_id, agent)]
                stamps.remove(next(stamp for stamp in stamps if stamp.low == charge.at))

    # -- turns -------------------------------------------------------------------------------------

    def began(self, begin: Begin, started: bool) -> None:
        """Check that a slot was free, or was not, and take over what runs."""
        runs = self.running.get(begin.turn_id)
        if runs is not None and runs.attempt >= begin.attempt:
            require(started, "a turn that runs was not started again")
            return
        freed = runs is not None and runs.slot and not runs.waiting
        fits = not begin.needs_slot or self.slots() - freed < begin.concurrent_runs
        require(started == fits, f"{begin.turn_id}: slot given: {started}, one was free: {fits}")
        if started:
            self._recall(begin.root_id, begin.root)
            self.queued.pop(begin.turn_id, None)
            self.running[begin.turn_id] = Run(
                begin.turn_id, begin.agent_id, begin.depth, begin.root_id, begin.attempt, begin.needs_slot
            )
            self.highest_slots = max(self.highest_slots, self.slots())

    def ended(self, end: End) -> None:
        """Take over an end."""
        if end.price is not Price.OPEN:
            price = self.prices.pop(end.turn_id, 0)
            self.charged -= price if end.price is Price.GIVEN_BACK else 0
        run = self.running.get(end.turn_id)
        if run is None:
            if end.kind is not EndKind.REQUEUED:
                self.queued.pop(end.turn_id, None)
            return
        if end.attempt and end.attempt != run.attempt:
            return
        del self.running[end.turn_id]
        if end.kind is not EndKind.DROPPED:
            now = self.clock.monotonic()
            when = Moment(now, now, self.clock.now())
            self.gone.setdefault(run.agent, []).append(Gone(run.id, run.depth, run.root, when))
        if end.kind is EndKind.REQUEUED:
            self.queued[end.turn_id] = run.agent

    def waits(self, item: Waiting) -> None:
        """Take over that a turn waits, or no longer does."""
        run = self.running.get(item.turn_id)
        if run is not None:
            run.waiting = item.waiting

    # -- rebuilding --------------------------------------------------------------------------------

    def seeded(self, epoch: int) -> None:
        """Count everything anew from the relay's tables."""
        self.epoch = epoch
        # What is read next is all that was ever charged: what is open by now never will be.
        for charge in self.charges.values():
            if charge.state == "open":
                charge.state = "lost"
        if not self.database.exists():
            return
        record = sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)
        try:
            self._count_again(record)
        finally:
            record.close()
        now, wall = self.clock.monotonic(), self.clock.now()
        for ends in self.gone.values():
            for gone in ends:
                gone.when.seen_again(now, wall)

    def _count_again(self, record: Any) -> None:
        # What passes between an agent and its owner is charged to nobody: no day stands on it.
        said = (
            "FROM messages m JOIN deliveries d USING (workspace_id) WHERE d.message_id = m.id AND m.day <> ''"
        )
        self.sent = Counter()
        for agent, day, count in record.execute(
            "SELECT from_id, day, count(*) FROM messages"
            " WHERE from_kind = 'agent' AND day <> '' GROUP BY 1, 2"
        ):
            self.sent[agent, day] = count
        self.received = Counter()
        for agent, day, count in record.execute(
            f"SELECT d.recipient_id, m.day, count(*) {said}"
            " AND m.from_kind <> 'mesh' AND d.recipient_kind = 'agent' GROUP BY 1, 2"
        ):
            self.received[agent, day] = count
        # One further ahead than tomorrow is of a clock that was set back since: `today` stops at tomorrow.
        self.day = max([self.day, *(day for _, day in self.sent | self.received)])
        self.roots = Counter()
        for root, count in record.execute(
            "SELECT root_id, count(*) FROM turns"
            " WHERE (caused_by_kind <> 'mesh' OR cause IN ('todo', 'timer', 'draft'))"
            " AND cause <> 'owner_answer' GROUP BY 1"
        ):
            self.roots[root] = count
        self.extras = Counter(dict(record.execute("SELECT id, extra_turns FROM roots").fetchall()))
        self.queued = dict(record.execute("SELECT id, agent_id FROM turns WHERE state = 'queued'").fetchall())
        live = "SELECT id, price FROM turns WHERE state IN ('queued', 'running') AND price > 0"
        self.prices = dict(record.execute(live).fetchall())
        ((charged,),) = record.execute(
            "SELECT coalesce(sum(price), 0) FROM turns WHERE state = 'queued' OR attempt > 0"
        )
        self.charged = charged
        waiting = {turn for (turn,) in record.execute("SELECT waiter_turn_id FROM waits")}
        rows = record.execute(
            "SELECT id, agent_id, depth, root_id, attempt, slot FROM turns WHERE state = 'running'"
        ).fetchall()
        before, self.running = self.running, {}
        for turn, agent, depth, root, attempt, slot in rows:
            self.running[turn] = Run(turn, agent, depth, root, attempt, bool(slot), turn in waiting)
        self._see_gone_again(record)
        self._forget_runs(record, before)
        self._keep_written_starts(record)

    def _see_gone_again(self, record: Any) -> None:
        """What ended in its queue may count from that end; what was never written does not."""
        wall, now = self.clock.now(), self.clock.monotonic()
        for gone in (gone for ends in self.gone.values() for gone in ends):
            row = record.execute("SELECT ended_at FROM turns WHERE id = ?", (gone.id,)).fetchone()
            if row is None or row[0] is None:
                gone.when.low = -1e12
            else:
                gone.when.high = max(gone.when.high, now - max(0.0, wall - row[0]))

    def _forget_runs(self, record: Any, before: dict[str, Run]) -> None:
        """What ran and does not by the record has ended, or was never written as started."""
        wall, now = self.clock.now(), self.clock.monotonic()
        for run in before.values():
            if run.id in self.running:
                continue
            row = record.execute("SELECT ended_at, started_at FROM turns WHERE id = ?", (run.id,)).fetchone()
            sure = row is not None and None not in row
            # One that is queued again counts only if its start was written, which is not known here.
            when = Moment(now if sure else -1e12, now, row[0] if sure else wall)
            self.gone.setdefault(run.agent, []).append(Gone(run.id, run.depth, run.root, when))

    def _keep_written_starts(self, record: Any) -> None:
        """Forget the starts that were never written: their charges went with the process."""
        self.starts = {}
        now, wall = self.clock.monotonic(), self.clock.now()
        for sender, recipient, at in record.execute(
            "SELECT m.from_id, d.recipient_id, m.created_at FROM messages m JOIN deliveries d"
            " USING (workspace_id) WHERE d.message_id = m.id AND m.admitted_as = 'start'"
        ):
            moment = now - max(0.0, wall - at)
            # By wall times; the true moment may be another when the clock was set in between.
            self.starts.setdefault(_pair(sender, recipient), []).append(Moment(moment, moment, at))


def _pair(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one < other else (other, one)


class WatchedStore(MemoryStore):
    """The real store, watched. What is wrong is noted: raised, it would be an error among others."""

    def __init__(self, clock: Clock, model: QuotaModel) -> None:
        super().__init__(clock)
        self._model = model
        model.day = ""  # a new process knows no day but those of the record
        model.deposited = 0  # and reads what was paid in from its ledger

    def deposited(self, workspace_id: str, amount: int) -> None:
        super().deposited(workspace_id, amount)
        self._model.deposited += amount

    async def extend_root(self, epoch: int, workspace_id: str, root_id: str, extra: int) -> None:
        await super().extend_root(epoch, workspace_id, root_id, extra)
        self._model.extras[root_id] = max(self._model.extras[root_id], extra)

    def _moment(self) -> Any:
        self._model.today()  # the store has seen the clock, and will not go back behind it
        return super()._moment()

    async def admit(self, epoch: int, settled: Sequence[Settlement], items: Sequence[Item]) -> list[Decision]:
        decisions = await super().admit(epoch, settled, items)
        self._watch(self._model.settled, *((one,) for one in settled))
        self._watch(self._model.decided, *zip(items, decisions, strict=True))
        return decisions

    async def settle(self, epoch: int, settled: Sequence[Settlement]) -> None:
        await super().settle(epoch, settled)
        self._watch(self._model.settled, *((one,) for one in settled))

    async def begin(self, epoch: int, turns: Sequence[Begin]) -> list[bool]:
        started = await super().begin(epoch, turns)
        self._watch(self._model.began, *zip(turns, started, strict=True))
        return started

    async def end(self, epoch: int, turns: Sequence[End]) -> None:
        await super().end(epoch, turns)
        self._watch(self._model.ended, *((one,) for one in turns))

    async def set_waiting(self, epoch: int, turns: Sequence[Waiting]) -> None:
        await super().set_waiting(epoch, turns)
        self._watch(self._model.waits, *((one,) for one in turns))

    async def seed(self, epoch: int, record: Record) -> tuple[bool, int]:
        accepted = await super().seed(epoch, record)
        if accepted[0]:
            self._watch(self._model.seeded, (epoch,))
        return accepted

    def _watch(self, told: Callable[..., None], *each: tuple[Any, ...]) -> None:
        for arguments in each:
            try:
                told(*arguments)
            except Violation as violation:
                self._model.broken.append(str(violation))
