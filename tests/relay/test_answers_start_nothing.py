"""Answers are the end of a question, not the beginning of another: no ping-pong, nothing answered twice."""

from __future__ import annotations

import asyncio

from hopline.relay.v1 import delegation_pb2
from hopline.relay.v1 import message_pb2 as pb
from hopline_relay.cancel import Cancels

from tests.support.relay_mesh import RelayMesh


async def test_what_a_turn_that_an_answer_woke_says_at_its_end_goes_nowhere(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    adas, bobs = await mesh.worker(ada), await mesh.worker(bob)
    view = await ada.ask(bob)
    await bobs.end(await bobs.next(), "yes")
    woken = await adas.next()
    assert [message.body for message in woken.messages] == ["yes"]
    await adas.end(woken, "thank you")
    assert not await bobs.claim()
    assert [message.body for message in await mesh.thread(view.thread_id)] == ["well?", "yes"]


async def test_answers_of_two_questions_at_once_are_not_mixed_up(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(bob)
    views = [await ada.ask(bob, f"question {number}") for number in range(4)]
    while turns := await worker.claim():
        for turn in reversed(turns):
            await worker.end(turn, f"answer to {turn.messages[0].body}")
    for number, view in enumerate(views):
        assert (await ada.check(view.turn_id)).reply == f"answer to question {number}"


async def test_a_person_who_hangs_up_while_cancelling_leaves_nothing_half_cancelled(
    mesh: RelayMesh,
) -> None:
    ada, bob, cid = await mesh.agent("ada"), await mesh.agent("bob"), await mesh.agent("cid")
    worker = await mesh.worker(bob)
    view = await ada.ask(bob)
    below = await worker.ask(await worker.next(), cid)
    begun = asyncio.Event()
    cascade = Cancels.cascade

    async def slowly(self: Cancels, *args: object, **more: object) -> int:
        begun.set()
        await asyncio.sleep(0)
        return await cascade(self, *args, **more)  # type: ignore[arg-type]

    Cancels.cascade = slowly  # type: ignore[method-assign]
    try:
        request = delegation_pb2.CancelRequest(turn_id=view.turn_id)
        calling = asyncio.ensure_future(ada.turns.Cancel(request))
        await begun.wait()
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
    finally:
        Cancels.cascade = cascade  # type: ignore[method-assign]

    async with asyncio.timeout(30):
        while (await mesh.admin.check(below.turn_id)).status != pb.TURN_STATUS_CANCELED:
            pass
