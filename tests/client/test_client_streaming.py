"""Reply mode `all`: pieces that become one message, which whoever waits for it sees grow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hopline.registry.v1.agent_pb2 import REPLY_MODE_ALL
from hopline.relay.v1 import message_pb2, session_pb2
from hopline_client import Turn, TurnFailed

from tests.support.relay_mesh import Caller, RelayMesh
from tests.support.stage import Stage

_PATIENCE = 10.0


class Gate:
    """Where a handler waits until the test lets it go on."""

    def __init__(self) -> None:
        self._there = asyncio.Event()
        self._open = asyncio.Event()

    async def wait(self) -> None:
        self._there.set()
        await self._open.wait()

    async def reached(self) -> None:
        async with asyncio.timeout(_PATIENCE):
            await self._there.wait()

    def open(self) -> None:
        self._open.set()


async def _seen(
    caller: Caller, turn_id: str, what: Callable[[message_pb2.TurnView], bool]
) -> message_pb2.TurnView:
    """Look at a turn until it is as expected; time passes, but not faster than a worker can follow."""
    looks = 0
    async with asyncio.timeout(_PATIENCE):
        while not what(found := await caller.check(turn_id)):
            await caller.mesh.passes(0.3 if looks % 20 == 0 else 0)
            await asyncio.sleep(0.005)
            looks += 1
    return found


async def until_written(caller: Caller, turn_id: str, text: str) -> message_pb2.TurnView:
    return await _seen(caller, turn_id, lambda view: view.written == text)


async def until_ended(caller: Caller, turn_id: str) -> None:
    running = (message_pb2.TURN_STATUS_RUNNING, message_pb2.TURN_STATUS_QUEUED)
    await _seen(caller, turn_id, lambda view: view.status not in running)


async def _streaming(mesh: RelayMesh, name: str = "sub") -> Caller:
    return await mesh.agent(name, reply_mode=REPLY_MODE_ALL)


async def _read(reader: Caller, session_id: str) -> list[tuple[str, str]]:
    request = session_pb2.ReadSessionRequest(session_id=session_id)
    found = await reader.sessions.ReadSession(request)
    return [(entry.kind, entry.text) for entry in found.entries]


async def test_who_waits_sees_what_is_written_so_far_and_gets_one_message_that_costs_once(
    stage: Stage,
) -> None:
    mesh = stage.mesh
    ada, sub = await mesh.agent("ada"), await _streaming(mesh)
    go_on = Gate()

    async def writes(turn: Turn) -> str:
        assert turn.reply_mode == "all"
        await turn.write("one ")
        await turn.write("two ")
        await go_on.wait()
        await turn.write("three")
        return ""

    await stage.work(sub, writes)
    asked = await ada.ask(sub)
    await go_on.reached()
    found = await until_written(ada, asked.turn_id, "one two ")
    assert (found.status, found.has_reply) == (message_pb2.TURN_STATUS_RUNNING, False)
    waited = await ada.check(asked.turn_id, wait=0)
    assert waited.written == "one two "
    assert await _read(ada, asked.session_id) == [("prompt", "well?"), ("writing", "one two ")]
    go_on.open()
    await until_ended(ada, asked.turn_id)
    found = await ada.check(asked.turn_id)
    assert (found.reply, found.written) == ("one two three", "")
    assert await _read(ada, asked.session_id) == [("prompt", "well?"), ("answer", "one two three")]
    assert (await mesh.usage(sub)).sent_today == 1


async def test_what_was_written_before_another_attempt_is_not_doubled(stage: Stage) -> None:
    mesh = stage.mesh
    ada, sub = await mesh.agent("ada"), await _streaming(mesh)
    go_on = Gate()

    async def writes(turn: Turn) -> str:
        await turn.write(f"attempt {turn.attempt}. ")
        await go_on.wait()
        return ""

    first = await stage.work(sub, writes)
    asked = await ada.ask(sub)
    await go_on.reached()
    await until_written(ada, asked.turn_id, "attempt 1. ")
    await stage.kill(first)
    await mesh.worker_lost(asked.turn_id)
    assert not (await ada.check(asked.turn_id)).written
    go_on.open()
    await stage.work(sub, writes)
    await until_ended(ada, asked.turn_id)
    assert (await ada.check(asked.turn_id)).reply == "attempt 2. "


async def test_a_worker_whose_line_is_cut_goes_on_in_the_same_message(stage: Stage) -> None:
    mesh = stage.mesh
    ada, sub = await mesh.agent("ada"), await _streaming(mesh)
    go_on = Gate()

    async def writes(turn: Turn) -> str:
        await turn.write("one ")
        await go_on.wait()
        await turn.write("two")
        return ""

    await stage.work(sub, writes)
    asked = await ada.ask(sub)
    await go_on.reached()
    await until_written(ada, asked.turn_id, "one ")
    await stage.cut()
    await stage.back(sub)
    go_on.open()
    await until_ended(ada, asked.turn_id)
    assert (await ada.check(asked.turn_id)).reply == "one two"


async def test_of_a_turn_that_fails_what_was_written_stays_to_be_read(stage: Stage) -> None:
    mesh = stage.mesh
    ada, sub = await mesh.agent("ada"), await _streaming(mesh)
    go_on = Gate()

    async def writes(turn: Turn) -> str:
        await turn.write("half of it")
        await go_on.wait()
        raise TurnFailed("out of words")

    await stage.work(sub, writes)
    asked = await ada.ask(sub)
    await until_written(ada, asked.turn_id, "half of it")
    go_on.open()
    await until_ended(ada, asked.turn_id)
    found = await ada.check(asked.turn_id)
    assert (found.error.code, found.written) == ("turn_failed", "")
    assert ("written", "half of it") in await _read(ada, asked.session_id)


async def test_in_the_other_modes_only_the_end_is_said(stage: Stage) -> None:
    mesh = stage.mesh
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    go_on = Gate()

    async def writes(turn: Turn) -> str:
        await turn.write("thinking aloud")
        await go_on.wait()
        return "so"

    await stage.work(bob, writes)
    asked = await ada.ask(bob)
    await go_on.reached()
    await mesh.passes(1)
    assert not (await ada.check(asked.turn_id)).written
    go_on.open()
    await until_ended(ada, asked.turn_id)
    assert (await ada.check(asked.turn_id)).reply == "so"


async def test_what_is_longer_than_any_answer_fails_and_says_so(stage: Stage) -> None:
    mesh = stage.mesh
    ada, sub = await mesh.agent("ada"), await _streaming(mesh)

    async def writes(turn: Turn) -> str:
        for _ in range(20):
            await turn.write("x" * 16_000)
        return ""

    await stage.work(sub, writes)
    asked = await ada.ask(sub)
    await until_ended(ada, asked.turn_id)
    assert "256 KiB" in (await ada.check(asked.turn_id)).error.message


async def test_where_hooks_shape_answers_nobody_sees_one_before_they_have(stage: Stage) -> None:
    mesh = stage.mesh
    await mesh.policy(redact_credentials=True)
    ada, sub = await mesh.agent("ada"), await _streaming(mesh)
    go_on = Gate()
    secret = f"ghp_{'a1B2' * 9}"

    async def writes(turn: Turn) -> str:
        await turn.write(f"the token is {secret}")
        await go_on.wait()
        return ""

    await stage.work(sub, writes)
    asked = await ada.ask(sub)
    await go_on.reached()
    await mesh.passes(1)
    assert not (await ada.check(asked.turn_id)).written
    assert await _read(ada, asked.session_id) == [("prompt", "well?")]
    go_on.open()
    await until_ended(ada, asked.turn_id)
    found = await ada.check(asked.turn_id)
    assert found.reply.startswith("the token is ")
    assert secret not in found.reply
