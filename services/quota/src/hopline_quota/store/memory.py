"""The counters in this process's memory: what every other store is held to.

Nothing here awaits, so each call is one step of the event loop and with it atomic.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from hopline_quota.domain import cause, days, rails
from hopline_quota.domain.cause import Standing
from hopline_quota.domain.values import (
    FROM_OUTSIDE,
    Admitted,
    Balance,
    Begin,
    Decision,
    End,
    EndKind,
    Item,
    Kind,
    PairUsed,
    Price,
    Record,
    Refusal,
    SeedState,
    SeedTurn,
    Settlement,
    Usage,
    Waiting,
)
from hopline_quota.store import CountersLostError
from hopline_quota.store.state import Day, Turn, Workspace

_SWEEP_SECONDS: Final = 60.0


class Clock(Protocol):
    """The wall clock for days, and seconds that never go back for windows."""

    def now(self) -> float:
        """Return unix seconds."""
        ...

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start."""
        ...


class _Moment(NamedTuple):
    """One reading of the clocks, for everything that a call decides."""

    now: float
    wall: float
    day: int
    day_text: str
    day_ends: float


class _Charge(NamedTuple):
    """What an unsettled item was charged."""

    item: Item
    admitted: Admitted
    day: int
    # Of the pair budget; None when none was taken.
    stamp: float | None
    turns: int


