"""An agent that is paused or deleted while something for it is on its way into the record."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hopline.relay.v1 import message_pb2 as pb

from tests.relay.test_turns_at_once import desk
from tests.support.relay_mesh import Caller, RelayMesh

pytestmark = pytest.mark.both_stores

Leave = Callable[[RelayMesh, Caller], Awaitable[None]]
LEAVES = [RelayMesh.pause, RelayMesh.delete]


def when_admitted(mesh: RelayMesh, happens: Callable[[], Awaitable[Any]]) -> None:
    """Have something begin between the next admission and its commit."""
    admit = mesh.relay.admission.admit

    async def admitted(*items: Any) -> Any:
        mesh.relay.admission.admit = admit  # type: ignore[method-assign]
        decided = await admit(*items)
        await happens()
        return decided

    mesh.relay.admission.admit = admitted  # type: ignore[assignment,method-assign]


@pytest.mark.parametrize("leave", LEAVES)
@pytest.mark.parametrize("attached", [False, True])
async def test_an_ask_that_its_agents_departure_overtakes_ends_too(
    mesh: RelayMesh, leave: Leave, attached: bool
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    if attached:
        await desk(mesh, bob)
    leaving: list[Any] = []

    async def begins() -> None:
        leaving.append(asyncio.ensure_future(leave(mesh, bob)))
        await mesh.clock.settle()

    when_admitted(mesh, begins)
    view = await ada.ask(bob)
    await leaving[0]
    ended = await ada.check(view.turn_id)
    assert ended.status == pb.TURN_STATUS_CANCELED
    assert mesh.relay.dispatcher.places(mesh.workspace_id, bob.id) == 0


async def _answer(mesh: RelayMesh, caller: Caller, thread_id: str) -> tuple[str, int]:
    """Return the second message of a thread, and how its delivery stands."""
    message = (await mesh.thread(thread_id, caller))[1]
    return message.body, message.deliveries[0].state


async def test_an_answer_that_its_askers_departure_overtakes_waits_for_nobody(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(bob)
    view = await ada.ask(bob)
    start = await worker.next()
    leaving: list[Any] = []

    async def begins() -> None:
        leaving.append(asyncio.ensure_future(mesh.delete(ada)))
        await mesh.clock.settle()

    when_admitted(mesh, begins)
    await worker.end(start, answer="so it is")
    await leaving[0]
    assert await _answer(mesh, bob, view.thread_id) == ("so it is", pb.DELIVERY_STATE_DEAD)
