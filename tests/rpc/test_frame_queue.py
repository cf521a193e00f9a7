"""How items merge into frames, and what happens to a side that does not read."""

from __future__ import annotations

import asyncio

import pytest
from google.protobuf.wrappers_pb2 import StringValue
from hopline_rpc.errors import HoplineError
from hopline_rpc.frames import FRAME_BYTES, FRAME_ITEMS, FrameQueue


def text(size: int) -> StringValue:
    """Return an item that takes about `size` bytes."""
    return StringValue(value="x" * size)


async def test_what_queues_up_leaves_in_one_frame_in_order() -> None:
    queue: FrameQueue[StringValue] = FrameQueue()
    for word in ("a", "b", "c"):
        queue.put(StringValue(value=word))
    assert [item.value for item in await queue.take()] == ["a", "b", "c"]


async def test_an_item_put_while_somebody_waits_leaves_at_once() -> None:
    queue: FrameQueue[StringValue] = FrameQueue()
    taking = asyncio.ensure_future(queue.take())
    await asyncio.sleep(0)
    queue.put(text(1))
    assert len(await taking) == 1


async def test_a_frame_holds_no_more_items_than_the_contract_allows() -> None:
    queue: FrameQueue[StringValue] = FrameQueue()
    for _ in range(FRAME_ITEMS + 1):
        queue.put(text(1))
    assert len(await queue.take()) == FRAME_ITEMS
    assert len(await queue.take()) == 1


async def test_a_large_item_travels_alone() -> None:
    queue: FrameQueue[StringValue] = FrameQueue()
    for size in (10, FRAME_BYTES, 10):
        queue.put(text(size))
    assert [len(await queue.take()) for _ in range(3)] == [1, 1, 1]


@pytest.mark.parametrize(("items", "accepted"), [(3, True), (4, True), (5, False)])
async def test_the_number_of_items_is_bounded(items: int, *, accepted: bool) -> None:
    queue: FrameQueue[StringValue] = FrameQueue(max_items=4)
    for _ in range(items - 1):
        queue.put(text(1))
    if accepted:
        queue.put(text(1))
        return
    with pytest.raises(HoplineError) as refused:
        queue.put(text(1))
    assert refused.value.reason == "overloaded"


async def test_the_bytes_are_bounded() -> None:
    item = text(100)
    queue: FrameQueue[StringValue] = FrameQueue(max_bytes=2 * item.ByteSize())
    queue.put(item)
    queue.put(item)
    with pytest.raises(HoplineError):
        queue.put(item)


async def test_a_queue_whose_owner_bounds_it_refuses_nothing() -> None:
    queue: FrameQueue[StringValue] = FrameQueue(max_items=1, refuses=False)
    for _ in range(3):
        queue.put(text(1))
    assert queue.congested
    assert len(await queue.take()) == 3


async def test_whoever_can_wait_waits_while_the_queue_is_congested() -> None:
    queue: FrameQueue[StringValue] = FrameQueue(max_items=8)
    for _ in range(2):
        queue.put(text(1))
    assert not queue.congested
    queue.put(text(1))
    assert queue.congested
    waiting = asyncio.ensure_future(queue.drained())
    await asyncio.sleep(0)
    assert not waiting.done()
    await queue.take()
    await waiting


async def test_a_closed_queue_gives_what_it_holds_and_then_nothing() -> None:
    queue: FrameQueue[StringValue] = FrameQueue()
    queue.put(text(1))
    queue.close()
    queue.put(text(2))
    assert len(await queue.take()) == 1
    assert await queue.take() == []


async def test_closing_wakes_who_waits() -> None:
    queue: FrameQueue[StringValue] = FrameQueue()
    taking = asyncio.ensure_future(queue.take())
    await asyncio.sleep(0)
    queue.close()
    assert await taking == []


async def test_an_abandoned_queue_returns_what_was_never_sent() -> None:
    queue: FrameQueue[StringValue] = FrameQueue()
    queue.put(text(1))
    queue.put(text(2))
    assert len(queue.abandon()) == 2
    assert len(queue) == 0
