"""What becomes of leases and limits when the clock is set, or the mesh stands still for a while."""

from __future__ import annotations

import pytest
from hopline.relay.v1 import message_pb2 as pb
from hopline_relay.domain.values import LEASE_SECONDS, PULL_LEASE_SECONDS
from hopline_relay.store.schema import messages
from hopline_rpc.clock import utc_day
from sqlalchemy import select

from tests.support.relay_mesh import RelayMesh, refusal

DAY = 86_400.0


@pytest.mark.parametrize("hours", [8, -8])
async def test_a_clock_that_is_set_takes_no_turn_from_its_worker(mesh: RelayMesh, hours: int) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(bob)
    view = await ada.ask(bob)
    turn = await worker.next()
    mesh.clock.set_wall(hours * 3600)
    await mesh.passes(1)
    assert await worker.renew(turn.held) == []
    await mesh.passes(LEASE_SECONDS - 1)
    assert await worker.end(turn, "yes")
    assert (await ada.check(view.turn_id)).reply == "yes"


@pytest.mark.parametrize("hours", [8, -8])
async def test_a_worker_that_is_lost_while_the_clock_is_set_loses_its_turn_after_one_more_lease(
    mesh: RelayMesh, hours: int
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(bob)
    view = await ada.ask(bob)
    await worker.next()
    mesh.clock.set_wall(hours * 3600)
    await mesh.passes(1)
    await mesh.passes(LEASE_SECONDS + 2)
    assert (await ada.check(view.turn_id)).status == pb.TURN_STATUS_QUEUED


@pytest.mark.parametrize("days", [2, -2])
async def test_a_turn_still_ends_at_its_limit_after_the_clock_was_set(mesh: RelayMesh, days: int) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await mesh.policy(turn_seconds=60)
    worker = await mesh.worker(bob)
    view = await ada.ask(bob)
    turn = await worker.next()
    mesh.clock.set_wall(days * DAY)
    await mesh.passes(1)
    for _ in range(3):
        await mesh.passes(20)
        await worker.renew(turn.held)
    await mesh.passes(2)
    ended = await ada.check(view.turn_id)
    assert (ended.status, ended.error.code) == (pb.TURN_STATUS_FAILED, "deadline_exceeded")


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_clock_set_back_keeps_nothing_in_a_queue_for_longer_than_it_may_be(
    mesh: RelayMesh, *, restarts: bool
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await mesh.policy(queue_seconds=60)
    view = await ada.ask(bob)
    if restarts:
        await mesh.close()
    mesh.clock.set_wall(-2 * DAY)
    if restarts:
        await mesh.open()
    await mesh.passes(1)
    await mesh.passes(61)
    ended = await ada.check(view.turn_id)
    assert (ended.status, ended.error.code) == (pb.TURN_STATUS_FAILED, "deadline_exceeded")


@pytest.mark.parametrize("hours", [8, -8])
async def test_a_pulled_message_stays_taken_for_its_lease_and_no_longer(mesh: RelayMesh, hours: int) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await ada.ask(bob)
    taken = (await bob.take()).messages[0]
    mesh.clock.set_wall(hours * 3600)
    await mesh.passes(PULL_LEASE_SECONDS - 60)
    assert not (await bob.take()).messages
    await mesh.passes(PULL_LEASE_SECONDS + 60)
    assert [message.id for message in (await bob.take()).messages] == [taken.id]


async def test_a_mesh_that_stood_still_for_longer_than_a_lease_hears_its_workers_first(
    mesh: RelayMesh,
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(bob)
    view = await ada.ask(bob)
    turn = await worker.next()
    await mesh.skip(3 * LEASE_SECONDS)
    await mesh.passes(1)
    assert await worker.renew(turn.held) == []
    assert await worker.end(turn, "yes")
    assert (await ada.check(view.turn_id)).reply == "yes"


async def test_a_clock_set_back_over_a_restart_gives_no_fresh_quota_when_its_day_comes_again(
    mesh: RelayMesh,
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await mesh.policy(sent_per_day=1)
    await ada.send(bob)
    await mesh.close()
    mesh.clock.set_wall(-2 * DAY)
    await mesh.open()
    await mesh.skip(2 * DAY)
    assert (await refusal(ada.send(bob))).reason == "quota_exceeded"


async def test_messages_bear_the_day_after_a_restart_as_before(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await ada.send(bob)
    await mesh.reopen()
    await ada.send(bob)
    days = await mesh.relay.journal.read(
        lambda connection: connection.execute(select(messages.c.day)).scalars().all()
    )
    assert days == [utc_day(mesh.clock.now())] * 2


async def test_a_start_is_counted_whose_clock_went_ahead_while_it_was_on_its_way(
    mesh: RelayMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await mesh.policy(pair_budget="1/300s")

    def sleeps(name: str) -> None:
        if name == "relay.admitted":
            mesh.clock.set_wall(DAY)

    with monkeypatch.context() as patched:
        patched.setattr("hopline_relay.sends.point", sleeps)
        await ada.send(bob)
    await mesh.reopen()
    assert (await refusal(ada.send(bob))).reason == "pair_budget_exceeded"
