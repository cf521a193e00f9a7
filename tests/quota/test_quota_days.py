from __future__ import annotations

import pytest
from hopline_quota.domain.values import DaySum, Kind, Record
from hopline_quota.store import CountersLostError

from tests.quota.builders import DAY, LIMITS, NOON, Desk, admitted, refused

MIDNIGHT = NOON + DAY / 2


async def send(desk: Desk, times: int, sender: str = "a", recipient: str = "b") -> None:
    for _ in range(times):
        admitted(await desk.start(sender, recipient, limits=LIMITS._replace(pair_budget=0)))


async def test_the_day_of_a_charge_is_the_utc_day(desk: Desk) -> None:
    assert admitted(await desk.start("a", "b")).day == "2025-11-30"


@pytest.mark.parametrize(("sent", "passes"), [(8, True), (9, True), (10, False)])
async def test_the_daily_sent_limit_at_its_border(desk: Desk, sent: int, passes: bool) -> None:
    await send(desk, sent)
    decision = await desk.start("a", "b", limits=LIMITS._replace(sent_per_day=10))
    if passes:
        admitted(decision)
    else:
        refusal = refused(decision, "quota_exceeded")
        assert (refusal.limit, refusal.used, refusal.resets_at) == (10, 10, MIDNIGHT)
        assert refusal.recipient_id == ""


async def test_a_fan_out_is_one_sent_and_one_received_for_each(desk: Desk) -> None:
    admitted(await desk.start("a", "b", "c", "d"))
    assert (await desk.usage("a")).sent_today == 1
    for agent in "bcd":
        assert (await desk.usage(agent)).received_today == 1


@pytest.mark.parametrize(("received", "passes"), [(8, True), (9, True), (10, False)])
async def test_the_daily_received_limit_at_its_border(desk: Desk, received: int, passes: bool) -> None:
    await send(desk, received)
    decision = await desk.start("c", "b", limits=LIMITS._replace(received_per_day=10))
    if passes:
        admitted(decision)
    else:
        refusal = refused(decision, "quota_exceeded")
        assert (refusal.recipient_id, refusal.resets_at) == ("b", MIDNIGHT)
        assert "b" in refusal.message


async def test_a_refusal_for_what_another_received_gives_none_of_its_figures(desk: Desk) -> None:
    await send(desk, 17)
    refusal = refused(
        await desk.start("c", "b", limits=LIMITS._replace(received_per_day=13)), "quota_exceeded"
    )
    assert (refusal.limit, refusal.used) == (0, 0)
    assert "17" not in refusal.message
    assert "13" not in refusal.message


@pytest.mark.parametrize(("sent", "passes"), [(8, True), (9, True), (10, False)])
async def test_all_agents_together_send_at_most_agents_times_the_daily_limit(
    desk: Desk, sent: int, passes: bool
) -> None:
    limits = LIMITS._replace(sent_per_day=5, agents=2)
    for number in range(sent):
        await send(desk, 1, sender=f"deleted agent {number}")
    decision = await desk.start("fresh", "b", limits=limits)
    if passes:
        admitted(decision)
    else:
        refusal = refused(decision, "quota_exceeded")
        assert (refusal.limit, refusal.used, refusal.resets_at) == (10, 10, MIDNIGHT)


async def test_what_people_send_counts_for_those_who_receive_it_alone(desk: Desk) -> None:
    for _ in range(3):
        admitted((await desk.admit(desk.item("alice", "b", kind=Kind.PERSON)))[0])
    assert (await desk.usage("b")).received_today == 3
    assert (await desk.usage("alice")).sent_today == 0
    admitted(await desk.start("a", "c", limits=LIMITS._replace(sent_per_day=1, agents=1)))


async def test_an_answer_of_a_person_costs_the_agents_of_the_workspace_nothing(desk: Desk) -> None:
    item = desk.item("alice", "b", kind=Kind.ANSWER, root="R", by_person=True)
    admitted((await desk.admit(item))[0])
    admitted(await desk.start("a", "c", limits=LIMITS._replace(sent_per_day=1, agents=1)))


async def test_people_pass_every_rail(desk: Desk) -> None:
    nothing = LIMITS._replace(
        max_depth=0,
        root_turns=0,
        sent_per_day=0,
        received_per_day=0,
        pair_budget=1,
        inbox_backlog=0,
        agents=0,
    )
    for _ in range(3):
        item = desk.item("alice", "b", "c", kind=Kind.PERSON, limits=nothing)
        admitted((await desk.admit(item))[0])
    assert (await desk.usage("b")).queued == 3


async def test_answers_are_counted_and_never_refused(desk: Desk) -> None:
    nothing = LIMITS._replace(
        max_depth=0,
        root_turns=0,
        sent_per_day=0,
        received_per_day=0,
        pair_budget=1,
        inbox_backlog=0,
        agents=0,
    )
    for _ in range(3):
        item = desk.item("b", "a", kind=Kind.ANSWER, root="R", depth=7, limits=nothing)
        admitted((await desk.admit(item))[0])
    assert (await desk.usage("b")).sent_today == 3
    usage = await desk.usage("a")
    assert (usage.received_today, usage.queued) == (3, 3)


