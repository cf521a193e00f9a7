from __future__ import annotations

import pytest
from hopline_quota.domain.values import Begin, EndKind, Kind, Record, RootCount, SeedRoot

from tests.quota.builders import LIMITS, WIDE, Desk, admitted, refused


async def spend(desk: Desk, root: str, turns: int) -> None:
    """Start so many turns under a root and work them off, without touching anybody's window."""
    for number in range(turns):
        key = f"{root} spend {number}"
        item = desk.item("mesh", "sink", kind=Kind.ANSWER, root=root, key=key, limits=WIDE)
        admitted((await desk.admit(item))[0])
        await desk.end(f"{key}/sink", EndKind.DROPPED)
        await desk.commit(key)


async def test_a_start_outside_any_turn_opens_the_root_it_was_given(desk: Desk) -> None:
    decision = admitted(await desk.start("a", "b", key="k"))
    assert (decision.root_id, decision.opened_root) == ("root of k", True)


async def test_a_start_in_a_turn_inherits_its_root(desk: Desk) -> None:
    await desk.run("t", "a", root="R")
    decision = admitted(await desk.start("a", "b"))
    assert (decision.root_id, decision.opened_root) == ("R", False)


async def test_of_several_running_turns_the_most_used_root_is_charged(desk: Desk) -> None:
    await spend(desk, "busy", 3)
    await spend(desk, "calm", 1)
    await desk.run("t1", "a", root="calm")
    await desk.run("t2", "a", root="calm", depth=1)
    await desk.run("t3", "a", root="busy")
    assert admitted(await desk.start("a", "b")).root_id == "busy"


async def test_which_root_is_the_most_used_follows_what_other_agents_start(desk: Desk) -> None:
    await spend(desk, "one", 2)
    await desk.run("t1", "a", root="one")
    await desk.run("t2", "a", root="two")
    assert admitted(await desk.start("a", "b")).root_id == "one"
    await spend(desk, "two", 5)
    assert admitted(await desk.start("a", "b")).root_id == "two"


async def test_the_root_of_the_named_cause_is_charged_while_that_turn_runs(desk: Desk) -> None:
    await spend(desk, "busy", 3)
    await desk.run("t1", "a", root="calm")
    await desk.run("t2", "a", root="busy")
    assert admitted(await desk.start("a", "b", cause="t1")).root_id == "calm"
    await desk.end("t1")
    assert admitted(await desk.start("a", "b", cause="t1")).root_id == "busy"


async def test_a_cause_that_another_agent_runs_is_not_believed(desk: Desk) -> None:
    await desk.run("of b", "b", root="theirs")
    await desk.run("of a", "a", root="own")
    assert admitted(await desk.start("a", "c", cause="of b")).root_id == "own"


async def test_within_the_window_the_most_used_root_of_ended_turns_is_charged(desk: Desk) -> None:
    await spend(desk, "busy", 3)
    for turn, root in (("t1", "busy"), ("t2", "calm")):
        await desk.run(turn, "a", root=root)
        await desk.end(turn)
    decision = admitted(await desk.start("a", "b"))
    assert (decision.root_id, decision.opened_root) == ("busy", False)


async def test_after_the_window_a_new_root_is_opened(desk: Desk) -> None:
    await desk.run("t", "a", root="R")
    await desk.end("t")
    desk.clock.advance(600)
    assert admitted(await desk.start("a", "b")).opened_root


async def test_a_root_that_was_forgotten_goes_on_from_what_the_record_says(desk: Desk) -> None:
    limits = LIMITS._replace(root_turns=5)
    count = RootCount(4, 1)
    late = desk.item("b", "a", kind=Kind.ANSWER, root="R", limits=limits)._replace(answer_root=count)
    admitted((await desk.admit(late))[0])
    await desk.run("t", "a", root="R")
    admitted(await desk.start("a", "c", limits=limits))
    refused(await desk.start("a", "c", limits=limits), "root_exhausted")


