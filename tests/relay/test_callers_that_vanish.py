"""Callers that vanish at any moment, and a store that fails meanwhile: nothing is lost or left behind."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
from hopline_relay.batching import Batcher
from hopline_relay.domain.values import PULL_LEASE_SECONDS
from hopline_relay.store.schema import waits
from hopline_rpc.clock import ManualClock
from hopline_rpc.errors import HoplineError
from sqlalchemy import func, select
from sqlalchemy.exc import OperationalError

from tests.support.relay_mesh import RelayMesh

T = TypeVar("T")

FULL = HoplineError("unavailable", "the disk of the store is full")


@contextmanager
def full_disk(mesh: RelayMesh, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have every transaction of the relay fail as it does on a full disk."""
    cause = sqlite3.OperationalError("database or disk is full")
    cause.sqlite_errorname = "SQLITE_FULL"

    def fail(*_: Any) -> None:
        raise OperationalError("COMMIT", {}, cause)

    with monkeypatch.context() as patch:
        patch.setattr(mesh.relay.journal.database.writer, "_transaction", fail)
        yield


async def rows_of_waits(mesh: RelayMesh) -> int:
    query = select(func.count()).select_from(waits)
    return int(await mesh.relay.journal.read(lambda connection: connection.execute(query).scalar_one()))


async def in_time(mesh: RelayMesh, what: Callable[[], Awaitable[T]]) -> T:
    """Let a second pass at a time until something has happened; the disk works in its own time."""
    for _ in range(200):
        await mesh.clock.advance(1)
        if found := await what():
            break
    return found


async def test_a_message_is_unread_again_when_the_pull_that_took_it_was_dropped_at_any_moment(
    mesh: RelayMesh,
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await mesh.policy(pair_budget="0", sent_per_day=10_000, received_per_day=10_000)
    for steps in range(0, 240, 6):
        sent = await ada.send(bob, text=f"after {steps} steps")
        taking = asyncio.create_task(bob.take())
        await mesh.clock.settle(steps)
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)
        await mesh.clock.settle()
        await mesh.relay.inbox.drained()
        if taking.cancelled():
            again = await bob.take()
            assert [message.id for message in again.messages] == [sent.message_id]
        await bob.done(sent.message_id)
        await mesh.relay.admission.settled()
        assert (await mesh.usage(bob)).inbox == 0


async def test_a_message_that_was_put_back_costs_no_attempt_and_is_not_done_with_its_lease(
    mesh: RelayMesh,
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    sent = await ada.send(bob)
    for _ in range(5):
        taken = await bob.take()
        mesh.relay.inbox.put_back(await mesh.relay.authenticator.principal(bob.token), [sent.message_id])
        await mesh.relay.inbox.drained()
        assert [message.id for message in taken.messages] == [sent.message_id]
        assert (await mesh.usage(bob)).inbox == 1
    await mesh.passes(PULL_LEASE_SECONDS + 1)
    assert [message.id for message in (await bob.take()).messages] == [sent.message_id]


@pytest.mark.parametrize("waits", [False, True])
async def test_an_answer_is_delivered_when_the_check_that_took_it_was_dropped_at_any_moment(
    mesh: RelayMesh, waits: bool
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await mesh.policy(pair_budget="0", sent_per_day=10_000, received_per_day=10_000)
    worker = await mesh.worker(bob)
    for steps in range(0, 120, 4):
        asked = await ada.ask(bob)
        turn = await worker.next()
        if waits:
            checking = asyncio.create_task(ada.check(asked.turn_id, 50))
            await mesh.clock.settle(200)
            await worker.end(turn, f"after {steps} steps")
        else:
            await worker.end(turn, f"after {steps} steps")
            checking = asyncio.create_task(ada.check(asked.turn_id))
        await mesh.clock.settle(steps)
        checking.cancel()
        await asyncio.gather(checking, return_exceptions=True)
        await mesh.clock.settle(200)
        await mesh.relay._taking.drained()
        await mesh.relay._hand_over.drained()
        await mesh.relay.admission.settled()
        if checking.cancelled():
            (delivered,) = (await ada.take()).messages
            assert delivered.body == f"after {steps} steps"
            await ada.done(delivered.id)
        await mesh.relay.admission.settled()
        assert (await mesh.usage(ada)).inbox == 0


async def test_the_answer_of_a_caller_that_left_while_the_disk_was_full_is_delivered_once(
    mesh: RelayMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(bob)
    asking = asyncio.create_task(ada.ask(bob, wait=50))
    while not (turns := await worker.claim(1)):
        await mesh.clock.settle()
    # Both at once: the answer is handed to a call that is gone, and then nothing can be written.
    principal = await mesh.relay.authenticator.principal(ada.token)
    assert await worker.end(turns[0], "for nobody")
    view = await asking
    with full_disk(mesh, monkeypatch):
        mesh.relay.handlers.lost(principal, view)
        await mesh.clock.advance(5)
    assert not (await ada.take()).messages

    async def delivered() -> list[str]:
        return [message.body for message in (await ada.take()).messages]

    assert await in_time(mesh, delivered) == ["for nobody"]
    assert not (await ada.take()).messages


async def test_no_wait_outlives_its_call_because_the_disk_was_full_when_it_left(
    mesh: RelayMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(bob)
    asking = asyncio.create_task(ada.ask(bob, wait=50))
    while not await worker.claim(1):
        await mesh.clock.settle()
    with full_disk(mesh, monkeypatch):
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await mesh.clock.advance(3)
    assert await rows_of_waits(mesh) == 1

    async def gone() -> bool:
        return not await rows_of_waits(mesh)

    assert await in_time(mesh, gone)


async def test_what_was_posted_is_tried_again_until_it_works_and_what_never_can_is_not() -> None:
    clock, done = ManualClock(), list[str]()
    trouble: list[Exception] = [FULL]

    async def handle(items: list[str]) -> Sequence[BaseException | None]:
        if trouble:
            raise trouble[0]
        done.extend(items)
        return [None] * len(items)

    batcher: Batcher[str, None] = Batcher("things", handle, clock=clock)
    batcher.post("one")
    await clock.advance(3)
    batcher.post("two")
    trouble.clear()
    await clock.advance(1)
    assert sorted(done) == ["one", "two"]
    trouble.append(HoplineError("invalid_argument", "never"))
    batcher.post("three")
    await clock.advance(5)
    trouble[0] = FULL
    batcher.post("four")
    await batcher.drained()
    trouble.clear()
    await clock.advance(1)
    await batcher.drained()
    assert sorted(done) == ["one", "two"]
