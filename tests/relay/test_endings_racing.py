"""Several ends of one turn at once: one counts."""

from __future__ import annotations

import asyncio

import pytest
from hopline.relay.v1 import message_pb2 as pb

from tests.support.relay_mesh import RelayMesh

pytestmark = pytest.mark.both_stores


async def test_of_many_ends_at_once_one_is_recorded_and_one_answer_goes_out(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(bob)
    view = await ada.ask(bob)
    turn = await worker.next()
    ends = await asyncio.gather(*(worker.end(turn, f"answer {n}") for n in range(10)))
    assert sum(ends) == 1
    assert len(await mesh.thread(view.thread_id)) == 2
    assert len((await ada.take()).messages) == 1


async def test_an_end_and_a_reply_at_once_give_one_answer(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(bob)
    for number in range(10):
        view = await ada.ask(bob)
        turn = await worker.next()
        await asyncio.gather(
            worker.end(turn, f"final {number}"), bob.reply(turn.messages[0].id, f"reply {number}")
        )
        checked = await ada.check(view.turn_id)
        assert checked.status == pb.TURN_STATUS_COMPLETED
        answers = [m for m in await mesh.thread(view.thread_id) if m.id == checked.reply_message_id]
        assert len(answers) == 1
