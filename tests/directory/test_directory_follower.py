"""How the view is kept fresh over a stream of changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hopline.registry.v1.visibility_pb2 import Change, WatchChangesRequest, WatchChangesResponse
from hopline.registry.v1.visibility_pb2_grpc import (
    VisibilityServiceServicer,
    add_VisibilityServiceServicer_to_server,
)
from hopline_directory import Directory, Follower
from hopline_rpc.channels import ClientChannel
from hopline_rpc.clock import ManualClock
from hopline_rpc.errors import HoplineError
from hopline_rpc.inprocess import InProcessServer

from tests.directory.builders import HOME, World, household


class Registry(VisibilityServiceServicer):
    """A registry that says what the test says, and when."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.asked: list[int] = []
        self.silent = False
        self.down = False
        self.said = asyncio.Condition()
        self.consumed = 0
        self.queue: asyncio.Queue[WatchChangesResponse | None] = asyncio.Queue()

    async def WatchChanges(
        self, request: WatchChangesRequest, context: Any
    ) -> AsyncIterator[WatchChangesResponse]:
        self.asked.append(request.from_seq)
        if self.down:
            raise HoplineError("unavailable", "down")
        if self.silent:
            await asyncio.Event().wait()
        view = self.world.view
        if request.from_seq == 0:
            yield WatchChangesResponse(
                changes=list(view.snapshot()), head_seq=view.seq, snapshot=True, snapshot_end=True
            )
        else:
            yield WatchChangesResponse(changes=self.world.log[request.from_seq :], head_seq=view.seq)
        while (response := await self.queue.get()) is not None:
            yield response
            self.consumed += 1

    def say(self, *changes: Change) -> None:
        self.queue.put_nowait(WatchChangesResponse(changes=changes, head_seq=self.world.seq))


class Rig:
    """A follower of a scripted registry, on a clock moved by hand."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.world = household()
        self.registry = Registry(self.world)  # type: ignore[abstract] # the rest is not asked for
        server = InProcessServer()
        add_VisibilityServiceServicer_to_server(self.registry, server)
        self.view = Directory()
        self.follower = Follower(ClientChannel(server.channel()), self.view, self.clock)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig()
    yield made
    await made.follower.close()


async def test_it_is_ready_when_the_first_view_is_complete(rig: Rig) -> None:
    await rig.follower.start()
    await rig.follower.ready()
    assert rig.view.seq == rig.world.seq
    assert rig.follower.fresh
    await rig.follower.ensure_fresh()


async def test_changes_are_told_to_listeners_before_they_count_as_consumed(rig: Rig) -> None:
    held = asyncio.Event()
    told: list[str] = []

    async def slow(news: list[Change]) -> None:
        if news[-1].agent.slug == "new":
            assert rig.view.agent(HOME, "agt_new") is not None
            told.append("new")
            await held.wait()

    rig.follower.add_listener(slow)
    rig.follower.add_listener(lambda news: told.append("next"))
    await rig.follower.start()
    await rig.follower.ready()
    told.clear()
    rig.world.agent("new")
    rig.registry.say(rig.world.log[-1])
    await rig.clock.settle()
    assert told == ["new"]
    assert rig.registry.consumed == 0
    held.set()
    await rig.clock.settle()
    assert told == ["new", "next"]
    assert rig.registry.consumed == 1


async def test_a_listener_that_fails_does_not_stop_the_others_or_the_view(rig: Rig) -> None:
    told = 0

    def broken(news: list[Change]) -> None:
        raise ValueError("broken")

    def counting(news: list[Change]) -> None:
        nonlocal told
        told += 1

    rig.follower.add_listener(broken)
    rig.follower.add_listener(counting)
    await rig.follower.start()
    await rig.follower.ready()
    assert told == 1


@pytest.mark.parametrize(("silence", "fresh"), [(0.49, True), (0.5, True), (0.51, False)])
async def test_the_view_is_trusted_for_half_a_second_of_silence(
    rig: Rig, silence: float, fresh: bool
) -> None:
    await rig.follower.start()
    await rig.follower.ready()
    await rig.clock.advance(silence)
    assert rig.follower.fresh is fresh


async def test_a_heartbeat_keeps_it_fresh(rig: Rig) -> None:
    await rig.follower.start()
    await rig.follower.ready()
    for _ in range(5):
        await rig.clock.advance(0.4)
        rig.registry.say()
        await rig.clock.settle()
        assert rig.follower.fresh


async def test_after_silence_the_registry_is_asked_once_for_all_who_wait(rig: Rig) -> None:
    await rig.follower.start()
    await rig.follower.ready()
    await rig.clock.advance(0.6)
    rig.world.agent("missed")
    await asyncio.gather(*(rig.follower.ensure_fresh() for _ in range(10)))
    assert rig.registry.asked == [0, rig.world.seq - 1]
    assert rig.view.agent(HOME, "agt_missed") is not None
    assert rig.follower.fresh


@pytest.mark.parametrize("trouble", ["silent", "down"])
async def test_no_answer_is_unavailable(rig: Rig, trouble: str) -> None:
    await rig.follower.start()
    await rig.follower.ready()
    await rig.clock.advance(0.6)
    setattr(rig.registry, trouble, True)
    asking = asyncio.ensure_future(rig.follower.ensure_fresh())
    await rig.clock.advance(0.9)
    assert not asking.done()
    await rig.clock.advance(0.2)
    with pytest.raises(HoplineError) as caught:
        await asking
    assert caught.value.reason == "unavailable"
    setattr(rig.registry, trouble, False)
    await rig.follower.ensure_fresh()


async def test_it_comes_back_by_itself_when_the_stream_ends_or_falls_silent(rig: Rig) -> None:
    await rig.follower.start()
    await rig.follower.ready()
    rig.world.agent("while_away")
    rig.registry.queue.put_nowait(None)
    await rig.clock.advance(0.25)
    assert rig.view.agent(HOME, "agt_while_away") is not None
    await rig.clock.advance(2.0 + 0.25)
    assert rig.registry.asked == [0, rig.world.seq - 1, rig.world.seq]


async def test_a_gap_is_mended_by_reading_again(rig: Rig) -> None:
    await rig.follower.start()
    await rig.follower.ready()
    rig.world.agent("one")
    rig.world.agent("two")
    rig.registry.say(rig.world.log[-1])
    await rig.clock.advance(0.25)
    assert rig.view.agent(HOME, "agt_one") is not None
    assert rig.view.agent(HOME, "agt_two") is not None


async def test_a_view_that_lags_behind_the_head_is_not_fresh_yet(rig: Rig) -> None:
    await rig.follower.start()
    await rig.follower.ready()
    await rig.clock.advance(0.6)
    rig.registry.queue.put_nowait(WatchChangesResponse(head_seq=rig.world.seq + 1))
    await rig.clock.settle()
    assert not rig.follower.fresh
