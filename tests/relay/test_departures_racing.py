"""An agent that is paused or deleted while something for it is on its way into the record."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hopline.relay.v1 import message_pb2 as pb

from tests.relay.test_turns_at_once import desk
from tests.support.relay_mesh import Caller, RelayMesh

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