class MemoryStore:
    """The counters of all workspaces."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._epoch = 0
        self._day = 0
        self._day_text = ""
        # The first day whose counters are whole: those before the day's yesterday go.
        self._whole_from = 0
        self._workspaces: dict[str, Workspace] = {}
        self._charges: dict[str, _Charge] = {}
        # What each workspace has paid in: from the ledger, and no part of what a seed replaces.
        self._deposited: dict[str, int] = {}
        self._to_sweep: deque[str] = deque()
        self._next_sweep = clock.monotonic()

    async def admit(self, epoch: int, settled: Sequence[Settlement], items: Sequence[Item]) -> list[Decision]:
        """Settle, then decide and charge each item in order."""
        self._require(epoch)
        moment = self._moment()
        for settlement in settled:
            self._settle(settlement, moment.now)
        return [self._decide(item, moment) for item in items]

    async def settle(self, epoch: int, settled: Sequence[Settlement]) -> None:
        """Forget committed charges and give the others back."""
        self._require(epoch)
        now = self._moment().now
        for settlement in settled:
            self._settle(settlement, now)

    async def begin(self, epoch: int, turns: Sequence[Begin]) -> list[bool]:
        """Make turns running, each with a slot where it needs one."""
        self._require(epoch)
        now = self._moment().now
        return [self._begin(turn, now) for turn in turns]

    async def end(self, epoch: int, turns: Sequence[End]) -> None:
        """Take turns out of what runs and is queued, or put them back."""
        self._require(epoch)
        now = self._moment().now
        for turn in turns:
            self._end(turn, now)

    async def set_waiting(self, epoch: int, turns: Sequence[Waiting]) -> None:
        """Give slots back and retake them."""
        self._require(epoch)
        for item in turns:
            workspace = self._workspaces.get(item.workspace_id)
            turn = workspace.running.get(item.turn_id) if workspace is not None else None
            if workspace is not None and turn is not None:
                workspace.set_waiting(turn, item.waiting)

    async def extend_root(self, epoch: int, workspace_id: str, root_id: str, extra: int) -> None:
        """Let a root start more turns than the policy allows it."""
        self._require(epoch)
        root = self._workspace(workspace_id).root(root_id, self._moment().now)
        root.extra = max(root.extra, extra)

    async def seed(self, epoch: int, record: Record) -> tuple[bool, int]:
        """Replace everything by the record of a higher epoch."""
        if epoch <= self._epoch:
            return False, self._epoch
        self._epoch = epoch
        self._workspaces.clear()
        self._charges.clear()
        self._to_sweep.clear()
        self._plant_days(record)
        moment = self._moment()
        self._plant_roots(record, moment.now)
        self._plant_turns(record, moment)
        self._plant_pairs(record, moment)
        for entry in record.credits:
            self._workspace(entry.workspace_id).credit.charged = entry.charged
        return True, epoch

    def deposited(self, workspace_id: str, amount: int) -> None:
        """Add to what a workspace has paid in."""
        self._deposited[workspace_id] = self._deposited.get(workspace_id, 0) + amount

    async def balance(self, workspace_id: str) -> Balance:
        """Return what a workspace has paid in and was charged."""
        self._require(self._epoch)
        return self._balance(workspace_id, self._workspace(workspace_id))

    async def usage(
        self,
        workspace_id: str,
        agent_id: str,
        window_seconds: int,
        pair_budget: int = 0,
        pair_seconds: int = 0,
    ) -> Usage:
        """Return what an agent uses."""
        self._require(self._epoch)
        moment = self._moment()
        workspace = self._workspace(workspace_id)
        today = workspace.day(moment.day)
        agent = workspace.agents.get(agent_id)
        standing = workspace.standing(agent_id, "", window_seconds, moment.now)
        root = workspace.roots.get(standing.root_id)
        pairs = workspace.pairs_of(agent_id, pair_budget, pair_seconds, moment.now) if pair_budget else []
        return Usage(
            sent_today=today.sent.get(agent_id, 0),
            received_today=today.received.get(agent_id, 0),
            queued=agent.queued if agent is not None else 0,
            root_turns=root.turns if root is not None else 0,
            depth=standing.depth,
            resets_at=moment.day_ends,
            running=workspace.slots_used,
            balance=self._balance(workspace_id, workspace),
            root_id=standing.root_id,
            root_extra=root.extra if root is not None else 0,
            pairs=tuple(
                PairUsed(other, used, None if frees_at is None else moment.wall + (frees_at - moment.now))
                for other, used, frees_at in pairs
            ),
            sent_by_all=today.sent_by_all,
        )

    def fullest(self, limits_of: Callable[[str], Mapping[str, int]]) -> tuple[dict[str, float], int]:
        """Return the greatest part of each limit that is used anywhere, and how many run slots are taken."""
        found: dict[str, float] = {}
        slots = 0
        for workspace_id, workspace in self._workspaces.items():
            used = workspace.fullest(self._day)
            for name, limit in limits_of(workspace_id).items():
                if limit > 0:
                    found[name] = max(found.get(name, 0.0), used[name] / limit)
            if paid := self._deposited.get(workspace_id, 0):
                found["credits"] = max(found.get("credits", 0.0), workspace.credit.charged / paid)
            slots += workspace.slots_used
        return found, slots

    # Time and place

    def _require(self, epoch: int) -> None:
        if epoch != self._epoch or not epoch:
            raise CountersLostError

    def _moment(self) -> _Moment:
        now, wall = self._clock.monotonic(), self._clock.now()
        self._reach_day(wall)
        if self._day < self._whole_from:
            # The clock was days ahead and is back: what was charged on this day stands in the record alone.
            self._epoch = 0
            raise CountersLostError
        if now >= self._next_sweep:
            self._sweep_one(now)
        return _Moment(now, wall, self._day, self._day_text, days.end_of(self._day))

    def _reach_day(self, wall: float, known: int = 0) -> None:
        """Go on to a later day, the clock's or a `known` one; at most one day ahead of the clock.

        A clock set back by less changes nothing; one that was far ahead for a moment holds no day up.
        """
        today = days.day_of(wall)
        day = min(max(self._day, known, today), today + 1)
        if day != self._day:
            self._day, self._day_text = day, days.write_day(day)
            self._whole_from = max(self._whole_from, day - 1)

    def _sweep_one(self, now: float) -> None:
        """Sweep one workspace of many: each has its turn about once a minute, and no call pays for all."""
        if not self._to_sweep:
            self._to_sweep.extend(self._workspaces)
        if self._to_sweep:
            self._workspaces[self._to_sweep.popleft()].sweep(now)
        self._next_sweep = now + _SWEEP_SECONDS / max(1, len(self._workspaces))

    def _workspace(self, workspace_id: str) -> Workspace:
        found = self._workspaces.get(workspace_id)
        if found is None:
            found = self._workspaces[workspace_id] = Workspace()
        return found

    def _balance(self, workspace_id: str, workspace: Workspace) -> Balance:
        return Balance(self._deposited.get(workspace_id, 0), workspace.credit.charged)

    # Admission

    def _decide(self, item: Item, moment: _Moment) -> Decision:
        charge = self._charges.get(item.key)
        if charge is not None:
            return charge.admitted
        workspace = self._workspace(item.workspace_id)
        limits = item.limits
        workspace.tell_windows(limits.causality_window_seconds, limits.pair_window_seconds)
        admitted = self._place(workspace, item, moment)
        if not admitted.root_id:
            return Refusal("invalid_argument", "new_root_id: needed where nothing else gives the root")
        turns = len([1 for recipient in item.recipients if recipient.turn_id])
        refusal = None
        if item.kind is Kind.START:
            refusal = self._refusal(workspace, item, admitted, turns, moment)
        elif item.kind is Kind.SOURCE:
            refusal = self._flooded(workspace, item)
        elif item.kind is Kind.WAKE:
            refusal = self._spent(workspace, item, admitted, turns) or self._flooded(workspace, item)
        if refusal is None and limits.turn_price and item.kind is not Kind.ANSWER:
            left = self._balance(item.workspace_id, workspace).left
            refusal = rails.over_credits(left, turns, limits)
        if refusal is not None:
            return refusal
        self._charge(workspace, item, admitted, turns, moment)
        return admitted

    def _place(self, workspace: Workspace, item: Item, moment: _Moment) -> Admitted:
        """Work out where the item would run, before anything is checked."""
        day = moment.day_text
        if item.kind in FROM_OUTSIDE:
            return Admitted(0, item.new_root_id, True, day, "")
        if item.kind in (Kind.ANSWER, Kind.WAKE):
            root_id = item.answer_root_id or item.new_root_id
            return Admitted(item.answer_depth, root_id, not item.answer_root_id, day, item.cause_turn_id)
        window = item.limits.causality_window_seconds
        standing: Standing = workspace.standing(item.sender_id, item.cause_turn_id, window, moment.now)
        if item.handed is not None:
            standing = workspace.handed_standing(standing, item.handed)
        depth = cause.depth_of_start(standing)
        root_id = standing.root_id or item.new_root_id
        return Admitted(depth, root_id, not standing.root_id, day, standing.turn_id)

    def _refusal(
        self, workspace: Workspace, item: Item, admitted: Admitted, turns: int, moment: _Moment
    ) -> Refusal | None:
        """Ask every rail, the sender's own before those of each recipient in turn."""
        limits, day = item.limits, workspace.day(moment.day)
        refusal = None
        if turns:  # what goes to a person starts nothing
            refusal = rails.over_depth(admitted.depth, limits) or self._spent(
                workspace, item, admitted, turns
            )
        refusal = refusal or rails.over_sent(
            day.sent.get(item.sender_id, 0), day.sent_by_all, limits, moment.day_ends
        )
        if refusal is not None:
            return refusal
        for recipient in item.recipients:
            agent_id = recipient.agent_id
            agent = workspace.agents.get(agent_id)
            queued = agent.queued if agent is not None and recipient.turn_id else 0
            refusal = (
                rails.over_received(agent_id, day.received.get(agent_id, 0), limits, moment.day_ends)
                or rails.over_backlog(agent_id, queued, limits)
                or rails.over_pair(agent_id, _pair_frees_at(workspace, item, agent_id, moment), limits)
            )
            if refusal is not None:
                return refusal
        return None

    def _spent(self, workspace: Workspace, item: Item, admitted: Admitted, turns: int) -> Refusal | None:
        """Ask the rail that ends what goes on and on: what its root has started, by the record as well."""
        root = workspace.roots.get(admitted.root_id)
        used, extra = (root.turns, root.extra) if root is not None else (0, 0)
        if item.answer_root is not None:
            used, extra = max(used, item.answer_root.turns), max(extra, item.answer_root.extra)
        return rails.over_root(admitted.root_id, used, extra, turns, item.limits)

    def _flooded(self, workspace: Workspace, item: Item) -> Refusal | None:
        """Ask the one rail that holds back what nobody sits at: what waits already."""
        for agent_id, turn_id in item.recipients:
            agent = workspace.agents.get(agent_id)
            queued = agent.queued if agent is not None and turn_id else 0
            if refusal := rails.over_backlog(agent_id, queued, item.limits):
                return refusal
        return None

    def _charge(
        self, workspace: Workspace, item: Item, admitted: Admitted, turns: int, moment: _Moment
    ) -> None:
        day = workspace.day(moment.day)
        sender = item.sender_id
        if item.counts_as_sent:
            day.sent[sender] = day.sent.get(sender, 0) + 1
            day.sent_by_all += 1
        stamp = moment.now if item.kind is Kind.START and item.limits.pair_budget else None
        price = item.limits.turn_price
        if item.answer_root is not None:
            workspace.recall_root(admitted.root_id, item.answer_root, moment.now)
        if turns:
            workspace.root(admitted.root_id, moment.now).turns += turns
        for agent_id, turn_id in item.recipients:
            if item.counts_as_received:
                day.received[agent_id] = day.received.get(agent_id, 0) + 1
            if stamp is not None:
                workspace.stamp_pair(_pair(sender, agent_id), stamp)
            if turn_id and price:
                workspace.credit.charge(turn_id, price)
            if turn_id and turn_id not in workspace.queued and turn_id not in workspace.running:
                workspace.enqueue(Turn(turn_id, agent_id, admitted.depth, admitted.root_id))
        self._charges[item.key] = _Charge(item, admitted, moment.day, stamp, turns)

    def _settle(self, settlement: Settlement, now: float) -> None:
        charge = self._charges.pop(settlement.key, None)
        if charge is None or settlement.committed:
            return
        item = charge.item
        workspace = self._workspace(item.workspace_id)
        day = workspace.days.get(charge.day)
        if day is not None:
            _take_back(day, item)
        for agent_id, turn_id in item.recipients:
            if turn_id:
                workspace.dequeue(turn_id, now)
                workspace.credit.give_back(turn_id)
            if charge.stamp is not None:
                workspace.unstamp_pair(_pair(item.sender_id, agent_id), charge.stamp)
        if charge.turns:
            workspace.uncharge_root(charge.admitted.root_id, charge.turns)

    # Turns

    def _begin(self, begin: Begin, now: float) -> bool:
        workspace = self._workspace(begin.workspace_id)
        runs = workspace.running.get(begin.turn_id)
        if runs is not None and runs.attempt >= begin.attempt:
            return True
        freed = runs is not None and runs.uses_slot
        if begin.needs_slot and workspace.slots_used - freed >= begin.concurrent_runs:
            return False
        if runs is not None:
            workspace.stop(runs, now)
        workspace.dequeue(begin.turn_id, now)
        turn = Turn(begin.turn_id, begin.agent_id, begin.depth, begin.root_id)
        turn.attempt = begin.attempt
        turn.takes_slot = begin.needs_slot
        if begin.root is not None:
            workspace.recall_root(begin.root_id, begin.root, now)
        workspace.start(turn)
        return True

    def _end(self, end: End, now: float) -> None:
        workspace = self._workspaces.get(end.workspace_id)
        if workspace is None:
            return
        if end.price is Price.GIVEN_BACK:
            workspace.credit.give_back(end.turn_id)
        elif end.price is Price.KEPT:
            workspace.credit.keep(end.turn_id)
        turn = workspace.running.get(end.turn_id)
        if turn is None:
            if end.kind is not EndKind.REQUEUED:
                workspace.dequeue(end.turn_id, now)
            return
        if end.attempt and end.attempt != turn.attempt:
            return
        workspace.stop(turn, now)
        if end.kind is not EndKind.DROPPED:
            workspace.remember(turn, now)
        if end.kind is EndKind.REQUEUED:
            workspace.enqueue(Turn(turn.id, turn.agent_id, turn.depth, turn.root_id))

    # Seeding

    def _plant_days(self, record: Record) -> None:
        """Add up the days; the store's day goes on to the latest of them, as far as the clock lets it."""
        sums = [(days.read_day(entry.day), entry) for entry in record.days]
        self._reach_day(self._clock.now(), max((number for number, _ in sums), default=0))
        self._whole_from = self._day - 1
        for number, entry in sums:
            if number < self._day - 1:
                continue
            # Later days too, of a clock that was ahead: they come again, and push out none before them.
            day = self._workspace(entry.workspace_id).days.setdefault(number, Day())
            day.sent[entry.agent_id] = day.sent.get(entry.agent_id, 0) + entry.sent
            day.received[entry.agent_id] = day.received.get(entry.agent_id, 0) + entry.received
            day.sent_by_all += entry.sent

    def _plant_roots(self, record: Record, now: float) -> None:
        for entry in record.roots:
            root = self._workspace(entry.workspace_id).root(entry.root_id, now)
            root.turns, root.extra = entry.turns, entry.extra_turns

    def _plant_turns(self, record: Record, moment: _Moment) -> None:
        for entry in record.turns:
            workspace = self._workspace(entry.workspace_id)
            turn = _seeded_turn(entry)
            if entry.price and entry.state is not SeedState.ENDED:
                workspace.credit.plant(entry.turn_id, entry.price)
            if entry.state is SeedState.QUEUED:
                workspace.enqueue(turn)
            elif entry.state is SeedState.RUNNING:
                workspace.start(turn)
            else:
                workspace.remember(turn, _monotonic_of(entry.ended_at, moment))

    def _plant_pairs(self, record: Record, moment: _Moment) -> None:
        """Stamp the starts of all pairs in the order of time, which is how stamps are kept."""
        starts = [
            (_monotonic_of(start, moment), entry.workspace_id, _pair(entry.agent_a, entry.agent_b))
            for entry in record.pairs
            for start in entry.starts
        ]
        for at, workspace_id, pair in sorted(starts):
            self._workspace(workspace_id).stamp_pair(pair, at)