async def test_a_new_day_starts_from_nothing(desk: Desk) -> None:
    limits = LIMITS._replace(sent_per_day=1)
    admitted(await desk.start("a", "b", limits=limits))
    desk.clock.advance(DAY / 2 - 1)
    refused(await desk.start("a", "b", limits=limits), "quota_exceeded")
    desk.clock.advance(1)
    assert admitted(await desk.start("a", "b", limits=limits)).day == "2025-12-01"
    assert (await desk.usage("a")).resets_at == MIDNIGHT + DAY


async def test_a_clock_that_jumps_back_neither_reopens_yesterday_nor_resets_today(desk: Desk) -> None:
    limits = LIMITS._replace(sent_per_day=2)
    admitted(await desk.start("a", "b", limits=limits))
    desk.clock.advance(DAY)
    admitted(await desk.start("a", "b", limits=limits))
    desk.clock.wall -= DAY
    assert admitted(await desk.start("a", "b", limits=limits)).day == "2025-12-01"
    refusal = refused(await desk.start("a", "b", limits=limits), "quota_exceeded")
    assert refusal.resets_at == MIDNIGHT + DAY
    desk.clock.wall += DAY
    refused(await desk.start("a", "b", limits=limits), "quota_exceeded")


async def test_the_day_never_goes_back_across_a_restart_either(desk: Desk) -> None:
    record = Record(days=(DaySum("ws", "a", "2025-12-01", sent=2, received=0),))
    await desk.seed(2, record)
    refusal = refused(await desk.start("a", "b", limits=LIMITS._replace(sent_per_day=2)), "quota_exceeded")
    assert refusal.resets_at == MIDNIGHT + DAY


async def test_workspaces_do_not_share_counters(desk: Desk) -> None:
    limits = LIMITS._replace(sent_per_day=1, agents=1)
    admitted(await desk.start("a", "b", limits=limits))
    admitted(await desk.start("a", "b", limits=limits, workspace="other"))


async def test_a_clock_that_was_far_ahead_for_a_moment_does_not_hold_the_days_up(desk: Desk) -> None:
    limits = LIMITS._replace(sent_per_day=1)
    desk.clock.wall += 1000 * DAY
    admitted(await desk.start("a", "b", limits=limits))
    desk.clock.wall -= 1000 * DAY
    with pytest.raises(CountersLostError):
        await desk.start("a", "b", limits=limits)  # what was charged here before stands in the record alone
    await desk.seed(2)
    assert admitted(await desk.start("a", "b", limits=limits)).day == "2025-12-01"
    refusal = refused(await desk.start("a", "b", limits=limits), "quota_exceeded")
    assert refusal.resets_at == MIDNIGHT + DAY
    desk.clock.advance(3 * DAY)
    assert admitted(await desk.start("a", "b", limits=limits)).day == "2025-12-03"


async def test_what_was_charged_on_a_day_still_counts_when_that_day_comes_again(desk: Desk) -> None:
    limits = LIMITS._replace(sent_per_day=1)
    await desk.seed(2, Record(days=(DaySum("ws", "a", "2025-12-02", sent=1, received=0),)))
    assert admitted(await desk.start("a", "b", limits=limits)).day == "2025-12-01"
    desk.clock.advance(2 * DAY)
    refused(await desk.start("a", "b", limits=limits), "quota_exceeded")


async def test_a_day_of_a_clock_that_was_ahead_pushes_no_earlier_one_out_of_the_record(desk: Desk) -> None:
    limits = LIMITS._replace(sent_per_day=1)
    days = [DaySum("ws", "a", day, sent=1, received=0) for day in ("2025-11-30", "2025-12-01", "2025-12-03")]
    await desk.seed(2, Record(days=tuple(days)))
    refused(await desk.start("a", "b", limits=limits), "quota_exceeded")


async def test_what_was_charged_before_a_clock_went_days_ahead_and_came_back_is_counted(desk: Desk) -> None:
    admitted(await desk.start("a", "b"))
    desk.clock.wall += 3 * DAY
    admitted(await desk.start("a", "b"))
    desk.clock.wall -= 3 * DAY
    with pytest.raises(CountersLostError):
        await desk.usage("a")
    days = [DaySum("ws", "a", day, sent=2, received=0) for day in ("2025-11-30", "2025-12-01", "2025-12-03")]
    await desk.seed(2, Record(days=tuple(days)))
    assert (await desk.usage("a")).sent_today == 2


@pytest.mark.parametrize("day", ["2025-11-29", "2025-11-30", "2025-12-01"])
async def test_what_is_charged_after_a_restart_bears_its_day(desk: Desk, day: str) -> None:
    await desk.seed(2, Record(days=(DaySum("ws", "a", day, sent=1, received=0),)))
    assert admitted(await desk.start("a", "b")).day == max(day, "2025-11-30")
