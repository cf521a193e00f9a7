"""Which agents have work, as a supervisor watches it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hopline.registry.v1 import agent_pb2, identity_pb2
from hopline.relay.v1 import wake_pb2 as pb
from hopline.relay.v1.wake_pb2_grpc import WakeServiceStub

from tests.relay.test_wakes import attach
from tests.support.relay_mesh import Caller, RelayMesh, refusal

OPERATOR = 2


class Watch:
    """A stream of the relay, and what it has said last of each agent."""

    def __init__(self, mesh: RelayMesh, stream: Any) -> None:
        self._mesh = mesh
        self._stream = stream
        self.said: dict[str, pb.AgentWork] = {}

    async def until(self, agent: str, **fields: Any) -> pb.AgentWork:
        """Read on until it says so of the agent; time passes meanwhile."""
        while True:
            work = self.said.get(agent)
            if work is not None and all(getattr(work, name) == value for name, value in fields.items()):
                return work
            reading = asyncio.ensure_future(self._stream.__anext__())
            for _ in range(1500):
                if reading.done():
                    break
                # What is written takes real time, and a lease of the clock's must not end over it.
                await asyncio.sleep(0.002)
                await self._mesh.clock.advance(0.02)
            assert reading.done(), f"{agent} never is {fields}, but {work}"
            for each in reading.result().agents:
                self.said[each.agent] = each


@asynccontextmanager
async def watch(mesh: RelayMesh, caller: Caller, *agents: str) -> AsyncIterator[Watch]:
    stream = WakeServiceStub(caller._channel("relay")).WatchWork(pb.WatchWorkRequest(agents=agents))
    try:
        yield Watch(mesh, stream.__aiter__())
    finally:
        stream.cancel()


@pytest.fixture
async def bob(mesh: RelayMesh) -> Caller:
    return await mesh.agent("bob", wake=agent_pb2.Wake(kind=agent_pb2.WAKE_KIND_EXEC))


async def test_it_says_all_at_first_and_then_what_changes(mesh: RelayMesh, bob: Caller) -> None:
    ada = await mesh.agent("ada")
    async with watch(mesh, mesh.admin, "bob", ada.id) as watching:
        first = await watching.until("bob", waiting=0, is_attached=False)
        assert (first.agent_id, first.slug, first.wake, first.problem) == (bob.id, "bob", "exec", "")
        assert watching.said[ada.id].wake == "none"
        watching.said.clear()
        await ada.send(bob)
        await watching.until("bob", waiting=1, running=0)
        assert set(watching.said) == {"bob"}
        tunnel = attach(mesh, bob)
        await watching.until("bob", waiting=0, running=1, is_attached=True)
        mesh.relay.dispatcher.remove(tunnel)
        await watching.until("bob", is_attached=False, running=0)


async def test_what_no_hint_told_of_is_found_by_looking(
    mesh: RelayMesh, bob: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = await mesh.agent("ada")
    async with watch(mesh, mesh.admin, "bob") as watching:
        await watching.until("bob", waiting=0)
        mesh.relay.signals._claimable.clear()
        await ada.send(bob)
        await watching.until("bob", waiting=1)


async def test_it_is_for_those_who_operate_the_agent_and_only_while_they_do(
    mesh: RelayMesh, bob: Caller
) -> None:
    zoe = await mesh.person("zoe")
    async with watch(mesh, zoe, "bob", "nobody") as watching:
        hidden = await watching.until("bob", waiting=0)
        assert hidden.problem.replace("'bob'", "'nobody'") == watching.said["nobody"].problem
        assert (hidden.agent_id, hidden.slug, hidden.wake) == ("", "", "")
        await mesh.grant("zoe", OPERATOR, "bob")
        await watching.until("bob", problem="", agent_id=bob.id)
        revoked = identity_pb2.RevokeRoleRequest(user="zoe", agent="bob")
        await mesh.admin.people.RevokeRole(revoked)
        assert await watching.until("bob", agent_id="") == hidden


async def test_a_paused_agent_has_a_problem(mesh: RelayMesh, bob: Caller) -> None:
    await mesh.pause(bob)
    async with watch(mesh, mesh.admin, "bob") as watching:
        await watching.until("bob", problem="the agent is paused")
        await mesh.resume(bob)
        await watching.until("bob", problem="")


async def test_agents_do_not_watch(mesh: RelayMesh, bob: Caller) -> None:
    stream = WakeServiceStub(bob._channel("relay")).WatchWork(pb.WatchWorkRequest(agents=["bob"]))
    assert (await refusal(stream.__aiter__().__anext__())).reason == "permission_denied"
