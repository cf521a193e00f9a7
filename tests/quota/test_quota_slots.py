from __future__ import annotations

import pytest
from hopline_quota.domain.values import EndKind, Record, SeedState, SeedTurn

from tests.quota.builders import Desk, admitted


@pytest.mark.parametrize(("running", "starts"), [(1, True), (2, True), (3, False)])
async def test_the_run_slots_at_their_border(desk: Desk, running: int, starts: bool) -> None:
    for number in range(running):
        assert await desk.run(f"t{number}", f"agent{number}", slots=3)
    assert await desk.run("next", "a", slots=3) is starts


async def test_without_a_slot_nothing_changes(desk: Desk) -> None:
    admitted(await desk.start("x", "a", key="k"))
    assert await desk.run("t", "b", slots=1)
    assert not await desk.run("k/a", "a", depth=1, slots=1)
    usage = await desk.usage("a")
    assert (usage.queued, usage.depth, usage.running) == (1, 0, 1)
    assert admitted(await desk.start("a", "c")).depth == 1


async def test_a_turn_that_needs_no_slot_takes_none(desk: Desk) -> None:
    assert await desk.run("pulled", "a")
    assert await desk.run("t", "b", slots=1)
    assert (await desk.usage("a")).running == 1


async def test_workspaces_have_slots_of_their_own(desk: Desk) -> None:
    assert await desk.run("t1", "a", slots=1)
    assert await desk.run("t2", "a", slots=1, workspace="other")


@pytest.mark.parametrize("kind", list(EndKind))
async def test_however_a_turn_leaves_its_slot_is_free(desk: Desk, kind: EndKind) -> None:
    assert await desk.run("t1", "a", slots=1)
    await desk.end("t1", kind)
    await desk.end("t1", kind)
    assert (await desk.usage("a")).running == 0
    assert await desk.run("t2", "a", slots=1)
    assert not await desk.run("t3", "a", slots=1)


async def test_beginning_the_same_attempt_again_changes_nothing(desk: Desk) -> None:
    for _ in range(3):
        assert await desk.run("t", "a", depth=2, slots=1)
    assert (await desk.usage("a")).running == 1
    await desk.end("t")
    assert (await desk.usage("a")).running == 0


async def test_a_newer_attempt_takes_the_place_and_the_slot_of_the_old(desk: Desk) -> None:
    assert await desk.run("t", "a", depth=1, slots=1)
    assert await desk.run("t", "a", depth=1, slots=1, attempt=2)
    assert (await desk.usage("a")).running == 1
    await desk.end("t", attempt=2)
    assert (await desk.usage("a")).running == 0


async def test_a_late_end_of_an_old_attempt_does_not_end_the_new_one(desk: Desk) -> None:
    assert await desk.run("t", "a", depth=1, slots=1)
    await desk.end("t", EndKind.REQUEUED, attempt=1)
    assert await desk.run("t", "a", depth=1, slots=1, attempt=2)
    await desk.end("t", EndKind.REQUEUED, attempt=1)
    usage = await desk.usage("a")
    assert (usage.running, usage.queued, usage.depth) == (1, 0, 1)


async def test_an_old_attempt_that_begins_late_changes_nothing(desk: Desk) -> None:
    assert await desk.run("t", "a", depth=3, slots=2, attempt=2)
    assert await desk.run("t", "a", depth=0, slots=2, attempt=1)
    usage = await desk.usage("a")
    assert (usage.running, usage.depth) == (1, 3)


async def test_a_turn_that_waits_gives_its_slot_to_another(desk: Desk) -> None:
    assert await desk.run("t1", "a", slots=1)
    await desk.wait("t1")
    await desk.wait("t1")
    assert (await desk.usage("a")).running == 0
    assert await desk.run("t2", "b", slots=1)


async def test_at_the_end_of_its_wait_it_retakes_one_over_the_limit_and_new_starts_wait(desk: Desk) -> None:
    assert await desk.run("t1", "a", slots=1)
    await desk.wait("t1")
    assert await desk.run("t2", "b", slots=1)
    await desk.wait("t1", False)
    await desk.wait("t1", False)
    assert (await desk.usage("a")).running == 2
    await desk.end("t2")
    assert not await desk.run("t3", "b", slots=1)
    await desk.end("t1")
    assert await desk.run("t3", "b", slots=1)


async def test_a_waiting_turn_that_ends_frees_nothing_twice(desk: Desk) -> None:
    assert await desk.run("t1", "a", slots=1)
    await desk.wait("t1")
    assert await desk.run("t2", "b", slots=1)
    await desk.end("t1")
    assert (await desk.usage("a")).running == 1
    assert not await desk.run("t3", "c", slots=1)


async def test_a_turn_without_a_slot_may_wait_and_gets_none_by_it(desk: Desk) -> None:
    assert await desk.run("pulled", "a")
    await desk.wait("pulled")
    await desk.wait("pulled", False)
    assert (await desk.usage("a")).running == 0


async def test_the_wait_of_an_unknown_turn_changes_nothing(desk: Desk) -> None:
    await desk.wait("unknown")
    await desk.wait("unknown", False, workspace="never seen")
    assert (await desk.usage("a")).running == 0


async def test_seeded_turns_hold_their_slots_and_waiting_ones_retake_theirs(desk: Desk) -> None:
    def turn(name: str, *, slot: bool, waiting: bool = False) -> SeedTurn:
        return SeedTurn(name, "ws", "a", 1, "R", 1, SeedState.RUNNING, slot, waiting, 0.0)

    turns = (turn("t1", slot=True), turn("t2", slot=True, waiting=True), turn("t3", slot=False))
    await desk.seed(2, Record(turns=turns))
    assert (await desk.usage("a")).running == 1
    await desk.wait("t2", False)
    assert (await desk.usage("a")).running == 2
    for name in ("t1", "t2", "t3"):
        await desk.end(name, attempt=1)
    assert (await desk.usage("a")).running == 0
