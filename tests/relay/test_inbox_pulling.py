"""Agents that pull: taking, settling, leases, depth."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hopline.relay.v1 import delegation_pb2, session_pb2
from hopline.relay.v1 import message_pb2 as pb

from tests.support.relay_mesh import Caller, RelayMesh, refusal

pytestmark = pytest.mark.both_stores


async def _turn(mesh: RelayMesh, turn_id: str) -> delegation_pb2.Turn:
    answer = await mesh.admin.turns.GetTurn(delegation_pb2.GetTurnRequest(turn_id=turn_id))
    turn: delegation_pb2.Turn = answer.turn
    return turn


async def _depth(agent: Caller) -> int:
    answer = await agent.sessions.GetContext(session_pb2.GetContextRequest())
    return int(answer.depth)


async def test_what_is_taken_together_is_one_turn_until_each_is_settled(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    first, second = await ada.send(bob), await ada.send(bob)
    taken = await bob.take()
    assert [m.id for m in taken.messages] == [first.message_id, second.message_id]
    assert taken.turn_id == first.deliveries[0].turn_id
    context = await bob.sessions.GetContext(session_pb2.GetContextRequest())
    assert (context.session_id, context.turn_id, context.depth) == (taken.session_id, taken.turn_id, 1)
    assert await bob.done(first.message_id) == pb.DELIVERY_STATE_DONE
    await bob.reply(second.message_id)
    for sent, state in ((first, pb.DELIVERY_STATE_DONE), (second, pb.DELIVERY_STATE_ANSWERED)):
        turn_id = sent.deliveries[0].turn_id
        assert (await ada.check(turn_id)).status == pb.TURN_STATUS_COMPLETED
        message = (await mesh.thread(sent.thread_id))[0]
        assert message.deliveries[0].state == state
    context = await bob.sessions.GetContext(session_pb2.GetContextRequest())
    assert not context.turn_id


async def test_a_second_pull_joins_the_turn_that_runs(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await ada.send(bob)
    first = await bob.take()
    await ada.send(bob)
    second = await bob.take()
    assert (second.turn_id, second.session_id) == (first.turn_id, first.session_id)


async def test_a_pull_takes_as_many_as_it_asks_for_and_says_what_remains(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    for _ in range(3):
        await ada.send(bob)
    taken = await bob.take(limit=2)
    assert (len(taken.messages), taken.remaining) == (2, 1)


async def test_a_pull_waits_for_a_first_message(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    waiting = asyncio.create_task(bob.take(wait=50))
    await mesh.clock.settle(100)
    await ada.send(bob, text="at last")
    assert [message.body for message in (await waiting).messages] == ["at last"]


async def test_a_pull_that_waited_in_vain_returns_nothing(mesh: RelayMesh) -> None:
    bob = await mesh.agent("bob")
    waiting = asyncio.create_task(bob.take(wait=5))
    while mesh.clock.sleepers < 3 or waiting.done():
        await mesh.clock.settle()
    for _ in range(60):
        await mesh.clock.advance(0.5)
        if waiting.done():
            break
    answer = await waiting
    assert (list(answer.messages), answer.turn_id) == ([], "")


async def test_two_pulls_at_once_share_the_messages_without_taking_one_twice(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    sent = {(await ada.send(bob)).message_id for _ in range(10)}
    pulls = await asyncio.gather(*(bob.take(limit=3) for _ in range(6)))
    taken = [message.id for pull in pulls for message in pull.messages]
    assert len(taken) == len(set(taken))
    rest = [message.id for message in (await bob.take()).messages]
    assert set(taken) | set(rest) == sent


async def test_reading_a_thread_takes_what_was_unread_in_it(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    sent = await ada.send(bob)
    # People look without taking.
    assert (await mesh.thread(sent.thread_id))[0].deliveries[0].state == pb.DELIVERY_STATE_QUEUED
    peeked = await mesh.admin.messages.PeekInbox(pb.PeekInboxRequest(agent="bob"))
    assert [message.id for message in peeked.messages] == [sent.message_id]
    assert (await mesh.thread(sent.thread_id, bob))[0].deliveries[0].state == pb.DELIVERY_STATE_TAKEN
    assert not (await bob.take()).messages
    assert await _depth(bob) == 1


async def test_reading_a_session_takes_what_was_unread_in_it(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    sent = await ada.send(bob)
    request = session_pb2.ReadSessionRequest(session_id=sent.deliveries[0].session_id)
    entries = (await bob.sessions.ReadSession(request)).entries
    assert [(entry.kind, entry.text) for entry in entries] == [("message_in", "hello")]
    assert not (await bob.take()).messages


async def test_what_is_taken_and_owed_comes_back_three_times_and_then_fails(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    plain = await ada.send(bob)
    asked = await ada.ask(bob)
    for attempt in (1, 2, 3):
        taken = await bob.take()
        expected = {asked.message_id} | ({plain.message_id} if attempt == 1 else set())
        assert {message.id for message in taken.messages} == expected
        assert (await _turn(mesh, asked.turn_id)).attempt == attempt
        await mesh.skip(600)
        await mesh.relay.sweep.due()
    assert not (await bob.take()).messages
    checked = await ada.check(asked.turn_id)
    assert (checked.status, checked.error.code) == (pb.TURN_STATUS_FAILED, "ended_without_answer")
    assert (await ada.check(plain.deliveries[0].turn_id)).status == pb.TURN_STATUS_COMPLETED
    states = [(await mesh.thread(sent.thread_id))[0].deliveries[0].state for sent in (plain, asked)]
    assert states == [pb.DELIVERY_STATE_DONE, pb.DELIVERY_STATE_DEAD]


async def test_any_call_of_the_agent_renews_its_lease(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    asked = await ada.ask(bob)
    await bob.take()
    for _ in range(3):
        await mesh.skip(500)
        await bob.take()
        await mesh.relay.inbox.drained()
        await mesh.relay.sweep.due()
    assert (await _turn(mesh, asked.turn_id)).status == pb.TURN_STATUS_RUNNING
    await bob.reply(asked.message_id, "slow but sure")
    assert (await ada.check(asked.turn_id)).reply == "slow but sure"


async def test_a_pulling_agent_cannot_reset_its_depth_by_finishing(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await mesh.policy(causality_window_seconds=600)
    sent = await ada.send(bob)
    await bob.take()
    assert (await bob.send(ada)).depth == 2
    await bob.done(sent.message_id)
    await mesh.skip(598)
    assert (await bob.send(ada)).depth == 2
    assert await _depth(bob) == 1
    await mesh.skip(3)
    assert (await bob.send(ada)).depth == 1
    assert await _depth(bob) == 0


async def test_a_pull_runs_at_the_deepest_depth_among_what_it_took(mesh: RelayMesh) -> None:
    ada, bob, cid = await mesh.agent("ada"), await mesh.agent("bob"), await mesh.agent("cid")
    await ada.send(bob)
    await bob.take()
    await bob.send(cid)
    await ada.send(cid)
    assert sorted(message.depth for message in (await cid.take()).messages) == [1, 2]
    assert (await cid.send(ada)).depth == 3


async def test_done_on_an_ask_tells_who_asked(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    asked = await ada.ask(bob)
    await bob.take()
    assert await bob.done(asked.message_id) == pb.DELIVERY_STATE_DONE
    assert await bob.done(asked.message_id) == pb.DELIVERY_STATE_DONE
    assert (await ada.check(asked.turn_id)).error.code == "ended_without_answer"


async def test_done_in_a_turn_that_a_worker_runs_silences_its_final_message(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    asked = await ada.ask(bob)
    worker = await mesh.worker(bob)
    turn = await worker.next()
    assert await bob.done(asked.message_id) == pb.DELIVERY_STATE_DONE
    assert await worker.end(turn, "never mind me")
    assert (await ada.check(asked.turn_id)).error.code == "ended_without_answer"


@pytest.mark.parametrize("call", ["done", "reply"])
async def test_a_message_of_somebody_else_is_not_found(mesh: RelayMesh, call: str) -> None:
    ada, bob, eve = await mesh.agent("ada"), await mesh.agent("bob"), await mesh.agent("eve")
    sent = await ada.send(bob)
    hidden = await refusal(getattr(eve, call)(sent.message_id))
    unknown = await refusal(getattr(eve, call)("msg_nothing"))
    assert hidden.reason == unknown.reason == "not_found"
    assert hidden.message == unknown.message.replace("msg_nothing", sent.message_id)


async def test_a_message_whose_sender_lost_its_reach_is_withdrawn(mesh: RelayMesh) -> None:
    yan = await mesh.person("yan")
    ada = await mesh.agent("ada", owner_id=yan.id)
    bob = await mesh.agent("bob")
    await mesh.grant("yan", 2, "bob")
    sent = await ada.send(bob)
    asked = await ada.ask(bob)
    await mesh.grant("yan", 1, "bob")
    assert not (await bob.take()).messages
    states = {(await mesh.thread(each.thread_id))[0].deliveries[0].state for each in (sent, asked)}
    assert states == {pb.DELIVERY_STATE_WITHDRAWN}
    assert (await ada.check(asked.turn_id)).status == pb.TURN_STATUS_CANCELED


async def test_messages_pulled_within_a_workers_turn_are_let_go_with_it(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(bob)
    await ada.send(bob)
    turn = await worker.next()
    asked = await ada.ask(bob)
    taken = await bob.take(caller_session_id=turn.session_id)
    assert (taken.turn_id, taken.session_id) == (turn.turn_id, turn.session_id)
    await worker.end(turn, "")
    await mesh.relay.sweep.due()
    assert (await _turn(mesh, asked.turn_id)).status == pb.TURN_STATUS_QUEUED


async def test_a_session_is_not_free_while_the_turn_runs_from_within_which_messages_were_pulled(
    mesh: RelayMesh,
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(bob)
    await ada.ask(bob, "the work")
    running = await worker.next()
    pulled = (await ada.send(bob, text="by the way")).message_id
    assert [each.id for each in (await bob.take(caller_session_id=running.session_id)).messages] == [pulled]
    await bob.reply(pulled, caller_session_id=running.session_id)
    await ada.ask(bob, "and another", session_id=running.session_id)
    assert not await worker.claim()
    await worker.end(running, answer="done")
    assert (await worker.next()).session_id == running.session_id


async def test_a_pull_whose_caller_goes_away_half_way_counts_as_running_only_until_its_lease_ends(
    mesh: RelayMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await ada.send(bob)
    begin, begun, go_on = mesh.relay.admission.begin, asyncio.Event(), asyncio.Event()

    async def slow(items: Any) -> Any:
        started = await begin(items)
        begun.set()
        await go_on.wait()
        return started

    monkeypatch.setattr(mesh.relay.admission, "begin", slow)
    pull = asyncio.create_task(bob.take())
    await begun.wait()
    pull.cancel()
    await asyncio.wait({pull})
    go_on.set()
    await mesh.relay.inbox.drained()
    for _ in range(2):  # the lease, then the window in which what has ended still counts
        await mesh.skip(601)
        await mesh.relay.sweep.due()
    await mesh.relay.admission.settled()
    assert (await bob.send(ada)).depth == 1


async def test_a_pull_that_crosses_the_end_of_its_turn_is_one_of_its_own(
    mesh: RelayMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(bob)
    await ada.send(bob)
    turn = await worker.next()
    pulled = (await ada.send(bob)).message_id
    begin = mesh.relay.admission.begin

    async def late(items: Any) -> Any:
        monkeypatch.setattr(mesh.relay.admission, "begin", begin)
        await worker.end(turn, answer="done")
        return await begin(items)

    monkeypatch.setattr(mesh.relay.admission, "begin", late)
    taken = await bob.take(caller_session_id=turn.session_id)
    assert taken.turn_id != turn.turn_id
    await bob.done(pulled)
    await ada.ask(bob, session_id=turn.session_id)
    assert (await worker.next()).session_id == turn.session_id


async def test_pulls_at_once_in_two_sessions_leave_both_free_when_their_messages_are_settled(
    mesh: RelayMesh,
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    asked = await ada.ask(bob)
    first = asked.session_id
    sent = [(await ada.send(bob)).message_id for _ in range(2)]
    pulls = await asyncio.gather(bob.take(limit=1, caller_session_id=first), bob.take())
    taken = [message.id for pull in pulls for message in pull.messages]
    assert sorted(taken) == sorted([asked.message_id, *sent])
    for message_id in (asked.message_id, *sent):
        await bob.done(message_id)
    worker = await mesh.worker(bob)
    await ada.ask(bob, session_id=first)
    assert (await worker.next()).session_id == first
