from __future__ import annotations

import pytest
from hopline_quota.domain.values import Kind, Record, SeedPair

from tests.quota.builders import LIMITS, NOON, Desk, admitted, refused

THREE = LIMITS._replace(pair_budget=3, pair_window_seconds=100)


@pytest.mark.parametrize(("started", "passes"), [(1, True), (2, True), (3, False)])
async def test_the_pair_budget_at_its_border(desk: Desk, started: int, passes: bool) -> None:
    for _ in range(started):
        admitted(await desk.start("a", "b", limits=THREE))
    decision = await desk.start("a", "b", limits=THREE)
    if passes:
        admitted(decision)
    else:
        refusal = refused(decision, "pair_budget_exceeded")
        assert (refusal.limit, refusal.used, refusal.recipient_id) == (3, 3, "b")


async def test_starts_in_both_directions_count(desk: Desk) -> None:
    admitted(await desk.start("a", "b", limits=THREE))
    admitted(await desk.start("b", "a", limits=THREE))
    admitted(await desk.start("a", "b", limits=THREE))
    refused(await desk.start("b", "a", limits=THREE), "pair_budget_exceeded")


async def test_it_tells_when_it_frees_and_frees_then(desk: Desk) -> None:
    for _ in range(3):
        admitted(await desk.start("a", "b", limits=THREE))
        desk.clock.advance(10)
    refusal = refused(await desk.start("a", "b", limits=THREE), "pair_budget_exceeded")
    assert refusal.resets_at == NOON + 100
    desk.clock.advance(69)
    refused(await desk.start("a", "b", limits=THREE), "pair_budget_exceeded")
    desk.clock.advance(1)
    admitted(await desk.start("a", "b", limits=THREE))
    refusal = refused(await desk.start("a", "b", limits=THREE), "pair_budget_exceeded")
    assert refusal.resets_at == NOON + 110


async def test_other_pairs_are_not_touched(desk: Desk) -> None:
    for _ in range(3):
        admitted(await desk.start("a", "b", limits=THREE))
    admitted(await desk.start("a", "c", limits=THREE))
    admitted(await desk.start("c", "b", limits=THREE))


async def test_a_fan_out_counts_once_for_each_of_its_pairs(desk: Desk) -> None:
    for _ in range(3):
        admitted(await desk.start("a", "b", "c", limits=THREE))
    assert refused(await desk.start("a", "d", "c", limits=THREE), "pair_budget_exceeded").recipient_id == "c"


async def test_a_budget_of_zero_is_off(desk: Desk) -> None:
    for _ in range(100):
        admitted(await desk.start("a", "b", limits=LIMITS._replace(pair_budget=0)))


async def test_answers_and_people_do_not_use_the_budget(desk: Desk) -> None:
    for _ in range(3):
        admitted((await desk.admit(desk.item("b", "a", kind=Kind.ANSWER, root="R", limits=THREE)))[0])
        admitted((await desk.admit(desk.item("a", "b", kind=Kind.PERSON, limits=THREE)))[0])
    admitted(await desk.start("a", "b", limits=THREE))


async def test_refused_starts_do_not_push_the_window_on(desk: Desk) -> None:
    for _ in range(3):
        admitted(await desk.start("a", "b", limits=THREE))
    desk.clock.advance(50)
    refused(await desk.start("a", "b", limits=THREE), "pair_budget_exceeded")
    desk.clock.advance(50)
    admitted(await desk.start("a", "b", limits=THREE))


async def test_a_window_that_a_policy_made_shorter_counts_at_once(desk: Desk) -> None:
    for _ in range(3):
        admitted(await desk.start("a", "b", limits=THREE))
    desk.clock.advance(50)
    admitted(await desk.start("a", "b", limits=THREE._replace(pair_window_seconds=50)))
    refused(await desk.start("a", "b", limits=THREE), "pair_budget_exceeded")


async def test_seeded_starts_count_for_what_is_left_of_their_window(desk: Desk) -> None:
    record = Record(
        pairs=(
            SeedPair("ws", "a", "b", (NOON - 99, NOON - 20)),
            SeedPair("ws", "b", "a", (NOON - 50, NOON - 101)),
        )
    )
    await desk.seed(2, record)
    refusal = refused(await desk.start("b", "a", limits=THREE), "pair_budget_exceeded")
    assert refusal.resets_at == NOON + 1
    desk.clock.advance(1)
    admitted(await desk.start("b", "a", limits=THREE))
    assert refused(await desk.start("b", "a", limits=THREE), "pair_budget_exceeded").resets_at == NOON + 50
