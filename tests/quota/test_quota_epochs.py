from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from hopline_quota.domain.values import (
    DaySum,
    Record,
    SeedPair,
    SeedRoot,
    SeedState,
    SeedTurn,
    Settlement,
)
from hopline_quota.store import CountersLostError, Store

from tests.quota.builders import LIMITS, NOON, Desk, HandClock, admitted, refused

CALLS: dict[str, Callable[[Desk], Awaitable[object]]] = {
    "admit": lambda desk: desk.start("a", "b"),
    "settle": lambda desk: desk.refund("k"),
    "begin": lambda desk: desk.run("t", "a"),
    "end": lambda desk: desk.end("t"),
    "set_waiting": lambda desk: desk.wait("t"),
}


@pytest.mark.parametrize("call", CALLS)
async def test_a_fresh_store_knows_nothing_until_it_is_seeded(
    store: Store, clock: HandClock, call: str
) -> None:
    for epoch in (0, 1, 7):
        with pytest.raises(CountersLostError):
            await CALLS[call](Desk(store, clock, epoch))
    with pytest.raises(CountersLostError):
        await store.usage("ws", "a", 600)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("epoch", [0, 4, 6])
async def test_a_call_of_another_epoch_is_told_so_and_changes_nothing(
    desk: Desk, call: str, epoch: int
) -> None:
    await desk.seed(5)
    admitted(await desk.start("a", "b", key="k"))
    await desk.run("t", "a", depth=2, slots=1)
    before = [await desk.usage(agent) for agent in "ab"]
    with pytest.raises(CountersLostError):
        await CALLS[call](Desk(desk.store, desk.clock, epoch))
    assert [await desk.usage(agent) for agent in "ab"] == before


async def test_settlements_of_another_epoch_are_not_taken_either(desk: Desk) -> None:
    admitted(await desk.start("a", "b", key="k"))
    with pytest.raises(CountersLostError):
        await desk.store.admit(2, [Settlement("k", False)], [])
    assert (await desk.usage("a")).sent_today == 1


async def test_the_first_seed_of_a_higher_epoch_wins(desk: Desk) -> None:
    one = Record(days=(DaySum("ws", "a", "2025-11-30", 1, 0),))
    two = Record(days=(DaySum("ws", "a", "2025-11-30", 2, 0),))
    assert await desk.store.seed(3, one) == (True, 3)
    assert await desk.store.seed(3, two) == (False, 3)
    assert await desk.store.seed(2, two) == (False, 3)
    assert (await desk.usage("a")).sent_today == 1
    assert await desk.store.seed(4, two) == (True, 4)
    assert (await desk.usage("a")).sent_today == 2


async def test_epoch_zero_is_never_accepted(store: Store) -> None:
    assert await store.seed(0, Record()) == (False, 0)


async def test_a_seed_replaces_everything(desk: Desk) -> None:
    admitted(await desk.start("a", "b", key="k"))
    await desk.run("t", "a", depth=3, slots=1)
    await desk.seed(2)
    usage = await desk.usage("a")
    assert (usage.sent_today, usage.depth, usage.running) == (0, 0, 0)
    assert (await desk.usage("b")).queued == 0
    await desk.refund("k")
    assert (await desk.usage("b")).received_today == 0


async def test_a_seed_restores_each_counter(desk: Desk) -> None:
    def turn(name: str, agent: str, state: SeedState, depth: int, ended_at: float = 0.0) -> SeedTurn:
        return SeedTurn(name, "ws", agent, depth, "R", 1, state, True, False, ended_at)

    record = Record(
        days=(
            DaySum("ws", "a", "2025-11-30", sent=7, received=1),
            DaySum("ws", "b", "2025-11-30", sent=1, received=9),
            DaySum("ws", "a", "2025-11-29", sent=100, received=100),
            DaySum("ws", "a", "2025-10-01", sent=100, received=100),
        ),
        turns=(
            turn("queued", "b", SeedState.QUEUED, 2),
            turn("running", "a", SeedState.RUNNING, 2),
            turn("ended", "c", SeedState.ENDED, 3, NOON - 100),
            turn("long ended", "d", SeedState.ENDED, 3, NOON - 600),
        ),
        roots=(SeedRoot("ws", "R", turns=42, extra_turns=0),),
        pairs=(SeedPair("ws", "a", "b", (NOON - 10,)),),
    )
    await desk.seed(2, record)
    a, b, c, d = [await desk.usage(agent) for agent in "abcd"]
    assert (a.sent_today, a.received_today, a.depth, a.root_turns, a.running) == (7, 1, 2, 42, 1)
    assert (b.received_today, b.queued, b.depth) == (9, 1, 0)
    assert (c.depth, c.root_turns) == (3, 42)
    assert (d.depth, d.root_turns) == (0, 0)
    refused(await desk.start("a", "b", limits=LIMITS._replace(pair_budget=1)), "pair_budget_exceeded")
    refused(await desk.start("x", "c", limits=LIMITS._replace(sent_per_day=8, agents=1)), "quota_exceeded")
    desk.clock.advance(500)
    assert admitted(await desk.start("c", "d")).depth == 1


async def test_a_turn_that_claims_to_end_in_the_future_counts_as_ended_now(desk: Desk) -> None:
    ended = SeedTurn("t", "ws", "a", 3, "R", 1, SeedState.ENDED, False, False, NOON + 10_000)
    await desk.seed(2, Record(turns=(ended,)))
    assert admitted(await desk.start("a", "b")).depth == 4
    desk.clock.advance(600)
    assert admitted(await desk.start("a", "c")).depth == 1


async def test_a_seeded_window_longer_than_the_usual_one_is_kept_until_a_policy_is_seen(desk: Desk) -> None:
    ended = SeedTurn("t", "ws", "a", 3, "R", 1, SeedState.ENDED, False, False, NOON - 5000)
    await desk.seed(2, Record(turns=(ended,)))
    desk.clock.advance(1000)
    await desk.usage("a")
    assert (
        admitted(await desk.start("a", "b", limits=LIMITS._replace(causality_window_seconds=7200))).depth == 4
    )
