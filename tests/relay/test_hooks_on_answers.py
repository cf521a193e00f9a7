"""Hooks on what comes back: replies and final answers. Kept back, a debt ends and its creditor is told."""

from __future__ import annotations

import asyncio

import pytest
from hopline.relay.v1 import message_pb2 as pb

from tests.support.hook_rig import HookRig, never, passes, rewrite, veto
from tests.support.relay_mesh import Caller, RelayMesh, until


@pytest.fixture
def rig(mesh: RelayMesh) -> HookRig:
    return HookRig(mesh)


async def _waiting(mesh: RelayMesh, agent: Caller, turn_id: str) -> asyncio.Task[pb.TurnView]:
    """Return the call of an agent that waits for a turn."""
    waiting = asyncio.create_task(agent.check(turn_id, wait=50))
    await until(lambda: mesh.relay.waits.someone(mesh.workspace_id, turn_id, agent.id))
    return waiting


async def test_a_final_answer_is_rewritten_for_the_call_that_waits(mesh: RelayMesh, rig: HookRig) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    rig.add("abe", lambda asked: rewrite("milder") if asked.kind == "answer" else passes())
    worker = await mesh.worker(bob)
    asking = await _waiting(mesh, ada, (await ada.ask(bob)).turn_id)
    turn = await worker.next()
    assert await worker.end(turn, "harsh")
    view = await asking
    assert (view.status, view.reply) == (pb.TURN_STATUS_COMPLETED, "milder")
    assert [request.kind for _, request in rig.asked] == ["ask", "answer"]
    answer = rig.asked[1][1]
    assert (getattr(answer, "from").id, getattr(answer, "from").turn_id) == (bob.id, turn.turn_id)
    assert (answer.to.id, answer.in_reply_to, answer.is_subagent_report) == (ada.id, view.message_id, False)
    assert "harsh" not in str(await mesh.thread(view.thread_id))


