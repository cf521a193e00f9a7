"""Cancelling a whole subtree of a delegation: what goes on only for it ends too, whatever races with it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hopline.relay.v1 import delegation_pb2
from hopline.relay.v1 import message_pb2 as pb
from hopline_relay.cancel import Cancels
from hopline_relay.endings import Endings
from hopline_relay.turns import ClaimedTurn
from hopline_rpc.errors import HoplineError

from tests.support.relay_mesh import Caller, RelayMesh, Worker, attempt, refusal

pytestmark = pytest.mark.both_stores


async def _cancel(caller: Caller, turn_id: str) -> delegation_pb2.CancelResponse:
    request = delegation_pb2.CancelRequest(turn_id=turn_id)
    answer: delegation_pb2.CancelResponse = await caller.turns.Cancel(request)
    return answer


async def _state(mesh: RelayMesh, turn_id: str) -> pb.TurnView:
    return await mesh.admin.check(turn_id)


async def _lead(mesh: RelayMesh) -> tuple[Caller, Caller, Worker, ClaimedTurn, pb.TurnView]:
    """Let ada ask the lead; its turn runs."""
    ada, lead = await mesh.agent("ada"), await mesh.agent("lead")
    worker = await mesh.worker(lead)
    view = await ada.ask(lead, "manage this")
    return ada, lead, worker, await worker.next(), view


async def test_replies_to_a_cancelled_fan_out_wake_nobody_any_more(mesh: RelayMesh) -> None:
    ada, lead, worker, turn, view = await _lead(mesh)
    peers = [await mesh.agent(name) for name in ("bob", "cid", "dan")]
    sent = await worker.send(turn, *peers, text="who is there?")
    for peer in peers[:2]:
        await peer.reply(sent.message_id, "me")
    stray = await mesh.agent("eve")
    other = await stray.send(lead, text="something else")
    assert (await mesh.usage(lead)).inbox == 3
    assert (await _cancel(ada, view.turn_id)).canceled == 3
    # Only what has nothing to do with it is left, and the replies stay readable.
    assert [m.id for m in (await lead.take()).messages] == [other.message_id]
    said = await mesh.thread(sent.thread_id)
    assert [m.body for m in said] == ["who is there?", "me", "me"]
    assert [m.deliveries[0].state for m in said[1:]] == [pb.DELIVERY_STATE_WITHDRAWN] * 2
    # Who has not answered yet may still do so.
    assert (await peers[2].reply(sent.message_id, "late")).message_id


async def test_what_an_ended_turn_left_going_is_cancelled_by_who_started_it(mesh: RelayMesh) -> None:
    ada, _, worker, turn, view = await _lead(mesh)
    bob = await mesh.agent("bob")
    bobs = await mesh.worker(bob)
    asked = await worker.ask(turn, bob, "a long job")
    running = await bobs.next()
    await worker.end(turn, "I have asked bob")
    answer = await _cancel(ada, view.turn_id)
    assert (answer.status, answer.canceled) == (pb.TURN_STATUS_COMPLETED, 1)
    assert (await _state(mesh, asked.turn_id)).status == pb.TURN_STATUS_CANCELED
    assert not await bobs.end(running, "too late")
    again = await _cancel(ada, view.turn_id)
    assert (again.status, again.canceled) == (pb.TURN_STATUS_COMPLETED, 0)


@pytest.mark.parametrize("fails", [True, False], ids=["it failed", "it answered"])
async def test_what_a_turn_in_the_middle_left_going_when_it_ended_is_cancelled_from_above(
    mesh: RelayMesh, *, fails: bool
) -> None:
    ada, _, worker, turn, view = await _lead(mesh)
    bob, cid, dan = await mesh.agent("bob"), await mesh.agent("cid"), await mesh.agent("dan")
    bobs, cids = await mesh.worker(bob), await mesh.worker(cid)
    await worker.ask(turn, bob)
    middle = await bobs.next()
    await bobs.ask(middle, cid)
    lower = await cids.next()
    deep = await cids.ask(lower, dan, "a long job")
    other = await (await mesh.agent("eve")).ask(dan, "of another root")
    for each, at in ((cids, lower), (bobs, middle)):
        await (each.end(at, failure="it broke") if fails else each.end(at, "I have asked on"))
    assert (await _state(mesh, deep.turn_id)).status == pb.TURN_STATUS_QUEUED
    assert (await _cancel(ada, view.turn_id)).canceled >= 2
    assert (await _state(mesh, deep.turn_id)).status == pb.TURN_STATUS_CANCELED
    assert (await _state(mesh, other.turn_id)).status == pb.TURN_STATUS_QUEUED


async def test_a_turn_woken_by_a_reply_and_what_it_asked_end_with_the_turn_before_it(mesh: RelayMesh) -> None:
    ada, _, worker, turn, view = await _lead(mesh)
    bob, cid = await mesh.agent("bob"), await mesh.agent("cid")
    sent = await worker.send(turn, bob)
    await worker.end(turn, "more to come")
    await bob.reply(sent.message_id, "here")
    woken = await worker.next()
    onward = await worker.ask(woken, cid)
    stopped: list[str] = []
    mesh.relay.turns.on_cancel = lambda items: stopped.extend(held.turn_id for _, _, held, _ in items)
    assert (await _cancel(ada, view.turn_id)).canceled == 2
    assert stopped == [woken.turn_id]
    assert (await _state(mesh, onward.turn_id)).status == pb.TURN_STATUS_CANCELED


async def test_what_a_turn_woken_by_a_reply_left_going_when_it_ended_is_cancelled_from_above(
    mesh: RelayMesh,
) -> None:
    ada, _, worker, turn, view = await _lead(mesh)
    bob, cid = await mesh.agent("bob"), await mesh.agent("cid")
    sent = await worker.send(turn, bob)
    await worker.end(turn, "more to come")
    await bob.reply(sent.message_id, "here")
    woken = await worker.next()
    onward = await worker.ask(woken, cid)
    await worker.end(woken, "I have asked on")
    other = await bob.ask(cid, "nothing to do with it")
    assert (await _cancel(ada, view.turn_id)).canceled == 1
    assert (await _state(mesh, onward.turn_id)).status == pb.TURN_STATUS_CANCELED
    assert (await _state(mesh, other.turn_id)).status == pb.TURN_STATUS_QUEUED


async def test_an_agent_that_answered_cannot_cancel_what_its_answer_woke(mesh: RelayMesh) -> None:
    _, _, worker, turn, _ = await _lead(mesh)
    bob = await mesh.agent("bob")
    sent = await worker.send(turn, bob)
    await worker.end(turn, "more to come")
    replied = await bob.reply(sent.message_id, "here")
    error = await refusal(_cancel(bob, replied.deliveries[0].turn_id))
    assert error.reason == "failed_precondition"
    assert (await _cancel(mesh.admin, replied.deliveries[0].turn_id)).canceled == 1


@pytest.mark.parametrize("ends", [True, False], ids=["it ends", "it is queued again"])
async def test_a_cancel_that_races_with_the_end_or_the_requeue_of_a_turn_leaves_one_outcome(
    mesh: RelayMesh, *, ends: bool
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(bob)
    for _ in range(10):
        view = await ada.ask(bob)
        turn = await worker.next()
        other: Any = (
            worker.end(turn, "yes")
            if ends
            else mesh.relay.turns.give_back(mesh.workspace_id, bob.id, [turn.held], worker.epoch)
        )
        answer, _ = await asyncio.gather(_cancel(ada, view.turn_id), other)
        found = await _state(mesh, view.turn_id)
        assert found.status == answer.status
        if not ends:
            assert found.status == pb.TURN_STATUS_CANCELED
        assert answer.canceled == (found.status == pb.TURN_STATUS_CANCELED)
    assert not await worker.claim()
    await mesh.relay.admission.settled()
    usage = await mesh.usage(bob)
    assert (usage.inbox, usage.running) == (0, 0)


async def test_of_many_cancels_at_once_each_turn_is_counted_once(mesh: RelayMesh) -> None:
    ada, _, worker, turn, view = await _lead(mesh)
    for name in ("bob", "cid", "dan"):
        await worker.ask(turn, await mesh.agent(name))
    answers = await asyncio.gather(*(_cancel(ada, view.turn_id) for _ in range(8)))
    assert {answer.status for answer in answers} == {pb.TURN_STATUS_CANCELED}
    assert sum(answer.canceled for answer in answers) == 4
    ended = [event.turn_id for event in await mesh.events("turn.ended")]
    assert len(ended) == len(set(ended)) == 4


async def test_a_child_that_is_claimed_while_its_parent_is_cancelled_is_cancelled_too(
    mesh: RelayMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, _, worker, turn, view = await _lead(mesh)
    bob = await mesh.agent("bob")
    bobs = await mesh.worker(bob)
    asked = await worker.ask(turn, bob)
    end, claimed = Endings.end, list[ClaimedTurn]()

    async def claim_first(self: Endings, ending: Any) -> bool:
        if ending.ended.turn_id == asked.turn_id and not claimed:
            claimed.extend(await bobs.claim())
        return await end(self, ending)

    monkeypatch.setattr(Endings, "end", claim_first)
    assert (await _cancel(ada, view.turn_id)).canceled == 2
    assert [each.turn_id for each in claimed] == [asked.turn_id]
    assert not await bobs.end(claimed[0], "too late")


async def test_what_a_process_began_to_cancel_is_completed_by_the_next(
    mesh: RelayMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, _, worker, turn, view = await _lead(mesh)
    bob, cid = await mesh.agent("bob"), await mesh.agent("cid")
    bobs = await mesh.worker(bob)
    asked = await worker.ask(turn, bob)
    further = await bobs.ask(await bobs.next(), cid)

    async def dies(*args: Any, **more: Any) -> int:
        raise HoplineError("unavailable", "the process is gone")

    with monkeypatch.context() as patched:
        patched.setattr(Cancels, "cascade", dies)
        assert isinstance(await attempt(_cancel(ada, view.turn_id)), HoplineError)
    assert (await _state(mesh, asked.turn_id)).status == pb.TURN_STATUS_RUNNING
    await mesh.reopen()
    for turn_id in (asked.turn_id, further.turn_id):
        assert (await _state(mesh, turn_id)).status == pb.TURN_STATUS_CANCELED
    assert not (await cid.take()).messages


async def test_the_next_process_cancels_also_what_a_turn_in_the_middle_left_going_when_it_ended(
    mesh: RelayMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, _, worker, turn, view = await _lead(mesh)
    bob, cid, dan = await mesh.agent("bob"), await mesh.agent("cid"), await mesh.agent("dan")
    bobs, cids = await mesh.worker(bob), await mesh.worker(cid)
    await worker.ask(turn, bob)
    middle = await bobs.next()
    await bobs.ask(middle, cid)
    lower = await cids.next()
    deep = await cids.ask(lower, dan, "a long job")
    other = await (await mesh.agent("eve")).ask(dan, "of another root")
    for each, at in ((cids, lower), (bobs, middle)):
        await each.end(at, "I have asked on")

    async def dies(*args: Any, **more: Any) -> int:
        raise HoplineError("unavailable", "the process is gone")

    with monkeypatch.context() as patched:
        patched.setattr(Cancels, "cascade", dies)
        assert isinstance(await attempt(_cancel(ada, view.turn_id)), HoplineError)
    assert (await _state(mesh, deep.turn_id)).status == pb.TURN_STATUS_QUEUED
    await mesh.reopen()
    assert (await _state(mesh, deep.turn_id)).status == pb.TURN_STATUS_CANCELED
    assert (await _state(mesh, other.turn_id)).status == pb.TURN_STATUS_QUEUED


async def test_a_worker_that_fails_its_turn_leaves_alone_what_it_asked_for_also_over_a_restart(
    mesh: RelayMesh,
) -> None:
    _, lead, worker, turn, _ = await _lead(mesh)
    bob = await mesh.agent("bob")
    await worker.ask(turn, bob)
    await worker.end(turn, failure="out of tokens")
    await mesh.reopen()
    asked = (await bob.take()).messages
    await bob.reply(asked[0].id, "still here")
    assert [m.body for m in (await lead.take()).messages] == ["still here"]


async def test_the_agent_that_waits_for_a_cancelled_turn_of_another_root_hears_of_it(mesh: RelayMesh) -> None:
    ada, _, worker, turn, view = await _lead(mesh)
    bob = await mesh.agent("bob")
    asking = asyncio.create_task(worker.ask(turn, bob, wait=50))
    bobs = await mesh.worker(bob)
    claimed: list[ClaimedTurn] = []
    while not claimed:
        claimed = await bobs.claim()
    assert (await _cancel(mesh.admin, claimed[0].turn_id)).canceled == 1
    assert (await asking).status == pb.TURN_STATUS_CANCELED
    # Who asked in the first place still waits, and gets its answer.
    await worker.end(turn, "bob was stopped")
    assert (await ada.check(view.turn_id)).reply == "bob was stopped"