def _pair(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one < other else (other, one)


def _pair_frees_at(workspace: Workspace, item: Item, agent_id: str, moment: _Moment) -> float | None:
    """Return the unix time at which the sender may start on this agent again; None for now."""
    limits = item.limits
    if not limits.pair_budget:
        return None
    frees_at = workspace.pair_frees_at(
        _pair(item.sender_id, agent_id), limits.pair_budget, limits.pair_window_seconds, moment.now
    )
    return None if frees_at is None else moment.wall + (frees_at - moment.now)


def _take_back(day: Day, item: Item) -> None:
    if item.counts_as_sent:
        _lower(day.sent, item.sender_id)
        day.sent_by_all -= 1
    for recipient in item.recipients if item.counts_as_received else ():
        _lower(day.received, recipient.agent_id)


def _lower(counts: dict[str, int], key: str) -> None:
    left = counts[key] - 1
    if left:
        counts[key] = left
    else:
        del counts[key]


def _seeded_turn(entry: SeedTurn) -> Turn:
    turn = Turn(entry.turn_id, entry.agent_id, entry.depth, entry.root_id)
    turn.attempt, turn.takes_slot, turn.waiting = entry.attempt, entry.holds_slot, entry.waiting
    return turn


def _monotonic_of(wall: float, moment: _Moment) -> float:
    """Return a past unix time on the monotonic clock; what claims to be in the future is now."""
    return moment.now - max(0.0, moment.wall - wall)