async def test_a_final_answer_that_is_kept_back_ends_the_debt_as_withheld_and_the_call_hears_of_it(
    mesh: RelayMesh, rig: HookRig
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    rig.add("abe", lambda asked: veto("no proof") if asked.kind == "answer" else passes())
    worker = await mesh.worker(bob)
    asking = await _waiting(mesh, ada, (await ada.ask(bob)).turn_id)
    assert await worker.end(await worker.next(), "done")
    view = await asking
    assert (view.status, view.error.code) == (pb.TURN_STATUS_FAILED, "withheld")
    assert "no proof" in view.error.message
    assert not view.has_reply
    again = await ada.check(view.turn_id)
    assert (again.status, again.error.code) == (pb.TURN_STATUS_FAILED, "withheld")
    assert (await mesh.usage(bob)).sent_today == 0
    assert [event.action for event in await mesh.events("hook.vetoed")] == ["hook.vetoed"]


@pytest.mark.parametrize("by", ["reply", "answer"])
async def test_nobody_waiting_the_creditor_is_told_by_a_message_that_its_answer_was_withheld(
    mesh: RelayMesh, rig: HookRig, by: str
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    rig.add("abe", lambda asked: veto("no proof") if asked.kind == by else passes())
    view = await ada.ask(bob)
    if by == "reply":
        (message,) = (await bob.take()).messages
        answered = await bob.reply(message.id, "fortytwo")
        assert (answered.message_id, answered.deliveries[0].cancel_reason) == ("", "no proof")
    else:
        worker = await mesh.worker(bob)
        await worker.end(await worker.next(), "fortytwo")
    (told,) = (await ada.take()).messages
    assert getattr(told, "from").kind == "mesh"
    assert "withheld" in told.body
    assert "no proof" in told.body
    found = await ada.check(view.turn_id)
    assert (found.status, found.error.code) == (pb.TURN_STATUS_FAILED, "withheld")
    assert (await mesh.usage(bob)).sent_today == 0
    for file in mesh.folder.glob("relay.db*"):
        assert b"fortytwo" not in file.read_bytes()
    # Nothing is owed any more, and nothing runs.
    assert not (await bob.take()).messages
    await mesh.passes(700)
    assert not (await bob.take()).messages


async def test_a_reply_that_is_kept_back_wakes_the_call_that_waits(mesh: RelayMesh, rig: HookRig) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    rig.add("abe", lambda asked: rewrite("") if asked.kind == "reply" else passes())
    asking = await _waiting(mesh, ada, (await ada.ask(bob)).turn_id)
    taken = (await bob.take()).messages
    answered = await bob.reply(taken[0].id)
    assert not answered.deliveries[0].is_canceled
    view = await asking
    assert (view.status, view.error.code) == (pb.TURN_STATUS_FAILED, "withheld")
    assert not (await ada.take()).messages


async def test_a_reply_to_a_plain_message_that_is_kept_back_may_be_said_otherwise(
    mesh: RelayMesh, rig: HookRig
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    rig.add("abe", lambda asked: veto("rude") if asked.text == "rude" else passes())
    await ada.send(bob)
    (message,) = (await bob.take()).messages
    assert (await bob.reply(message.id, "rude")).deliveries[0].cancel_reason == "rude"
    assert (await bob.reply(message.id, "polite")).message_id
    assert [each.body for each in (await ada.take()).messages] == ["polite"]


async def test_an_answer_to_a_person_goes_through_no_hook(mesh: RelayMesh, rig: HookRig) -> None:
    bob = await mesh.agent("bob")
    rig.add("abe", lambda asked: veto())
    worker = await mesh.worker(bob)
    sent = await mesh.admin.send(bob)
    await worker.end(await worker.next(), "fine")
    (message,) = (await bob.take()).messages or [None]
    assert message is None
    await mesh.admin.send(bob)
    taken = await bob.take()
    assert (await bob.reply(taken.messages[0].id, "so")).message_id
    assert not rig.asked
    assert sent.message_id


async def test_other_turns_end_while_a_hook_looks_at_an_answer(mesh: RelayMesh, rig: HookRig) -> None:
    ada, bob, cat = await mesh.agent("ada"), await mesh.agent("bob"), await mesh.agent("cat")
    rig.add("abe", lambda asked: never(asked) if asked.text == "slow" else passes())
    workers = [await mesh.worker(bob), await mesh.worker(cat)]
    first, second = await ada.ask(bob), await ada.ask(cat)
    turns = [await worker.next() for worker in workers]
    slow = asyncio.create_task(workers[0].end(turns[0], "slow"))
    await until(lambda: rig.texts("abe")[2:])
    assert await workers[1].end(turns[1], "quick")
    assert (await ada.check(second.turn_id)).reply == "quick"
    assert not slow.done()
    await mesh.clock.advance(2.0)
    assert await slow
    assert (await ada.check(first.turn_id)).reply == "slow"  # it fails open


async def test_whoever_says_that_a_turn_ended_may_leave_while_hooks_look(
    mesh: RelayMesh, rig: HookRig
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    rig.add("abe", lambda asked: never(asked) if asked.kind == "answer" else passes())
    worker = await mesh.worker(bob)
    view = await ada.ask(bob)
    ending = asyncio.create_task(worker.end(await worker.next(), "late"))
    await asyncio.sleep(0)
    ending.cancel()
    await until(lambda: rig.texts("abe")[1:])
    await mesh.clock.advance(2.0)
    await mesh.relay.endings.drained()
    assert (await ada.check(view.turn_id)).reply == "late"


async def test_a_reply_at_the_same_time_as_an_end_whose_answer_is_looked_at_is_the_one_answer(
    mesh: RelayMesh, rig: HookRig
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    rig.add("abe", lambda asked: never(asked) if asked.kind == "answer" else passes())
    worker = await mesh.worker(bob)
    view = await ada.ask(bob)
    turn = await worker.next()
    ending = asyncio.create_task(worker.end(turn, "final"))
    await until(lambda: rig.texts("abe")[1:])
    request = pb.ReplyRequest(message_id=view.message_id, text="explicit")
    await mesh.relay.handlers.reply(await worker.principal(), request, turn_id=turn.turn_id)
    await mesh.clock.advance(2.0)
    assert await ending
    assert (await ada.check(view.turn_id)).reply == "explicit"
    assert len(await mesh.thread(view.thread_id)) == 2


async def test_an_answer_may_be_rewritten_up_to_its_own_limit(mesh: RelayMesh, rig: HookRig) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    long = "x" * (256 * 1024)
    rig.add("abe", lambda asked: rewrite(long) if asked.kind == "answer" else passes())
    worker = await mesh.worker(bob)
    view = await ada.ask(bob)
    await worker.end(await worker.next(), "short")
    assert (await ada.check(view.turn_id)).reply == long
