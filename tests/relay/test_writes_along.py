"""Writes that nobody waits for: they go with the next commit, or a moment later by themselves."""

from __future__ import annotations

import asyncio

from hopline_relay.store import waiting

from tests.support.relay_mesh import RelayMesh, until


async def _waits(mesh: RelayMesh) -> int:
    return len(await mesh.relay.journal.read(waiting.all_waits))


async def _asked_and_answered(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(bob)
    asking = asyncio.create_task(ada.ask(bob, wait=50))
    while not (claimed := await worker.claim(1)):  # noqa: ASYNC110 - nothing tells how far an ask has got
        await asyncio.sleep(0)
    await worker.end(claimed[0], "yes")
    assert (await asking).reply == "yes"


async def test_the_row_of_a_wait_goes_with_whatever_is_written_next(mesh: RelayMesh) -> None:
    await _asked_and_answered(mesh)
    assert await _waits(mesh) == 1
    batches = mesh.relay.journal.database.writer.batches
    await mesh.relay.journal.write(lambda _: None)
    assert await _waits(mesh) == 0
    assert mesh.relay.journal.database.writer.batches <= batches + 2


async def test_the_row_of_a_wait_goes_by_itself_when_nothing_is_written(mesh: RelayMesh) -> None:
    await _asked_and_answered(mesh)
    await mesh.clock.advance(0.1)
    written = mesh.relay.journal.database.writer
    await until(lambda: written.queued == 0, "the write")
    assert await _waits(mesh) == 0
