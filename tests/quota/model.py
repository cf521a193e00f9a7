"""Admission as plainly as it can be said: a list of what happened, and every figure counted from it anew."""

from __future__ import annotations

from dataclasses import dataclass, field

from hopline_quota.domain.values import (
    FROM_OUTSIDE,
    DaySum,
    EndKind,
    Item,
    Kind,
    Limits,
    Record,
    SeedCredit,
    SeedPair,
    SeedRoot,
    SeedState,
    SeedTurn,
)

from tests.quota.builders import DAY, HandClock


@dataclass
class Sent:
    """A message that was admitted."""

    item: Item
    day: int
    at: float
    depth: int
    root: str
    state: str = "open"  # then committed or refunded


@dataclass
class ModelTurn:
    id: str
    agent: str
    depth: int
    root: str
    state: str = "queued"  # running, gone
    attempt: int = 0
    slot: bool = False
    waiting: bool = False
    price: int = 0


@dataclass
class Model:
    clock: HandClock
    sent: list[Sent] = field(default_factory=list)
    turns: dict[str, ModelTurn] = field(default_factory=dict)
    ends: list[tuple[str, int, str, float]] = field(default_factory=list)
    latest_day: int = 0
    deposited: int = 0
    given_back: set[str] = field(default_factory=set)
    extras: dict[str, int] = field(default_factory=dict)

    # -- figures -------------------------------------------------------------------------------------

    def today(self) -> int:
        today = int(self.clock.now() // DAY)
        self.latest_day = min(max(self.latest_day, today), today + 1)
        return self.latest_day

    def standing_charges(self) -> list[Sent]:
        return [each for each in self.sent if each.state != "refunded"]

    def sent_today(self, agent: str | None = None) -> int:
        return sum(
            1
            for each in self.standing_charges()
            if each.day == self.today()
            and not each.item.by_person
            and each.item.kind is not Kind.WAKE
            and agent in (None, each.item.sender_id)
        )

    def received_today(self, agent: str) -> int:
        return sum(
            1
            for each in self.standing_charges()
            for recipient in each.item.recipients
            if each.day == self.today() and recipient.agent_id == agent and each.item.kind is not Kind.WAKE
        )

    def root_turns(self, root: str) -> int:
        return sum(len(each.item.recipients) for each in self.standing_charges() if each.root == root)

    def charged(self) -> int:
        return sum(
            each.item.limits.turn_price
            for each in self.standing_charges()
            for _, turn in each.item.recipients
            if turn not in self.given_back
        )

    def roots(self) -> list[str]:
        return sorted({each.root for each in self.sent})

    def queued(self, agent: str) -> int:
        return sum(1 for turn in self.turns.values() if turn.agent == agent and turn.state == "queued")

    def running(self, agent: str | None = None) -> list[ModelTurn]:
        return [t for t in self.turns.values() if t.state == "running" and agent in (None, t.agent)]

    def slots(self) -> int:
        return sum(1 for turn in self.running() if turn.slot and not turn.waiting)

    def starts_between(self, one: str, other: str, window: float) -> list[float]:
        return sorted(
            each.at
            for each in self.standing_charges()
            if each.item.kind is Kind.START and each.at + window > self.clock.monotonic()
            for recipient in each.item.recipients
            if {each.item.sender_id, recipient.agent_id} == {one, other}
        )

    def standing(self, agent: str, window: float) -> tuple[int, set[str]]:
        """Return the depth that counts for an agent and the roots of the turns that count; 0 and none."""
        counting = [(turn.depth, turn.root) for turn in self.running(agent)]
        if not counting:
            now = self.clock.monotonic()
            counting = [(d, root) for who, d, root, at in self.ends if who == agent and at + window > now]
        return max((d for d, _ in counting), default=0), {root for _, root in counting}

    def most_used(self, roots: set[str]) -> str:
        return sorted(roots, key=lambda root: (-self.root_turns(root), root))[0]

    # -- decisions -----------------------------------------------------------------------------------

    def place(self, item: Item) -> tuple[int, str, bool]:
        """Return depth, root, and whether the root is opened."""
        if item.kind in FROM_OUTSIDE:
            return 0, item.new_root_id, True
        if item.kind in (Kind.ANSWER, Kind.WAKE):
            return item.answer_depth, item.answer_root_id, False
        depth, roots = self.standing(item.sender_id, item.limits.causality_window_seconds)
        cause = self.turns.get(item.cause_turn_id)
        if cause is not None and cause in self.running(item.sender_id):
            roots = {cause.root}
        if item.handed is not None:
            depth, roots = max(depth, item.handed.depth), roots | set(item.handed.root_ids)
        if roots:
            return depth + 1, self.most_used(roots), False
        return depth + 1, item.new_root_id, True

    def refusals(self, item: Item) -> set[str]:
        """Return every reason there is to refuse an item; empty where it passes."""
        limits: Limits = item.limits
        found = set()
        price = limits.turn_price
        if price and self.deposited - self.charged() < price * len(item.recipients):
            found.add("credits_exhausted")
        if item.kind is not Kind.START:
            held = found | self.backlog_refusals(item)
            return held if item.kind is not Kind.ANSWER else set()
        depth, root, _ = self.place(item)
        starts = any(turn for _, turn in item.recipients)
        if starts and depth > limits.max_depth:
            found.add("depth_exceeded")
        if starts and self.root_turns(root) + len(item.recipients) > limits.root_turns + self.extras.get(
            root, 0
        ):
            found.add("root_exhausted")
        if self.sent_today(item.sender_id) + 1 > limits.sent_per_day:
            found.add("quota_exceeded")
        if self.sent_today() + 1 > limits.sent_per_day * limits.agents:
            found.add("quota_exceeded")
        for agent, _ in item.recipients:
            if self.received_today(agent) + 1 > limits.received_per_day:
                found.add("quota_exceeded")
            if self.queued(agent) + 1 > limits.inbox_backlog:
                found.add("inbox_full")
            before = self.starts_between(item.sender_id, agent, limits.pair_window_seconds)
            if len(before) + 1 > limits.pair_budget:
                found.add("pair_budget_exceeded")
        return found

    def backlog_refusals(self, item: Item) -> set[str]:
        """Return what holds back what comes from nobody who sits there, or from the mesh itself."""
        found, (_, root, _) = set(), self.place(item)
        if item.kind is not Kind.PERSON and any(
            self.queued(agent) + 1 > item.limits.inbox_backlog for agent, _ in item.recipients
        ):
            found.add("inbox_full")
        room = item.limits.root_turns + self.extras.get(root, 0) - self.root_turns(root)
        if item.kind is Kind.WAKE and len(item.recipients) > room:
            found.add("root_exhausted")
        return found

    # -- what happens --------------------------------------------------------------------------------

    def charge(self, item: Item) -> None:
        depth, root, _ = self.place(item)
        self.sent.append(Sent(item, self.today(), self.clock.monotonic(), depth, root))
        for agent, turn in item.recipients:
            self.turns[turn] = ModelTurn(turn, agent, depth, root, price=item.limits.turn_price)

    def settle(self, sent: Sent, committed: bool) -> None:
        sent.state = "committed" if committed else "refunded"
        if not committed:
            for _, turn in sent.item.recipients:
                self.turns.pop(turn, None)

    def end(self, turn: ModelTurn, kind: EndKind) -> None:
        ran = turn.state == "running"
        if not ran and not turn.attempt and kind is not EndKind.REQUEUED:
            self.given_back.add(turn.id)
        if ran and kind is not EndKind.DROPPED:
            self.ends.append((turn.agent, turn.depth, turn.root, self.clock.monotonic()))
        if ran:
            turn.state = "queued" if kind is EndKind.REQUEUED else "gone"
        elif kind is not EndKind.REQUEUED:
            turn.state = "gone"
        turn.slot = turn.waiting = False

    def open_charges(self) -> list[Sent]:
        return [each for each in self.sent if each.state == "open"]

    # -- the record that a relay would have ----------------------------------------------------------

    def lose_what_is_open(self) -> None:
        for each in self.open_charges():
            self.settle(each, committed=False)

    def record(self) -> Record:
        wall, now = self.clock.now(), self.clock.monotonic()
        days, pairs, agents = [], [], set()
        for each in self.standing_charges():
            if each.item.kind is Kind.WAKE:
                continue
            text = str(_date(each.day))
            sender = each.item.sender_id
            agents.add(sender)
            if not each.item.by_person:
                days.append(DaySum("ws", sender, text, 1, 0))
            for agent, _ in each.item.recipients:
                days.append(DaySum("ws", agent, text, 0, 1))
                if each.item.kind is Kind.START:
                    pairs.append(SeedPair("ws", sender, agent, (wall - (now - each.at),)))
        turns = [
            SeedTurn(t.id, "ws", t.agent, t.depth, t.root, t.attempt, state, t.slot, t.waiting, 0.0, t.price)
            for t in self.turns.values()
            if (state := {"queued": SeedState.QUEUED, "running": SeedState.RUNNING}.get(t.state)) is not None
        ]
        turns += [
            SeedTurn(
                f"ended {n}", "ws", who, depth, root, 1, SeedState.ENDED, False, False, wall - (now - at)
            )
            for n, (who, depth, root, at) in enumerate(self.ends)
        ]
        roots = tuple(
            SeedRoot("ws", root, self.root_turns(root), self.extras.get(root, 0)) for root in self.roots()
        )
        charged = (SeedCredit("ws", self.charged()),)
        return Record(tuple(days), tuple(turns), roots, tuple(pairs), charged)


def _date(day: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(day * DAY, UTC).date().isoformat()
