"""Batches of two steps: what is prepared meanwhile, in which order, and who learns of failures."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest
from hopline_relay.pipeline import Pipeline


class Disk:
    """Notes the batches that begin; each is done when the test says so."""

    def __init__(self) -> None:
        self.begun: list[list[int]] = []
        self.rests: list[asyncio.Future[list[int | BaseException]]] = []
        self.pipeline: Pipeline[int, int] = Pipeline("test", self._begin)

    async def _begin(self, items: list[int]) -> Awaitable[list[int | BaseException]]:
        if -1 in items:
            raise LookupError("nothing can be prepared")
        self.begun.append(items)
        rest: asyncio.Future[list[int | BaseException]] = asyncio.get_running_loop().create_future()
        self.rests.append(rest)
        return rest

    def add(self, *items: int) -> list[asyncio.Future[int]]:
        return [self.pipeline.enqueue(item) for item in items]

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)

    async def write(self) -> None:
        """Finish the oldest batch."""
        self.rests[0].set_result(list(self.begun[len(self.begun) - len(self.rests)]))
        del self.rests[0]
        await self.settle()


async def test_a_call_alone_begins_at_once_and_few_wait_for_it() -> None:
    disk = Disk()
    first = disk.add(1)
    await disk.settle()
    later = disk.add(2, 3)
    await disk.settle()
    assert disk.begun == [[1]]
    await disk.write()
    assert (first[0].result(), disk.begun) == (1, [[1], [2, 3]])
    await disk.write()
    assert [each.result() for each in later] == [2, 3]
    await disk.pipeline.drained()


async def test_many_are_prepared_while_the_batch_before_is_written_in_order_and_two_at_a_time() -> None:
    disk = Disk()
    everything = disk.add(*range(100))
    await disk.settle()
    assert [len(batch) for batch in disk.begun] == [50, 32]
    while disk.rests:
        assert len(disk.rests) <= 2
        await disk.write()
    assert [item for batch in disk.begun for item in batch] == list(range(100))
    assert [each.result() for each in everything] == list(range(100))


async def test_a_failure_reaches_those_of_its_batch_alone() -> None:
    disk = Disk()
    lost = disk.add(-1, 5)
    await disk.settle()
    for each in lost:
        with pytest.raises(LookupError):
            each.result()
    broken = disk.add(7, 8)
    await disk.settle()
    disk.rests.pop().set_exception(OSError("the disk is full"))
    good = disk.add(9)
    await disk.settle()
    for each in broken:
        with pytest.raises(OSError, match="full"):
            each.result()
    await disk.write()
    assert good[0].result() == 9


async def test_a_caller_that_goes_away_does_not_end_the_work() -> None:
    disk = Disk()
    gone, stays = disk.add(1, 2)
    await disk.settle()
    gone.cancel()
    await disk.write()
    assert (disk.begun, stays.result()) == ([[1, 2]], 2)