async def test_a_root_that_is_known_keeps_what_was_charged_since_the_record_was_read(desk: Desk) -> None:
    limits = LIMITS._replace(root_turns=5)
    await spend(desk, "R", 5)
    begin = Begin("t", "ws", "a", 0, "R", 1, False, 0, RootCount(2, 0))
    assert await desk.store.begin(desk.epoch, [begin]) == [True]
    refused(await desk.start("a", "b", limits=limits), "root_exhausted")


async def test_a_person_always_opens_a_root(desk: Desk) -> None:
    for key in ("k1", "k2"):
        decision = admitted((await desk.admit(desk.item("alice", "a", kind=Kind.PERSON, key=key)))[0])
        assert (decision.root_id, decision.opened_root) == (f"root of {key}", True)


async def test_a_start_that_would_need_a_root_and_brings_none_is_invalid(desk: Desk) -> None:
    item = desk.item("a", "b")._replace(new_root_id="")
    assert "new_root_id" in refused((await desk.admit(item))[0], "invalid_argument").message


@pytest.mark.parametrize(("spent", "passes"), [(8, True), (9, True), (10, False), (11, False)])
async def test_the_root_limit_at_its_border(desk: Desk, spent: int, passes: bool) -> None:
    limits = LIMITS._replace(root_turns=10)
    await spend(desk, "R", spent)
    await desk.run("t", "a", root="R")
    decision = await desk.start("a", "b", limits=limits)
    if passes:
        assert admitted(decision).root_id == "R"
    else:
        refusal = refused(decision, "root_exhausted")
        assert (refusal.limit, refusal.used, refusal.resets_at) == (10, spent, None)


@pytest.mark.parametrize(("recipients", "passes"), [(2, True), (3, True), (4, False)])
async def test_a_fan_out_costs_its_root_a_turn_for_each_recipient(
    desk: Desk, recipients: int, passes: bool
) -> None:
    limits = LIMITS._replace(root_turns=10)
    await spend(desk, "R", 7)
    await desk.run("t", "a", root="R")
    decision = await desk.start("a", *[f"b{n}" for n in range(recipients)], limits=limits)
    if passes:
        admitted(decision)
        assert (await desk.usage("a")).root_turns == 7 + recipients
    else:
        refused(decision, "root_exhausted")
        assert (await desk.usage("a")).root_turns == 7


async def test_what_queues_no_turn_costs_its_root_nothing(desk: Desk) -> None:
    await spend(desk, "R", 1)
    await desk.run("t", "a", root="R")
    admitted(await desk.start("a", "b", turns=False))
    assert (await desk.usage("a")).root_turns == 1


async def test_an_answer_is_charged_to_the_root_of_the_asker_but_never_refused(desk: Desk) -> None:
    limits = LIMITS._replace(root_turns=1)
    await spend(desk, "R", 5)
    item = desk.item("b", "a", kind=Kind.ANSWER, root="R", limits=limits)
    admitted((await desk.admit(item))[0])
    await desk.run("t", "c", root="R")
    assert (await desk.usage("c")).root_turns == 6


async def test_turns_that_a_person_granted_come_on_top_of_the_policy(desk: Desk) -> None:
    await desk.seed(2, Record(roots=(SeedRoot("ws", "R", turns=11, extra_turns=2),)))
    await desk.run("t", "a", root="R")
    limits = LIMITS._replace(root_turns=10)
    admitted(await desk.start("a", "b", limits=limits))
    assert refused(await desk.start("a", "b", limits=limits), "root_exhausted").limit == 12


async def test_an_exhausted_root_stays_so_after_all_its_turns_have_ended(desk: Desk) -> None:
    limits = LIMITS._replace(root_turns=3)
    await spend(desk, "R", 3)
    desk.clock.advance(3600)
    await desk.run("t", "a", root="R")
    refused(await desk.start("a", "b", limits=limits), "root_exhausted")


async def test_roots_of_two_workspaces_do_not_mix_even_under_one_name(desk: Desk) -> None:
    limits = LIMITS._replace(root_turns=3)
    await spend(desk, "R", 3)
    await desk.run("t", "a", root="R", workspace="other")
    admitted(await desk.start("a", "b", limits=limits, workspace="other"))
