"""Agents ask their owners: who gets the question, how the call waits, and how the answer comes back."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hopline.relay.v1 import escalation_pb2 as esc
from hopline.relay.v1 import message_pb2 as pb
from hopline_relay.turns import ClaimedTurn
from hopline_rpc.errors import HoplineError

from tests.support.owners import (
    ANSWERED,
    PENDING,
    answer,
    ask_owner,
    ask_within,
    listed,
    look,
    waits,
)
from tests.support.relay_mesh import RelayMesh, Worker, attempt, refusal

REQUEST = "6f9619ff-8b86-d011-b42d-00c04fc964ff"
OTHER = "6f9619ff-8b86-d011-b42d-00c04fc964fe"


async def _next(worker: Worker) -> ClaimedTurn:
    """Claim one turn as soon as there is one."""
    for _ in range(2000):
        if turns := await worker.claim(1):
            return turns[0]
        await asyncio.sleep(0.001)
    raise AssertionError("no turn")


async def _lost_and_claimed_again(mesh: RelayMesh, worker: Worker, turn: ClaimedTurn) -> ClaimedTurn:
    """Let a worker be lost; on a machine that stood still meanwhile its lease is renewed first."""
    for _ in range(10):
        await mesh.passes(31)
        for claimed in await worker.claim():
            if claimed.turn_id == turn.turn_id:
                return claimed
    raise AssertionError("the turn is not queued again")


async def _by_the_clock(mesh: RelayMesh, call: asyncio.Task[Any]) -> None:
    """Let time pass until a call has ended: on a busy machine it begins to wait late."""
    for _ in range(200):
        if call.done():
            return
        await mesh.clock.advance(1)
    raise AssertionError("the call goes on")


async def test_an_answer_comes_back_to_the_call_that_waits(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    asking = asyncio.create_task(ask_owner(ada, wait=50))
    identifier = await waits(mesh, ada)
    [pending] = await listed(mesh.admin)
    assert (pending.id, pending.question, pending.agent.name) == (identifier, "Deploy now?", "ada")
    assert (pending.owner.name, pending.status) == ("admin", PENDING)
    assert (await answer(mesh.admin, identifier, "yes, go")).status == ANSWERED
    asked = await asking
    assert (asked.id, asked.status, asked.answer) == (identifier, ANSWERED, "yes, go")
    assert asked.ended_by.name == "admin"
    # Nobody is woken by an answer that was handed over, and nothing is pending any more.
    assert not (await ada.take()).messages
    assert await listed(mesh.admin) == []
    assert [each.status for each in await listed(mesh.admin, all=True)] == [ANSWERED]


async def test_a_wait_that_ends_leaves_the_question_and_its_answer_wakes_the_session_that_asked(
    mesh: RelayMesh,
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    asked = await ada.ask(bob)
    worker = await mesh.worker(bob)
    turn = await worker.next()
    asking = asyncio.create_task(ask_within(worker, turn, "Which one?", wait=20))
    identifier = await waits(mesh, bob)
    await _by_the_clock(mesh, asking)
    found = await asking
    assert (found.id, found.status, found.answer) == (identifier, PENDING, "")
    assert (found.session_id, found.turn_id, found.depth) == (turn.session_id, turn.turn_id, 1)
    await worker.end(turn, "later")
    await answer(mesh.admin, identifier, "the blue one")
    woken = await worker.next()
    assert (woken.session_id, woken.cause, woken.depth) == (turn.session_id, "owner_answer", 1)
    assert woken.root_id == turn.root_id
    [message] = woken.messages
    assert (message.body, message.escalation_id, getattr(message, "from").name) == (
        "the blue one",
        identifier,
        "admin",
    )
    about = json.loads(message.payload_json)
    assert (about["question"], about["status"], about["escalation_id"]) == (
        "Which one?",
        "answered",
        identifier,
    )
    thread = await mesh.thread(found.thread_id)
    assert [(each.seq, each.body) for each in thread] == [(1, "Which one?"), (2, "the blue one")]
    assert (await ada.check(asked.turn_id)).reply == "later"


async def test_the_peer_that_waits_sees_that_its_question_waits_for_the_owner(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(bob)
    waiting = asyncio.create_task(ada.ask(bob, wait=30))
    turn = await _next(worker)
    asking = asyncio.create_task(ask_within(worker, turn, wait=50))
    identifier = await waits(mesh, bob)
    assert (await ada.check(turn.turn_id)).status == pb.TURN_STATUS_WAITING_FOR_OWNER
    await mesh.clock.advance(30)  # the peer's wait is over, the agent's own is not
    assert (await waiting).status == pb.TURN_STATUS_WAITING_FOR_OWNER
    # Nothing of the question itself is the peer's to know.
    assert [message.body for message in (await ada.take()).messages] == []
    assert (await refusal(look(ada, identifier))).reason == "not_found"
    await answer(mesh.admin, identifier)
    assert (await asking).status == ANSWERED
    assert (await ada.check(turn.turn_id)).status == pb.TURN_STATUS_RUNNING
    await worker.end(turn, "so be it")
    assert (await ada.check(turn.turn_id)).reply == "so be it"


async def test_a_turn_that_waits_for_its_owner_gives_its_run_slot_to_another_and_takes_it_back(
    mesh: RelayMesh,
) -> None:
    ada, bob, cid = await mesh.agent("ada"), await mesh.agent("bob"), await mesh.agent("cid")
    await mesh.policy(concurrent_runs=1)
    worker, other = await mesh.worker(bob), await mesh.worker(cid)
    await ada.send(bob)
    turn = await worker.next()
    await ada.send(cid)
    assert not await other.claim()
    asking = asyncio.create_task(ask_within(worker, turn, wait=50))
    identifier = await waits(mesh, bob)
    second = await _next(other)
    await answer(mesh.admin, identifier)
    assert (await asking).status == ANSWERED
    await mesh.relay.admission.settled()
    # Both run now; a new start waits until there is room for it.
    await ada.send(cid)
    await other.end(second, "")
    assert not await other.claim()
    await worker.end(turn, "")
    assert len(await other.claim()) == 1


async def test_an_agent_that_pulls_asks_from_its_inbox_and_is_woken_there(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    asked = await ada.ask(bob)
    taken = await bob.take()
    pending = await ask_owner(bob, "Is it so?")
    assert (pending.depth, pending.session_id) == (1, taken.session_id)
    assert (await ada.check(asked.turn_id)).status == pb.TURN_STATUS_WAITING_FOR_OWNER
    await answer(mesh.admin, pending.id, "it is")
    assert (await ada.check(asked.turn_id)).status == pb.TURN_STATUS_RUNNING
    woken = await bob.take()
    assert [(message.body, message.depth) for message in woken.messages] == [("it is", 1)]
    await bob.reply(taken.messages[0].id, "it is so")
    assert (await ada.check(asked.turn_id)).reply == "it is so"


async def test_a_question_outside_any_turn_has_a_root_of_its_own(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    pending = await ask_owner(ada)
    assert (pending.depth, pending.turn_id) == (0, "")
    await answer(mesh.admin, pending.id)
    [message] = (await ada.take()).messages
    assert message.depth == 0


async def test_a_question_soon_after_a_turn_keeps_its_depth(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await ada.ask(bob)
    [message] = (await bob.take()).messages
    await bob.reply(message.id)
    assert (await ask_owner(bob, "at once")).depth == 1
    await mesh.skip(601)
    assert (await ask_owner(bob, "long after")).depth == 0


async def test_looking_takes_the_answer_and_drops_the_wake(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    pending = await ask_owner(ada)
    assert (await look(ada, pending.id)).status == PENDING
    await answer(mesh.admin, pending.id, "go")
    assert (await look(ada, pending.id)).answer == "go"
    assert not (await ada.take()).messages
    assert (await look(ada, pending.id)).answer == "go"


async def test_the_same_question_again_goes_on_waiting_for_the_one_that_is_pending(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    first = await ask_owner(ada, "Which?", options=["a", "b"])
    again = asyncio.create_task(ask_owner(ada, "Which?", wait=50, options=["a", "b"]))
    assert await waits(mesh, ada) == first.id
    other = await ask_owner(ada, "Which?", options=["a", "c"])
    assert other.id != first.id
    await answer(mesh.admin, first.id, "b")
    assert ((await again).id, (await again).answer) == (first.id, "b")
    # Once it is answered, the same words ask anew.
    assert (await ask_owner(ada, "Which?", options=["a", "b"])).id not in (first.id, other.id)


async def test_the_same_request_is_one_question_also_many_times_at_once(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    asked = await asyncio.gather(*(ask_owner(ada, request_id=REQUEST) for _ in range(20)))
    assert len({each.id for each in asked}) == 1
    await answer(mesh.admin, asked[0].id, "once")
    repeated = await ask_owner(ada, request_id=REQUEST)
    assert (repeated.id, repeated.answer) == (asked[0].id, "once")
    assert (await refusal(ask_owner(ada, "Another?", request_id=REQUEST))).reason == "request_id_conflict"
    assert (await refusal(ada.send("nobody", request_id=REQUEST))).reason == "request_id_conflict"
    assert len(await mesh.events("escalation.asked")) == 1


async def test_a_request_that_joined_a_pending_question_finds_it_again(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    first = await ask_owner(ada, request_id=REQUEST)
    joined = await ask_owner(ada, request_id=OTHER)
    await answer(mesh.admin, first.id)
    assert joined.id == first.id == (await ask_owner(ada, request_id=OTHER)).id


async def test_a_second_attempt_of_a_turn_gets_the_answer_that_the_first_one_asked_for(
    mesh: RelayMesh,
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await ada.ask(bob)
    worker = await mesh.worker(bob)
    turn = await worker.next()
    pending = await ask_within(worker, turn)
    await answer(mesh.admin, pending.id, "yes")
    again = await _lost_and_claimed_again(mesh, worker, turn)
    assert again.attempt == 2
    found = await ask_within(worker, again)
    assert (found.id, found.answer) == (pending.id, "yes")
    assert (await ask_within(worker, again, "And this?")).id != pending.id


@pytest.mark.parametrize(
    ("question", "field"),
    [("", "question"), ("x" * 8193, "question"), ("é" * 4097, "question")],
)
async def test_a_question_of_no_or_too_many_bytes_is_refused(
    mesh: RelayMesh, question: str, field: str
) -> None:
    error = await refusal(ask_owner(await mesh.agent("ada"), question))
    assert error.reason == "invalid_argument"
    assert field in error.message


async def test_a_question_and_its_options_may_be_as_long_as_they_may(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    options = [f"{number:0>200}" for number in range(10)]
    pending = await ask_owner(ada, "x" * 8192, options=options)
    assert (await answer(mesh.admin, pending.id, options[9])).answer == options[9]
    [message] = (await ada.take()).messages
    assert json.loads(message.payload_json)["options"] == options
    for bad in (["a", "a"], ["a" * 201], [""], [str(number) for number in range(11)]):
        assert (await refusal(ask_owner(ada, options=bad))).reason == "invalid_argument"


async def test_so_many_questions_may_be_pending_and_no_more(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    asked = [await ask_owner(ada, f"question {number}") for number in range(5)]
    error = await refusal(ask_owner(ada, "one more"))
    assert (error.reason, error.details["limit"]) == ("limit_reached", 5)
    assert "this session has 5 questions pending" in error.message
    # What is pending is no new question, and an answer makes room.
    assert (await ask_owner(ada, "question 0")).id == asked[0].id
    await answer(mesh.admin, asked[0].id)
    assert (await ask_owner(ada, "one more")).status == PENDING


async def test_of_many_questions_at_once_no_more_are_pending_than_may_be(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    outcomes = await asyncio.gather(*(attempt(ask_owner(ada, f"question {n}")) for n in range(20)))
    refused = [each for each in outcomes if isinstance(each, HoplineError)]
    assert len(refused) == 15
    assert {error.reason for error in refused} == {"limit_reached"}
    assert len(await listed(mesh.admin)) == 5


async def test_all_sessions_of_an_agent_together_have_a_limit_too(mesh: RelayMesh) -> None:
    bob = await mesh.agent("bob")
    worker = await mesh.worker(bob)
    for number in range(5):
        peer = await mesh.agent(f"peer {number}")
        await peer.ask(bob)
    turns = await worker.claim()
    for turn in turns[:4]:
        for number in range(5):
            await ask_within(worker, turn, f"question {number}")
    error = await refusal(ask_within(worker, turns[4]))
    assert (error.reason, error.details["limit"], error.details["used"]) == ("limit_reached", 20, 20)


async def test_a_paused_agent_asks_nothing(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    pending = await ask_owner(ada)
    await mesh.pause(ada)
    assert (await refusal(ask_owner(ada))).reason == "agent_paused"
    assert (await refusal(look(ada, pending.id))).reason == "agent_paused"


async def test_a_caller_that_drops_ends_the_wait_and_not_the_question(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    asking = asyncio.create_task(ask_owner(ada, wait=50))
    identifier = await waits(mesh, ada)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await answer(mesh.admin, identifier, "for you")
    assert [message.body for message in (await ada.take()).messages] == ["for you"]


async def test_an_answer_that_crosses_the_end_of_its_wait_is_there_once(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    for number in range(8):
        asking = asyncio.create_task(ask_owner(ada, f"question {number}", wait=5))
        identifier = await waits(mesh, ada)
        answering = asyncio.create_task(answer(mesh.admin, identifier, f"answer {number}"))
        for _ in range(number * 3):
            await asyncio.sleep(0)
        await _by_the_clock(mesh, asking)
        found = await asking
        await answering
        await mesh.relay._hand_over.drained()
        left = [message.body for message in (await ada.take()).messages]
        handed = [found.answer] if found.status == ANSWERED else []
        assert handed + left == [f"answer {number}"]


async def test_what_a_call_has_answered_and_its_caller_never_got_is_delivered_as_a_message(
    mesh: RelayMesh,
) -> None:
    ada = await mesh.agent("ada")
    pending = await ask_owner(ada)
    await answer(mesh.admin, pending.id, "hear me")
    found = await look(ada, pending.id)
    principal = await mesh.relay.authenticator.principal(ada.token)
    mesh.relay.handlers.lost(principal, esc.Escalation(id=found.id))
    mesh.relay.handlers.lost(principal, esc.Escalation(id=found.id))
    await mesh.relay._hand_over.drained()
    assert [message.body for message in (await ada.take()).messages] == ["hear me"]
    assert not (await ada.take()).messages


async def test_neither_question_nor_answer_is_charged_to_anybody(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    await mesh.policy(sent_per_day=1, received_per_day=1, messages_per_thread=1, inbox_backlog=1)
    pending = await ask_owner(ada)
    await answer(mesh.admin, pending.id)
    used = await mesh.usage(ada)
    assert (used.sent_today, used.received_today) == (0, 0)
    await mesh.forget_counters(99)
    await ada.take()
    used = await mesh.usage(ada)
    assert (used.sent_today, used.received_today) == (0, 0)


async def test_a_person_cannot_reply_past_the_question(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    pending = await ask_owner(ada)
    [question] = await mesh.thread(pending.thread_id)
    error = await refusal(mesh.admin.reply(question.id, "yes"))
    assert error.reason == "failed_precondition"
    assert f"hopline answer {pending.id}" in error.message
    assert (await look(ada, pending.id)).status == PENDING
