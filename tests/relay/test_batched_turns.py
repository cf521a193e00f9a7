"""Policy `batch_inbox`: a worker gets what waits in a session as one turn; each delivery ends by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hopline.registry.v1.agent_pb2 import REPLY_MODE_IMPLICIT
from hopline.relay.v1 import delegation_pb2
from hopline.relay.v1 import message_pb2 as pb
from hopline_relay.domain.batches import MAX_BATCH, MAX_BATCH_TEXT
from hopline_relay.turns import ClaimedTurn, TurnEnd

from tests.support.relay_mesh import Caller, RelayMesh, Worker, relay_mesh

pytestmark = pytest.mark.both_stores


@pytest.fixture
async def mesh(tmp_path: Path) -> AsyncIterator[RelayMesh]:
    async with relay_mesh(tmp_path) as opened:
        await opened.policy(batch_inbox=True, pair_budget="0")
        yield opened


def _ids(turn: ClaimedTurn) -> list[str]:
    return [message.id for message in turn.messages]


async def _states(mesh: RelayMesh, sent: list[pb.SendResponse]) -> list[str]:
    found = []
    for each in sent:
        message = next(m for m in await mesh.thread(each.thread_id) if m.id == each.message_id)
        state = pb.DeliveryState.Name(message.deliveries[0].state)
        found.append(state.removeprefix("DELIVERY_STATE_").lower())
    return found


async def _pair(mesh: RelayMesh, **fields: Any) -> tuple[Caller, Caller, Worker]:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob", **fields)
    return ada, bob, await mesh.worker(bob)


async def test_one_wake_is_one_turn_over_all_that_waits_in_the_session(mesh: RelayMesh) -> None:
    ada, bob, worker = await _pair(mesh)
    sent = [await ada.send(bob, text=f"part {number}") for number in range(5)]
    turn = await worker.next()
    assert _ids(turn) == [each.message_id for each in sent]
    assert not await worker.claim()
    await mesh.relay.turns.drained()
    assert await _states(mesh, sent) == ["taken"] * 5
    # Each delivery keeps a turn of its own, whose id is good for a look.
    for each in sent:
        assert (await ada.check(each.deliveries[0].turn_id)).status == pb.TURN_STATUS_RUNNING
    assert await worker.end(turn, "all read")
    assert await _states(mesh, sent) == ["done"] * 5
    for each in sent:
        assert (await ada.check(each.deliveries[0].turn_id)).status == pb.TURN_STATUS_COMPLETED
    await mesh.relay.admission.settled()
    usage = await mesh.usage(bob)
    assert (usage.inbox, usage.running) == (0, 0)
    assert not (await ada.take()).messages


async def test_without_the_policy_each_message_has_its_turn(mesh: RelayMesh) -> None:
    await mesh.policy(batch_inbox=False)
    ada, bob, worker = await _pair(mesh)
    sent = [await ada.send(bob) for _ in range(3)]
    for each in sent:
        turn = await worker.next()
        assert _ids(turn) == [each.message_id]
        await worker.end(turn)


async def test_a_batch_holds_one_place_and_one_run_slot(mesh: RelayMesh) -> None:
    await mesh.policy(concurrent_runs=1)
    ada, bob, worker = await _pair(mesh)
    for _ in range(4):
        await ada.send(bob)
    turn = await worker.next()
    await mesh.relay.admission.settled()
    assert (await mesh.usage(bob)).running == 1
    assert (await mesh.usage(bob)).inbox == 0
    await worker.end(turn)
    await mesh.relay.admission.settled()
    assert (await mesh.usage(bob)).running == 0


async def test_other_sessions_are_not_mixed_in_and_what_comes_later_is_a_batch_of_its_own(
    mesh: RelayMesh,
) -> None:
    ada, bob, worker = await _pair(mesh)
    cid = await mesh.agent("cid")
    first = [await ada.send(bob), await ada.send(bob)]
    others = [await cid.send(bob), await cid.send(bob)]
    turns = await worker.claim()
    assert [_ids(turn) for turn in turns] == [[s.message_id for s in first], [s.message_id for s in others]]
    later = [await ada.send(bob), await ada.send(bob)]
    for turn in turns:
        await worker.end(turn)
    assert _ids(await worker.next()) == [each.message_id for each in later]


async def test_a_batch_holds_one_question_which_the_final_message_answers(mesh: RelayMesh) -> None:
    ada, bob, worker = await _pair(mesh)
    before = await ada.send(bob, text="read this first")
    asked = await ada.ask(bob, "may I?")
    after = await ada.send(bob, text="by the way")
    second = await ada.ask(bob, "and this?")
    turn = await worker.next()
    assert _ids(turn) == [before.message_id, asked.message_id, after.message_id]
    await worker.end(turn, "you may")
    view = await ada.check(asked.turn_id)
    assert (view.status, view.reply) == (pb.TURN_STATUS_COMPLETED, "you may")
    assert (await ada.check(second.turn_id)).status == pb.TURN_STATUS_QUEUED
    assert await _states(mesh, [before, after]) == ["done", "done"]
    turn = await worker.next()
    await worker.end(turn, "that too")
    assert (await ada.check(second.turn_id)).reply == "that too"


async def test_an_agent_that_answers_by_reply_alone_gets_all_questions_at_once(mesh: RelayMesh) -> None:
    ada, bob, worker = await _pair(mesh, reply_mode=REPLY_MODE_IMPLICIT)
    views = [await ada.ask(bob, f"question {number}") for number in range(3)]
    turn = await worker.next()
    assert len(turn.messages) == 3
    for message in turn.messages[:2]:
        await bob.reply(message.id, f"to {message.body}")
    await worker.end(turn, "I answered two")
    assert [(await ada.check(view.turn_id)).reply for view in views[:2]] == ["to question 0", "to question 1"]
    left = await ada.check(views[2].turn_id)
    assert (left.status, left.error.code) == (pb.TURN_STATUS_FAILED, "ended_without_answer")


async def test_a_reply_within_a_batch_answers_its_message_alone(mesh: RelayMesh) -> None:
    ada, bob, worker = await _pair(mesh)
    sent = [await ada.send(bob) for _ in range(3)]
    turn = await worker.next()
    for each in (sent[0], sent[2]):
        await bob.reply(each.message_id, "noted")
    assert await _states(mesh, [sent[0], sent[2]]) == ["answered", "answered"]
    await bob.done(sent[1].message_id)
    assert await worker.end(turn, "done")
    assert await _states(mesh, sent) == ["answered", "done", "answered"]
    assert [m.body for m in (await ada.take()).messages] == ["noted", "noted"]


async def test_a_batch_is_as_deep_as_the_deepest_of_it_and_what_it_starts_is_deeper(mesh: RelayMesh) -> None:
    ada, bob, worker = await _pair(mesh)
    cid = await mesh.agent("cid")
    adas = await mesh.worker(ada)
    await ada.send(bob, text="shallow")
    await mesh.admin.send(ada)
    deep = await adas.next()
    await adas.send(deep, bob, text="deep")
    turn = await worker.next()
    assert [m.depth for m in turn.messages] == sorted(m.depth for m in turn.messages)
    assert turn.depth == turn.messages[-1].depth
    assert (await worker.send(turn, cid)).depth == turn.depth + 1


async def test_a_batch_is_bounded_by_count_and_by_size(mesh: RelayMesh) -> None:
    ada, bob, worker = await _pair(mesh)
    for number in range(MAX_BATCH + 3):
        await ada.send(bob, text=f"{number}")
    turn = await worker.next()
    assert [m.body for m in turn.messages] == [str(number) for number in range(MAX_BATCH)]
    await worker.end(turn)
    assert len((await worker.next()).messages) == 3
    eve = await mesh.agent("eve")
    size = 60_000
    for _ in range(8):
        await eve.send(bob, text="x" * size)
    turn = await worker.next()
    assert len(turn.messages) == MAX_BATCH_TEXT // size


async def test_a_batch_whose_worker_is_lost_is_run_again_as_one_and_its_last_attempts_alone(
    mesh: RelayMesh,
) -> None:
    ada, bob, worker = await _pair(mesh)
    sent = [await ada.send(bob) for _ in range(3)]
    first = await worker.next()
    await mesh.worker_lost(first.turn_id)
    assert await _states(mesh, sent) == ["queued"] * 3
    second = await worker.next()
    assert (_ids(second), second.attempt) == (_ids(first), 2)
    assert not await worker.end(first, "too late")
    await mesh.worker_lost(second.turn_id)
    for each in sent:
        turn = await worker.next()
        assert (_ids(turn), turn.attempt) == ([each.message_id], 3)
        await worker.end(turn, "at last")
    await mesh.relay.admission.settled()
    usage = await mesh.usage(bob)
    assert (usage.inbox, usage.running) == (0, 0)


async def test_a_batch_survives_a_restart_of_everything_in_its_workers_hands(mesh: RelayMesh) -> None:
    ada, bob, worker = await _pair(mesh)
    sent = [await ada.send(bob), await ada.send(bob)]
    asked = await ada.ask(bob)
    turn = await worker.next()
    await mesh.reopen()
    again = await mesh.worker(bob)
    assert await mesh.relay.turns.resume(mesh.workspace_id, bob.id, [turn.held], again.epoch) == [turn.held]
    await mesh.passes(20)
    await again.renew(turn.held)
    await mesh.passes(20)
    assert await again.end(turn, "kept")
    assert (await ada.check(asked.turn_id)).reply == "kept"
    assert await _states(mesh, sent) == ["done", "done"]


async def test_a_batch_of_a_worker_that_does_not_come_back_after_a_restart_is_queued_whole(
    mesh: RelayMesh,
) -> None:
    ada, bob, worker = await _pair(mesh)
    sent = [await ada.send(bob) for _ in range(3)]
    await worker.next()
    await mesh.close()
    mesh.clock.skip(3_000)
    await mesh.open()
    await mesh.passes(31)
    again = await mesh.worker(bob)
    assert _ids(await again.next()) == [each.message_id for each in sent]


async def test_a_batch_that_never_reached_its_worker_is_queued_whole(mesh: RelayMesh) -> None:
    ada, bob, worker = await _pair(mesh)
    sent = [await ada.send(bob) for _ in range(3)]
    turn = await worker.next()
    await mesh.relay.turns.give_back(mesh.workspace_id, bob.id, [turn.held], worker.epoch)
    again = await worker.next()
    assert (_ids(again), again.attempt) == ([each.message_id for each in sent], 1)


async def test_a_batch_that_fails_or_runs_too_long_fails_whole_and_tells_who_asked(mesh: RelayMesh) -> None:
    await mesh.policy(turn_seconds=60)
    ada, bob, worker = await _pair(mesh)
    sent = [await ada.send(bob), await ada.send(bob)]
    asked = await ada.ask(bob)
    await worker.end(await worker.next(), failure="no more tokens")
    assert (await ada.check(asked.turn_id)).error.message == "no more tokens"
    assert await _states(mesh, sent) == ["failed", "failed"]
    sent = [await ada.send(bob), await ada.send(bob)]
    turn = await worker.next()
    for _ in range(4):
        await mesh.passes(16)
        await worker.renew(turn.held)
    for each in sent:
        view = await ada.check(each.deliveries[0].turn_id)
        assert (view.status, view.error.code) == (pb.TURN_STATUS_FAILED, "deadline_exceeded")


@pytest.mark.parametrize("which", [0, 1], ids=["the first of it", "one that rides along"])
async def test_cancelling_one_of_a_batch_stops_the_run_and_the_rest_runs_again_without_it(
    mesh: RelayMesh, which: int
) -> None:
    ada, bob, worker = await _pair(mesh)
    sent = [await ada.send(bob) for _ in range(3)]
    turn = await worker.next()
    stopped: list[Any] = []
    mesh.relay.turns.on_cancel = lambda items: stopped.extend(held for _, _, held, _ in items)
    request = delegation_pb2.CancelRequest(turn_id=sent[which].deliveries[0].turn_id)
    answer = await ada.turns.Cancel(request)
    assert (answer.status, answer.canceled) == (pb.TURN_STATUS_CANCELED, 1)
    assert stopped == [turn.held]
    assert not await worker.end(turn, "too late")
    again = await worker.next()
    rest = [each for number, each in enumerate(sent) if number != which]
    assert (_ids(again), again.attempt) == ([each.message_id for each in rest], 2)
    await worker.end(again)
    assert await _states(mesh, rest) == ["done", "done"]
    await mesh.relay.admission.settled()
    usage = await mesh.usage(bob)
    assert (usage.inbox, usage.running) == (0, 0)


async def test_pausing_the_agent_ends_what_it_owes_and_leaves_the_messages_of_the_batch(
    mesh: RelayMesh,
) -> None:
    ada, bob, worker = await _pair(mesh)
    first, asked, last = await ada.send(bob), await ada.ask(bob), await ada.send(bob)
    await worker.next()
    await mesh.pause(bob)
    assert (await ada.check(asked.turn_id)).error.code == "agent_paused"
    await mesh.resume(bob)
    left = {message.id for turn in await worker.claim() for message in turn.messages}
    assert left <= {first.message_id, last.message_id}
    assert last.message_id in left


async def test_a_message_whose_sender_lost_its_reach_is_left_out_of_the_batch(mesh: RelayMesh) -> None:
    yan = await mesh.person("yan")
    ada, cid = await mesh.agent("ada", owner_id=yan.id), await mesh.agent("cid")
    bob = await mesh.agent("bob")
    worker = await mesh.worker(bob)
    await mesh.grant("yan", 2, "bob")
    # Replies of several come into the session that asked them.
    await mesh.admin.send(bob)
    asking = await worker.next()
    round_ = await worker.send(asking, ada, cid, text="who?")
    await ada.reply(round_.message_id, "ada")
    await cid.reply(round_.message_id, "cid")
    await worker.end(asking)
    turn = await worker.next()
    assert [m.body for m in turn.messages] == ["ada", "cid"]
    assert "ada" in turn.sender_display
    assert "cid" in turn.sender_display
    await worker.end(turn)
    sent = [await ada.send(bob), await ada.send(bob)]
    await mesh.grant("yan", 1, "bob")
    for _ in sent:
        assert not await worker.claim()
    assert await _states(mesh, sent) == ["withdrawn", "withdrawn"]


async def test_a_pull_waits_for_a_claim_and_takes_what_that_leaves(
    mesh: RelayMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, bob, worker = await _pair(mesh)
    sent = [await ada.send(bob) for _ in range(3)]
    admission, claims = mesh.relay.admission, mesh.relay.inbox._claims
    begin, released = admission.begin, claims.released
    pulls: list[asyncio.Task[Any]] = []
    waits = asyncio.Event()

    async def and_pull(items: Any) -> list[bool]:
        if not pulls:
            pulls.append(asyncio.create_task(bob.take(limit=1)))
            await waits.wait()
        return await begin(items)

    async def about_to_wait(turn_ids: set[str]) -> None:
        if pulls:
            waits.set()
        await released(turn_ids)

    monkeypatch.setattr(admission, "begin", and_pull)
    monkeypatch.setattr(claims, "released", about_to_wait)
    claimed = [message_id for turn in await worker.claim() for message_id in _ids(turn)]
    taken = [message.id for message in (await pulls[0]).messages]
    assert sorted(claimed + taken) == sorted(each.message_id for each in sent)
    assert (await mesh.usage(bob)).inbox == 0


async def test_a_message_pulled_from_within_a_batch_goes_on_beside_it(mesh: RelayMesh) -> None:
    ada, bob, worker = await _pair(mesh)
    cid = await mesh.agent("cid")
    for _ in range(2):
        await ada.send(bob)
    turn = await worker.next()
    other = await cid.ask(bob)
    request = pb.TakeInboxRequest()
    principal = await worker.principal()
    taken = await mesh.relay.handlers.take_inbox(principal, request, turn_id=turn.turn_id)
    assert [m.id for m in taken.messages] == [other.message_id]
    await bob.reply(other.message_id, "yes")
    assert (await cid.check(other.turn_id)).reply == "yes"
    assert await worker.end(turn, "read")
    later = await ada.send(bob)
    assert _ids(await worker.next()) == [later.message_id]


async def test_a_worker_that_stops_a_batch_ends_what_each_of_its_turns_has_asked_for(mesh: RelayMesh) -> None:
    ada, bob, worker = await _pair(mesh)
    cid = await mesh.agent("cid")
    sent = [await ada.send(bob) for _ in range(2)]
    turn = await worker.next()
    riding = sent[1].deliveries[0].turn_id
    assert riding != turn.turn_id
    request = pb.AskRequest(agent=cid.id, text="well?", wait_seconds=0)
    asked = await mesh.relay.handlers.ask(await worker.principal(), request, turn_id=riding)
    stopped = TurnEnd(mesh.workspace_id, bob.id, turn.held, worker.epoch, canceled=True)
    assert await mesh.relay.turns.end(stopped)
    view = await bob.check(asked.turn.turn_id)
    assert view.status == pb.TURN_STATUS_CANCELED
