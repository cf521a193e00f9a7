from __future__ import annotations

import pytest
from hopline_quota.domain.values import EndKind, Kind

from tests.quota.builders import LIMITS, Desk, admitted, refused


async def test_a_start_outside_any_turn_runs_at_depth_one(desk: Desk) -> None:
    decision = admitted(await desk.start("a", "b"))
    assert (decision.depth, decision.opened_root, decision.cause_turn_id) == (1, True, "")


async def test_a_start_runs_one_deeper_than_the_deepest_turn_its_sender_runs_anywhere(desk: Desk) -> None:
    await desk.run("shallow", "a", depth=1)
    await desk.run("deep", "a", depth=3)
    await desk.run("middle", "a", depth=2)
    decision = admitted(await desk.start("a", "b"))
    assert (decision.depth, decision.cause_turn_id) == (4, "deep")


async def test_naming_a_shallow_turn_as_the_cause_does_not_lower_the_depth(desk: Desk) -> None:
    await desk.run("shallow", "a", depth=0)
    await desk.run("deep", "a", depth=3)
    decision = admitted(await desk.start("a", "b", cause="shallow"))
    assert (decision.depth, decision.cause_turn_id) == (4, "shallow")


async def test_turns_of_other_agents_and_other_workspaces_do_not_count(desk: Desk) -> None:
    await desk.run("of b", "b", depth=3)
    await desk.run("elsewhere", "a", depth=3, workspace="other")
    assert admitted(await desk.start("a", "c")).depth == 1


async def test_the_depth_falls_to_the_deepest_turn_that_is_left(desk: Desk) -> None:
    await desk.run("one", "a", depth=1)
    await desk.run("three", "a", depth=3)
    await desk.end("three")
    assert admitted(await desk.start("a", "b")).depth == 2


@pytest.mark.parametrize(("running", "passes"), [(2, True), (3, True), (4, False)])
async def test_the_depth_limit_at_its_border(desk: Desk, running: int, passes: bool) -> None:
    await desk.run("t", "a", depth=running)
    decision = await desk.start("a", "b")
    if passes:
        assert admitted(decision).depth == running + 1
    else:
        refusal = refused(decision, "depth_exceeded")
        assert "too many agents in a row" in refusal.message
        assert (refusal.limit, refusal.used, refusal.resets_at) == (4, 5, None)


async def test_what_starts_no_turn_is_never_too_deep_nor_one_turn_too_many(desk: Desk) -> None:
    limits = LIMITS._replace(root_turns=1)
    await desk.run("t", "a", depth=4, root="R")
    item = desk.item("a", "alice", turns=False, cause="t", limits=limits)
    assert admitted((await desk.admit(item))[0]).root_id == "R"


async def test_at_depth_limit_zero_an_agent_starts_nothing(desk: Desk) -> None:
    refused(await desk.start("a", "b", limits=LIMITS._replace(max_depth=0)), "depth_exceeded")


async def test_a_turn_that_ended_within_the_window_counts_while_none_runs(desk: Desk) -> None:
    await desk.run("t", "a", depth=3)
    await desk.end("t")
    desk.clock.advance(599)
    decision = admitted(await desk.start("a", "b"))
    assert (decision.depth, decision.cause_turn_id) == (4, "t")


async def test_the_deepest_of_the_turns_that_ended_within_the_window_counts(desk: Desk) -> None:
    for depth in (2, 3, 1):
        await desk.run(f"t{depth}", "a", depth=depth)
        await desk.end(f"t{depth}")
        desk.clock.advance(1)
    assert admitted(await desk.start("a", "b")).depth == 4


@pytest.mark.parametrize(("age", "depth"), [(599.0, 4), (600.0, 1), (601.0, 1)])
async def test_the_causality_window_at_its_border(desk: Desk, age: float, depth: int) -> None:
    await desk.run("t", "a", depth=3)
    await desk.end("t")
    desk.clock.advance(age)
    assert admitted(await desk.start("a", "b")).depth == depth


async def test_the_window_is_measured_from_the_latest_end_at_a_depth(desk: Desk) -> None:
    for turn in ("early", "late"):
        await desk.run(turn, "a", depth=3)
        await desk.end(turn)
        desk.clock.advance(400)
    assert admitted(await desk.start("a", "b")).depth == 4


async def test_a_running_turn_decides_alone_however_deep_the_ended_ones_were(desk: Desk) -> None:
    await desk.run("deep", "a", depth=3)
    await desk.end("deep")
    await desk.run("shallow", "a", depth=1)
    assert admitted(await desk.start("a", "b")).depth == 2


async def test_a_clock_that_is_set_back_does_not_lengthen_or_shorten_the_window(desk: Desk) -> None:
    await desk.run("t", "a", depth=3)
    await desk.end("t")
    desk.clock.wall -= 3600
    desk.clock.advance(599)
    assert admitted(await desk.start("a", "b")).depth == 4
    desk.clock.advance(1)
    assert admitted(await desk.start("a", "b")).depth == 1


async def test_a_turn_that_went_back_to_its_queue_counts_within_the_window(desk: Desk) -> None:
    await desk.run("t", "a", depth=3)
    await desk.end("t", EndKind.REQUEUED)
    assert admitted(await desk.start("a", "b")).depth == 4


async def test_a_turn_that_never_ran_does_not_count(desk: Desk) -> None:
    await desk.run("deep", "boss", depth=2)
    admitted(await desk.start("boss", "a", key="k"))
    await desk.end("k/a", EndKind.DROPPED)
    assert admitted(await desk.start("a", "b")).depth == 1


async def test_a_waiting_turn_still_counts_for_depth(desk: Desk) -> None:
    await desk.run("t", "a", depth=3, slots=1)
    await desk.wait("t")
    assert admitted(await desk.start("a", "b")).depth == 4


async def test_an_answer_runs_at_the_depth_it_is_given_whatever_its_sender_runs(desk: Desk) -> None:
    await desk.run("t", "b", depth=9)
    item = desk.item("b", "a", kind=Kind.ANSWER, depth=2, root="R", cause="t")
    decision = admitted((await desk.admit(item))[0])
    assert (decision.depth, decision.root_id, decision.opened_root) == (2, "R", False)


async def test_an_answer_is_never_refused_for_depth(desk: Desk) -> None:
    item = desk.item("b", "a", kind=Kind.ANSWER, depth=99, root="R")
    assert admitted((await desk.admit(item))[0]).depth == 99


async def test_what_a_person_sends_runs_at_depth_zero(desk: Desk) -> None:
    item = desk.item("alice", "a", kind=Kind.PERSON)
    assert admitted((await desk.admit(item))[0]).depth == 0


async def test_a_chain_of_delegations_ends_at_the_limit(desk: Desk) -> None:
    await desk.admit(desk.item("alice", "agent0", kind=Kind.PERSON, key="k0"))
    turn, agent, depth, root = "k0/agent0", "agent0", 0, "root of k0"
    while True:
        await desk.run(turn, agent, depth=depth, root=root)
        following = f"agent{depth + 1}"
        decision = await desk.start(agent, following, key=f"k{depth + 1}")
        if depth == 4:
            refused(decision, "depth_exceeded")
            return
        assert admitted(decision)[:3] == (depth + 1, "root of k0", False)
        turn, agent, depth = f"k{depth + 1}/{following}", following, depth + 1
