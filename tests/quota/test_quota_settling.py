from __future__ import annotations

from hopline_quota.domain.values import EndKind, Kind, Settlement

from tests.quota.builders import DAY, LIMITS, Desk, admitted, refused


async def test_the_same_key_returns_the_same_decision_and_charges_once(desk: Desk) -> None:
    item = desk.item("a", "b", "c", key="k")
    first = admitted((await desk.admit(item))[0])
    await desk.run("later", "a", depth=3)
    assert (await desk.admit(item))[0] == first
    assert (await desk.usage("a")).sent_today == 1
    assert (await desk.usage("b")).queued == 1


async def test_the_same_key_twice_in_one_batch_is_charged_once(desk: Desk) -> None:
    item = desk.item("a", "b", key="k")
    first, second = await desk.admit(item, item)
    assert first == second
    assert (await desk.usage("a")).sent_today == 1


async def test_a_refusal_is_not_remembered(desk: Desk) -> None:
    await desk.run("t", "a", depth=4)
    item = desk.item("a", "b", key="k")
    refused((await desk.admit(item))[0], "depth_exceeded")
    await desk.run("shallow", "a", depth=1)
    await desk.end("t")
    admitted((await desk.admit(item))[0])


async def test_after_its_commit_a_key_is_charged_afresh(desk: Desk) -> None:
    admitted(await desk.start("a", "b", key="k"))
    await desk.commit("k")
    admitted(await desk.start("a", "b", key="k"))
    assert (await desk.usage("a")).sent_today == 2


async def test_a_commit_keeps_the_charge(desk: Desk) -> None:
    admitted(await desk.start("a", "b", key="k"))
    await desk.commit("k")
    await desk.refund("k")
    usage = await desk.usage("b")
    assert (usage.received_today, usage.queued) == (1, 1)


async def test_a_refund_gives_everything_back(desk: Desk) -> None:
    limits = LIMITS._replace(
        root_turns=2, sent_per_day=1, received_per_day=1, pair_budget=1, inbox_backlog=1, agents=1
    )
    await desk.run("t", "a", root="R")
    for key in ("k1", "k2", "k3"):
        admitted(await desk.start("a", "b", "c", key=key, limits=limits))
        await desk.refund(key)
        await desk.refund(key)
    usage = await desk.usage("a")
    assert (usage.sent_today, usage.root_turns) == (0, 0)
    for agent in "bc":
        usage = await desk.usage(agent)
        assert (usage.received_today, usage.queued) == (0, 0)


async def test_each_rail_is_given_back(desk: Desk) -> None:
    one = {"root_turns": 1, "sent_per_day": 1, "received_per_day": 1, "pair_budget": 1, "inbox_backlog": 1}
    await desk.run("t", "a", root="R")
    for rail, value in one.items():
        limits = LIMITS._replace(**{rail: value})
        admitted(await desk.start("a", "b", key=rail, limits=limits))
        assert not hasattr(await desk.start("a", "b", limits=limits), "depth")
        await desk.refund(rail)
        admitted(await desk.start("a", "b", key=f"{rail} again", limits=limits))
        await desk.refund(f"{rail} again")


async def test_a_refund_of_a_fan_out_leaves_others_alone(desk: Desk) -> None:
    admitted(await desk.start("x", "b", key="other"))
    admitted(await desk.start("a", "b", "c", key="k"))
    await desk.refund("k")
    usage = await desk.usage("b")
    assert (usage.received_today, usage.queued) == (1, 1)
    assert (await desk.usage("x")).sent_today == 1


async def test_a_refund_on_the_next_day_gives_nothing_to_that_day(desk: Desk) -> None:
    admitted(await desk.start("a", "b", key="yesterday"))
    desk.clock.advance(DAY)
    admitted(await desk.start("a", "b", key="today"))
    await desk.refund("yesterday")
    assert (await desk.usage("a")).sent_today == 1
    assert (await desk.usage("b")).received_today == 1


