"""The token that `attach --data` mints: renewed while it runs, revoked at exit."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest
from hopline.registry.v1 import identity_pb2 as pb
from hopline_cli.attach.credential import LIFE_SECONDS, MintedToken
from hopline_cli.attach.given import GivenToken
from hopline_cli.mesh import Mesh
from hopline_cli.supervise.starting import Pipe
from hopline_rpc.clock import ManualClock
from hopline_rpc.errors import HoplineError


class Registry:
    """Makes tokens t1, t2, ... and notes which of them are revoked."""

    def __init__(self) -> None:
        self.made: list[pb.CreateTokenRequest] = []
        self.revoked: list[str] = []
        self.is_down = False

    @property
    def identities(self) -> Registry:
        return self

    async def find(self) -> Any:
        if self.is_down:
            raise HoplineError("unavailable", "no mesh is running")
        return self

    async def CreateToken(self, request: pb.CreateTokenRequest) -> pb.CreateTokenResponse:
        self.made.append(request)
        number = len(self.made)
        return pb.CreateTokenResponse(info=pb.Token(id=f"id{number}"), token=f"t{number}")

    async def RevokeToken(self, request: pb.RevokeTokenRequest) -> pb.RevokeTokenResponse:
        self.revoked.append(request.token_id)
        return pb.RevokeTokenResponse()

    async def close(self) -> None:
        pass


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def registry() -> Registry:
    return Registry()


@pytest.fixture
def minted(registry: Registry, clock: ManualClock) -> MintedToken:
    async def find() -> Mesh:
        found: Mesh = await registry.find()
        return found

    return MintedToken("planner", find, clock)


async def test_it_is_for_the_agent_and_expires(minted: MintedToken, registry: Registry) -> None:
    await minted.start()
    assert await minted.current() == "t1"
    assert registry.made[0].agent == "planner"
    assert registry.made[0].expires_in_seconds == LIFE_SECONDS
    await minted.close()
    assert registry.revoked == ["id1"]


async def test_it_is_renewed_before_it_expires(
    minted: MintedToken, registry: Registry, clock: ManualClock
) -> None:
    await minted.start()
    await clock.advance(LIFE_SECONDS / 2 - 1)
    assert await minted.current() == "t1"
    await clock.advance(1)
    assert await minted.current() == "t2"
    await clock.advance(LIFE_SECONDS / 2)
    assert await minted.current() == "t3"
    await minted.close()
    # The first has expired by itself; the second may be the one of the open tunnel.
    assert registry.revoked == ["id2", "id3"]


async def test_while_the_mesh_is_down_it_tries_again(
    minted: MintedToken, registry: Registry, clock: ManualClock
) -> None:
    await minted.start()
    registry.is_down = True
    await clock.advance(LIFE_SECONDS / 2)
    assert await minted.current() == "t1"
    registry.is_down = False
    await clock.advance(30)
    assert await minted.current() == "t2"
    await minted.close()


async def test_a_mesh_that_is_gone_at_exit_does_not_hold_it_up(
    minted: MintedToken, registry: Registry
) -> None:
    await minted.start()
    registry.is_down = True
    async with asyncio.timeout(20):
        await minted.close()
    assert registry.revoked == []


async def test_a_refusal_at_the_start_is_told(minted: MintedToken, registry: Registry) -> None:
    registry.is_down = True
    with pytest.raises(HoplineError, match="no mesh is running"):
        await minted.start()


async def test_each_fresh_one_is_told_to_who_works_with_it_through_a_supervisors_pipe(
    registry: Registry, clock: ManualClock
) -> None:
    pipe = Pipe()
    minted = MintedToken("planner", registry.find, clock, life=600, name="supervise", on_renewed=pipe.write)
    await minted.start()
    assert registry.made[0].expires_in_seconds == 600
    assert registry.made[0].name.startswith("supervise ")
    gone = asyncio.Event()
    given = GivenToken(await minted.current())
    stop = given.follow(os.dup(pipe.reader), gone.set)
    pipe.started()
    await clock.advance(300)
    await clock.advance(300)
    assert await minted.current() == "t3"
    pipe.close()
    await gone.wait()
    assert await given.current() == "t3"
    stop()
    pipe.write("to nobody")
    await minted.close()
    assert registry.revoked == ["id2", "id3"]
