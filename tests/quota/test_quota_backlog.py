from __future__ import annotations

import pytest
from hopline_quota.domain.values import EndKind

from tests.quota.builders import LIMITS, Desk, admitted, refused

FEW = LIMITS._replace(inbox_backlog=3)


async def fill(desk: Desk, turns: int) -> None:
    for number in range(turns):
        admitted(await desk.start("a", "b", key=f"k{number}"))


@pytest.mark.parametrize(("queued", "passes"), [(1, True), (2, True), (3, False)])
async def test_the_backlog_limit_at_its_border(desk: Desk, queued: int, passes: bool) -> None:
    await fill(desk, queued)
    decision = await desk.start("c", "b", limits=FEW)
    if passes:
        admitted(decision)
    else:
        refusal = refused(decision, "inbox_full")
        assert refusal.recipient_id == "b"
        assert "b" in refusal.message
        assert (refusal.limit, refusal.used, refusal.resets_at) == (0, 0, None)


async def test_a_turn_that_begins_leaves_room(desk: Desk) -> None:
    await fill(desk, 3)
    await desk.run("k1/b", "b", depth=1)
    assert (await desk.usage("b")).queued == 2
    admitted(await desk.start("a", "b", limits=FEW))
    refused(await desk.start("a", "b", limits=FEW), "inbox_full")


async def test_a_turn_that_is_dropped_leaves_room(desk: Desk) -> None:
    await fill(desk, 3)
    await desk.end("k0/b", EndKind.DROPPED)
    await desk.end("k0/b", EndKind.DROPPED)
    admitted(await desk.start("a", "b", limits=FEW))
    refused(await desk.start("a", "b", limits=FEW), "inbox_full")


async def test_a_queued_turn_that_ends_without_having_begun_leaves_room_and_no_trace(desk: Desk) -> None:
    await desk.run("deep", "boss", depth=3)
    admitted(await desk.start("boss", "b", key="k"))
    await desk.end("k/b")
    assert (await desk.usage("b")).queued == 0
    assert admitted(await desk.start("b", "c")).depth == 1


async def test_going_back_to_the_queue_is_never_refused_but_takes_its_place_there(desk: Desk) -> None:
    await fill(desk, 3)
    await desk.run("k0/b", "b", depth=1)
    admitted(await desk.start("a", "b", limits=FEW))
    await desk.end("k0/b", EndKind.REQUEUED)
    assert (await desk.usage("b")).queued == 4
    refused(await desk.start("a", "b", limits=FEW), "inbox_full")
    await desk.run("k0/b", "b", depth=1, attempt=2)
    assert (await desk.usage("b")).queued == 3


async def test_what_queues_no_turn_neither_needs_nor_takes_a_place(desk: Desk) -> None:
    await fill(desk, 3)
    admitted(await desk.start("a", "b", limits=FEW, turns=False))
    assert (await desk.usage("b")).queued == 3


async def test_a_fan_out_with_one_full_inbox_reaches_nobody(desk: Desk) -> None:
    await fill(desk, 3)
    before = await desk.usage("a"), await desk.usage("c")
    assert refused(await desk.start("a", "c", "b", "d", limits=FEW), "inbox_full").recipient_id == "b"
    assert (await desk.usage("a"), await desk.usage("c")) == before