async def test_a_refund_days_later_is_harmless(desk: Desk) -> None:
    admitted(await desk.start("a", "b", key="old"))
    for _ in range(4):
        desk.clock.advance(DAY)
        admitted(await desk.start("a", "b"))
    await desk.refund("old")
    usage = await desk.usage("b")
    assert (usage.received_today, usage.queued) == (1, 4)


async def test_a_refund_after_the_pair_window_is_harmless(desk: Desk) -> None:
    limits = LIMITS._replace(pair_budget=1)
    admitted(await desk.start("a", "b", key="old", limits=limits))
    desk.clock.advance(300)
    admitted(await desk.start("a", "b", limits=limits))
    await desk.refund("old")
    refused(await desk.start("a", "b", limits=limits), "pair_budget_exceeded")


async def test_settling_an_unknown_key_changes_nothing(desk: Desk) -> None:
    admitted(await desk.start("a", "b", key="k"))
    await desk.refund("never seen")
    await desk.commit("never seen")
    assert (await desk.usage("a")).sent_today == 1


async def test_settlements_that_ride_on_an_admission_come_before_its_items(desk: Desk) -> None:
    limits = LIMITS._replace(sent_per_day=1)
    admitted(await desk.start("a", "b", key="k1", limits=limits))
    item = desk.item("a", "b", limits=limits)
    refused((await desk.admit(item))[0], "quota_exceeded")
    admitted((await desk.admit(item, settled=(Settlement("k1", False),)))[0])


async def test_items_of_a_batch_are_decided_in_order_each_for_itself(desk: Desk) -> None:
    limits = LIMITS._replace(sent_per_day=2)
    decisions = await desk.admit(
        desk.item("a", "b", limits=limits),
        desk.item("a", "b", "c", limits=limits._replace(received_per_day=1)),
        desk.item("a", "c", limits=limits),
        desk.item("a", "c", limits=limits),
        desk.item("d", "c", limits=limits),
    )
    admitted(decisions[0])
    refused(decisions[1], "quota_exceeded")
    admitted(decisions[2])
    refused(decisions[3], "quota_exceeded")
    admitted(decisions[4])


async def test_a_hundred_sends_against_a_quota_of_ten_pass_ten_times(desk: Desk) -> None:
    limits = LIMITS._replace(sent_per_day=10)
    items = [desk.item("a", f"b{number}", limits=limits) for number in range(100)]
    decisions = await desk.admit(*items)
    assert [hasattr(each, "depth") for each in decisions] == [True] * 10 + [False] * 90


async def test_a_refused_item_is_charged_nothing(desk: Desk) -> None:
    limits = LIMITS._replace(received_per_day=1)
    await desk.run("t", "a", root="R")
    admitted(await desk.start("a", "full", limits=limits))
    before = [await desk.usage(agent) for agent in "abc"]
    refused(await desk.start("a", "b", "c", "full", limits=limits), "quota_exceeded")
    assert [await desk.usage(agent) for agent in "abc"] == before
    admitted(await desk.start("a", "b", limits=limits._replace(pair_budget=1)))


async def test_a_refund_of_an_answer_gives_its_charges_back(desk: Desk) -> None:
    await desk.run("t", "b", root="R")
    await desk.admit(desk.item("b", "a", kind=Kind.ANSWER, root="R", key="k"))
    await desk.refund("k")
    usage = await desk.usage("b")
    assert (usage.sent_today, usage.root_turns) == (0, 0)
    assert (await desk.usage("a")).queued == 0


async def test_a_refund_of_a_turn_that_was_dropped_meanwhile_takes_no_other_place(desk: Desk) -> None:
    admitted(await desk.start("a", "b", key="k1"))
    admitted(await desk.start("a", "b", key="k2"))
    await desk.end("k1/b", EndKind.DROPPED)
    await desk.refund("k1")
    assert (await desk.usage("b")).queued == 1
