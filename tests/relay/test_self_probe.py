"""Readiness proves delivery: it goes the way of a message, and leaves nothing that anybody could see."""

from __future__ import annotations

from typing import Any

import pytest
from hopline_rpc.errors import HoplineError
from hopline_store import Writer

from tests.support.relay_mesh import RelayMesh, attempt


async def test_a_probe_goes_through_counters_and_disk_and_nobody_sees_anything_of_it(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await ada.send(bob)
    events, usage = await mesh.events(), await mesh.usage(ada)
    operations = mesh.relay.journal.database.writer.operations
    assert await mesh.relay.missing() == []
    assert mesh.relay.journal.database.writer.operations > operations
    assert await mesh.events() == events
    assert (await mesh.usage(ada)).SerializeToString() == usage.SerializeToString()
    assert len((await bob.take()).messages) == 1


async def test_what_was_found_is_kept_for_half_a_minute_when_it_is_good(
    mesh: RelayMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, asked = mesh.relay.admission.admit_nothing, 0

    async def counted() -> Any:
        nonlocal asked
        asked += 1
        return await ask()

    monkeypatch.setattr(mesh.relay.admission, "admit_nothing", counted)
    for _ in range(20):
        assert await mesh.relay.ready()
    assert asked == 1
    await mesh.skip(30)
    await mesh.relay.missing()
    assert asked == 2


async def test_a_relay_whose_counters_are_away_is_not_ready_and_says_so(
    mesh: RelayMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(request: Any) -> Any:
        raise HoplineError("unavailable", "the quota service cannot be reached")

    with monkeypatch.context() as patched:
        patched.setattr(mesh.relay.admission._stub, "Admit", away)
        assert await mesh.relay.missing() == ["the quota service cannot be reached"]
        assert not await mesh.relay.ready()
    await mesh.skip(1)
    assert await mesh.relay.missing() == []


async def test_counters_that_were_lost_are_rebuilt_by_the_probe(mesh: RelayMesh) -> None:
    await mesh.forget_counters(1_000)
    assert await mesh.relay.missing() == []
    assert mesh.relay.admission.epoch > 1_000


async def test_a_relay_whose_disk_takes_nothing_is_not_ready_though_it_reads(
    mesh: RelayMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(self: Writer, op: Any, within: Any = None) -> Any:
        raise HoplineError("unavailable", "the disk of the store is full")

    monkeypatch.setattr(Writer, "run", full)
    assert await mesh.relay.missing() == ["the disk of the store is full"]


async def test_a_relay_whose_loops_stand_still_is_not_ready(mesh: RelayMesh) -> None:
    assert await mesh.relay.missing() == []
    await mesh.relay.sweep.close()
    assert await mesh.relay.missing() == ["leases and limits are not watched any more"]
    await mesh.relay.dispatcher.close()
    assert await mesh.relay.missing() == ["no turns are handed out any more"]


async def test_a_relay_that_hears_nothing_of_the_registry_is_not_ready(mesh: RelayMesh) -> None:
    await mesh._services[0].server.stop()

    async def told() -> bool:
        await mesh.clock.advance(1)
        return await mesh.relay.missing() == ["the registry is not heard of"]

    for _ in range(100):
        if await told():
            return
    raise AssertionError("it is still ready")


async def test_what_the_probe_finds_is_what_a_send_would_meet(
    mesh: RelayMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")

    async def slow(request: Any) -> Any:
        raise HoplineError("unavailable", "the counters are being rebuilt; try again")

    monkeypatch.setattr(mesh.relay.admission._stub, "Admit", slow)
    refused = await attempt(ada.send(bob))
    assert isinstance(refused, HoplineError)
    assert await mesh.relay.missing() == [refused.message]
