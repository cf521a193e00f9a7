"""Whatever order things happen in, a store decides as the plain model does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
from hopline_quota.domain.values import (
    Admitted,
    Begin,
    End,
    EndKind,
    Handed,
    Item,
    Kind,
    Limits,
    Price,
    Settlement,
    Waiting,
)
from hopline_quota.store import CountersLostError, Store
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.quota.builders import DAY, NOON, Desk, HandClock
from tests.quota.conftest import STORES
from tests.quota.model import Model, ModelTurn

T = TypeVar("T")

AGENTS = ("a", "b", "c", "d")
SLOTS = 2
TIGHT = Limits(
    max_depth=3,
    root_turns=7,
    sent_per_day=6,
    received_per_day=8,
    pair_budget=3,
    pair_window_seconds=50,
    inbox_backlog=4,
    causality_window_seconds=40,
    agents=3,
)
agents = st.sampled_from(AGENTS)
several = st.lists(agents, min_size=1, max_size=3, unique=True)
pick = st.integers(min_value=0, max_value=10**6)
prices = st.sampled_from([0, 0, 1, 3])


class Machine(RuleBasedStateMachine):
    def __init__(self, make_store: Callable[[HandClock], Store]) -> None:
        super().__init__()
        # A few minutes before midnight, so that the day changes on the way.
        self.clock = HandClock(NOON + DAY / 2 - 200)
        self.desk = Desk(make_store(self.clock), self.clock)
        self.model = Model(self.clock)
        self.runner = asyncio.Runner()

    def teardown(self) -> None:
        self.runner.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    @initialize()
    def begin_empty(self) -> None:
        self.run(self.desk.seed(1))
        self.model.today()  # the store has seen this day: set back, the clock takes neither below it

    # -- messages ------------------------------------------------------------------------------------

    def admit(self, item: Item) -> None:
        expected, depth_and_root = self.model.refusals(item), self.model.place(item)
        deepest = max((turn.depth for turn in self.model.running(item.sender_id)), default=-1)
        decision = self.run(self.desk.admit(item))[0]
        if not isinstance(decision, Admitted):
            assert decision.reason in expected
            return
        assert not expected
        assert decision[:3] == depth_and_root
        if item.kind is Kind.START:
            assert decision.depth > deepest
        self.model.charge(item)

    @rule(sender=agents, recipients=several, cause=pick, price=prices)
    def start(self, sender: str, recipients: list[str], cause: int, price: int) -> None:
        others = [each for each in recipients if each != sender] or [next(a for a in AGENTS if a != sender)]
        turns = [*self.model.turns, ""]
        limits = TIGHT._replace(turn_price=price)
        self.admit(self.desk.item(sender, *others, limits=limits, cause=turns[cause % len(turns)]))

    @rule(
        sender=agents, recipient=agents, cause=pick, depth=st.integers(0, 4), roots=st.lists(pick, max_size=3)
    )
    def a_plugin_starts(self, sender: str, recipient: str, cause: int, depth: int, roots: list[int]) -> None:
        known, turns = self.model.roots(), [*self.model.turns, ""]
        handed = Handed(depth, tuple({known[root % len(known)] for root in roots} if known else ()))
        other = recipient if recipient != sender else next(a for a in AGENTS if a != sender)
        item = self.desk.item(sender, other, limits=TIGHT, cause=turns[cause % len(turns)], handed=handed)
        self.admit(item)

    @precondition(lambda self: self.model.roots())
    @rule(
        sender=agents,
        recipient=agents,
        depth=st.integers(0, 5),
        root=pick,
        price=prices,
        kind=st.sampled_from([Kind.ANSWER, Kind.WAKE]),
    )
    def comes_back(self, sender: str, recipient: str, depth: int, root: int, price: int, kind: Kind) -> None:
        roots, limits = self.model.roots(), TIGHT._replace(turn_price=price)
        sender = "mesh" if kind is Kind.WAKE else sender
        self.admit(
            self.desk.item(
                sender, recipient, kind=kind, depth=depth, root=roots[root % len(roots)], limits=limits
            )
        )

    @rule(recipients=several, price=prices, kind=st.sampled_from([Kind.PERSON, Kind.SOURCE]))
    def comes_from_outside(self, recipients: list[str], price: int, kind: Kind) -> None:
        limits = TIGHT._replace(turn_price=price)
        self.admit(self.desk.item("alice", *recipients, kind=kind, limits=limits))

    @rule(amount=st.integers(1, 9))
    def somebody_pays_in(self, amount: int) -> None:
        self.desk.store.deposited("ws", amount)
        self.model.deposited += amount

    @precondition(lambda self: self.model.roots())
    @rule(which=pick, more=st.integers(1, 4))
    def a_root_is_extended(self, which: int, more: int) -> None:
        roots = self.model.roots()
        root = roots[which % len(roots)]
        total = self.model.extras[root] = self.model.extras.get(root, 0) + more
        # What was granted before may be told again, and late.
        for extra in (total, total - more):
            self.run(self.desk.store.extend_root(self.desk.epoch, "ws", root, extra))

    @precondition(lambda self: self.model.open_charges())
    @rule(which=pick)
    def send_again(self, which: int) -> None:
        open_ = self.model.open_charges()
        sent = open_[which % len(open_)]
        decision = self.run(self.desk.admit(sent.item))[0]
        assert isinstance(decision, Admitted)
        assert decision[:2] == (sent.depth, sent.root)

    @precondition(lambda self: self.model.open_charges())
    @rule(which=pick, committed=st.booleans(), riding=st.booleans())
    def settle(self, which: int, committed: bool, riding: bool) -> None:
        open_ = self.model.open_charges()
        sent = open_[which % len(open_)]
        settlement = Settlement(sent.item.key, committed)
        if riding:
            self.run(self.desk.admit(settled=(settlement, settlement)))
        else:
            self.run(self.desk.store.settle(self.desk.epoch, [settlement, settlement]))
        self.model.settle(sent, committed)

    # -- turns ---------------------------------------------------------------------------------------

    def ready(self) -> list[ModelTurn]:
        """Return the queued turns whose messages are committed."""
        open_ = {turn for sent in self.model.open_charges() for _, turn in sent.item.recipients}
        return [t for t in self.model.turns.values() if t.state == "queued" and t.id not in open_]

    @precondition(lambda self: self.ready())
    @rule(which=pick, slot=st.booleans())
    def begin(self, which: int, slot: bool) -> None:
        ready = self.ready()
        turn = ready[which % len(ready)]
        begin = Begin(turn.id, "ws", turn.agent, turn.depth, turn.root, turn.attempt + 1, slot, SLOTS)
        started = self.run(self.desk.store.begin(self.desk.epoch, [begin, begin]))
        assert started == [not slot or self.model.slots() < SLOTS] * 2
        if started[0]:
            turn.state, turn.slot, turn.attempt = "running", slot, turn.attempt + 1

    @precondition(lambda self: self.ready() or self.model.running())
    @rule(which=pick, kind=st.sampled_from(EndKind), late=st.booleans())
    def end(self, which: int, kind: EndKind, late: bool) -> None:
        turns = self.ready() + self.model.running()
        turn = turns[which % len(turns)]
        if late and turn.state == "running":
            # What was said of an older attempt must not end this one.
            self.run(self.desk.store.end(self.desk.epoch, [End(turn.id, "ws", turn.attempt + 1, kind)]))
            return
        attempt = turn.attempt if turn.state == "running" else 0
        price = Price.OPEN
        if kind is not EndKind.REQUEUED:
            price = Price.KEPT if turn.attempt else Price.GIVEN_BACK
        self.run(self.desk.store.end(self.desk.epoch, [End(turn.id, "ws", attempt, kind, price)] * 2))
        self.model.end(turn, kind)

    @precondition(lambda self: self.model.running())
    @rule(which=pick, waiting=st.booleans())
    def wait(self, which: int, waiting: bool) -> None:
        running = self.model.running()
        turn = running[which % len(running)]
        self.run(self.desk.store.set_waiting(self.desk.epoch, [Waiting(turn.id, "ws", waiting)] * 2))
        turn.waiting = waiting

    # -- time and loss -------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.5, 1.0, 10.0, 40.0, 50.0, 61.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(seconds=st.sampled_from([1.0, 300.0, 90_000.0]))
    def wall_clock_is_set_back(self, seconds: float) -> None:
        self.clock.wall -= seconds
        try:
            self.run(self.desk.usage(AGENTS[0], window=40))
        except CountersLostError:
            # Set back by days, to one whose counters have gone: the record knows it.
            self.seed_again()

    @rule()
    def counters_are_lost_and_seeded(self) -> None:
        self.seed_again()

    def seed_again(self) -> None:
        self.model.lose_what_is_open()
        assert self.run(self.desk.seed(self.desk.epoch + 1, self.model.record()))[0]

    @invariant()
    def every_figure_is_the_models(self) -> None:
        for agent in AGENTS:
            usage = self.run(self.desk.usage(agent, window=40))
            depth, roots = self.model.standing(agent, 40)
            assert usage.sent_today == self.model.sent_today(agent)
            assert usage.received_today == self.model.received_today(agent)
            assert usage.queued == self.model.queued(agent)
            assert usage.depth == depth
            assert usage.running == self.model.slots()
            assert usage.balance == (self.model.deposited, self.model.charged())
            assert usage.root_turns == (self.model.root_turns(self.model.most_used(roots)) if roots else 0)


@pytest.mark.parametrize("name", STORES)
def test_no_interleaving_makes_a_store_decide_otherwise_than_the_model(name: str) -> None:
    class OfStore(Machine):
        def __init__(self) -> None:
            super().__init__(STORES[name])

    run_state_machine_as_test(
        OfStore, settings=settings(max_examples=80, stateful_step_count=60, deadline=None)
    )
