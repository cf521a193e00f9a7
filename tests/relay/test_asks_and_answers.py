"""Asking: the answer, its absence, its delay, and what a restart does to all of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hopline.relay.v1 import message_pb2 as pb
from hopline.relay.v1 import session_pb2
from hopline_relay.asks import Asks

from tests.support.relay_mesh import Caller, RelayMesh, Worker, refusal, until

pytestmark = pytest.mark.both_stores

KIB = 1024


async def _pair(mesh: RelayMesh) -> tuple[Caller, Caller, Worker]:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    return ada, bob, await mesh.worker(bob)


async def _queued(mesh: RelayMesh, worker: Worker) -> None:
    """Wait until something is queued for a worker's agent."""
    seen = asyncio.Event()
    mesh.relay.signals.on_claimable(lambda agents: seen.set() if worker.agent.id in str(agents) else None)
    await seen.wait()


async def test_an_ask_waits_for_the_final_message_of_the_turn(mesh: RelayMesh) -> None:
    ada, bob, worker = await _pair(mesh)
    asking = asyncio.create_task(ada.ask(bob, "what is up?", wait=50))
    await _queued(mesh, worker)
    turn = await worker.next()
    assert turn.cause == "ask"
    assert turn.depth == 1
    assert turn.messages[0].reply_expected
    assert await worker.end(turn, "not much")
    view = await asking
    assert view.status == pb.TURN_STATUS_COMPLETED
    assert view.has_reply
    assert (view.reply, view.turn_id, view.session_id) == ("not much", turn.turn_id, turn.session_id)
    assert [message.body for message in await mesh.thread(view.thread_id)] == ["what is up?", "not much"]
    # Nobody is woken by an answer that was handed over.
    assert not (await ada.take()).messages


async def test_a_look_without_waiting_says_queued_then_running_then_the_answer(mesh: RelayMesh) -> None:
    ada, bob, worker = await _pair(mesh)
    view = await ada.ask(bob)
    assert view.status == pb.TURN_STATUS_QUEUED
    assert (await ada.check(view.turn_id)).status == pb.TURN_STATUS_QUEUED
    turn = await worker.next()
    assert (await ada.check(view.turn_id)).status == pb.TURN_STATUS_RUNNING
    await worker.end(turn, "yes")
    by_session = await ada.check(session_id=view.session_id)
    assert (by_session.status, by_session.reply) == (pb.TURN_STATUS_COMPLETED, "yes")


async def test_an_answer_that_comes_after_the_wait_arrives_as_a_message_and_wakes(mesh: RelayMesh) -> None:
    ada, bob, worker = await _pair(mesh)
    asking = asyncio.create_task(ada.ask(bob, wait=20))
    await _queued(mesh, worker)
    turn = await worker.next()
    await mesh.clock.advance(20)
    view = await asking
    assert view.status == pb.TURN_STATUS_RUNNING
    await worker.end(turn, "late but here")
    taken = await ada.take()
    assert [message.body for message in taken.messages] == ["late but here"]
    assert taken.messages[0].depth == 0


async def test_a_check_hands_a_late_answer_over_and_drops_the_wake(mesh: RelayMesh) -> None:
    ada, bob, worker = await _pair(mesh)
    view = await ada.ask(bob)
    await worker.end(await worker.next(), "here")
    assert (await ada.check(view.turn_id)).reply == "here"
    assert not (await ada.take()).messages
    assert (await ada.check(view.turn_id)).reply == "here"


async def test_an_answer_that_comes_as_a_check_gives_up_is_handed_over_once(
    mesh: RelayMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, bob, worker = await _pair(mesh)
    view = await ada.ask(bob)
    turn = await worker.next()
    wait_again = Asks._wait_again

    async def and_then_it_comes(*given: Any) -> Any:
        outcome = await wait_again(*given)
        await worker.end(turn, "on the edge")
        return outcome

    monkeypatch.setattr(Asks, "_wait_again", and_then_it_comes)
    checking = asyncio.create_task(ada.check(view.turn_id, wait=5))
    await until(lambda: mesh.relay.waits.someone(mesh.workspace_id, view.turn_id, ada.id))
    while not checking.done():
        await mesh.clock.advance(1)
    assert (await checking).reply == "on the edge"
    assert not (await ada.take()).messages


async def test_a_wait_above_fifty_seconds_is_clamped(mesh: RelayMesh) -> None:
    ada, bob, worker = await _pair(mesh)
    asking = asyncio.create_task(ada.ask(bob, wait=10_000))
    await _queued(mesh, worker)
    await mesh.clock.advance(49)
    assert not asking.done()
    await mesh.clock.advance(1)
    assert (await asking).status == pb.TURN_STATUS_QUEUED


async def test_a_caller_that_drops_ends_the_wait_and_not_the_work(mesh: RelayMesh) -> None:
    ada, bob, worker = await _pair(mesh)
    asking = asyncio.create_task(ada.ask(bob, wait=50))
    await _queued(mesh, worker)
    turn = await worker.next()
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert await worker.end(turn, "for nobody?")
    assert [message.body for message in (await ada.take()).messages] == ["for nobody?"]


@pytest.mark.parametrize(("answer", "failure"), [("", None), (None, "the model is down")])
async def test_a_turn_that_ends_without_an_answer_tells_who_asked(
    mesh: RelayMesh, answer: str | None, failure: str | None
) -> None:
    ada, bob, worker = await _pair(mesh)
    view = await ada.ask(bob)
    await worker.end(await worker.next(), answer, failure)
    told = (await ada.take()).messages[0]
    assert getattr(told, "from").kind == "mesh"
    checked = await ada.check(view.turn_id)
    assert checked.status == pb.TURN_STATUS_FAILED
    assert not checked.has_reply
    code = "turn_failed" if failure else "ended_without_answer"
    assert checked.error.code == code
    assert code in told.body


async def test_an_implicit_agent_answers_only_by_reply(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    bob = await mesh.agent("bob", reply_mode=1)
    worker = await mesh.worker(bob)
    silent = await ada.ask(bob)
    await worker.end(await worker.next(), "thinking aloud")
    assert (await ada.check(silent.turn_id)).error.code == "ended_without_answer"
    spoken = await ada.ask(bob)
    turn = await worker.next()
    await bob.reply(turn.messages[0].id, "said explicitly")
    await worker.end(turn, "thinking aloud")
    assert (await ada.check(spoken.turn_id)).reply == "said explicitly"


@pytest.mark.parametrize(("size", "ok"), [(256 * KIB - 1, True), (256 * KIB, True), (256 * KIB + 1, False)])
async def test_a_final_answer_may_have_256_kib(mesh: RelayMesh, size: int, ok: bool) -> None:
    ada, bob, worker = await _pair(mesh)
    view = await ada.ask(bob)
    await worker.end(await worker.next(), "x" * size)
    checked = await ada.check(view.turn_id)
    assert (checked.status == pb.TURN_STATUS_COMPLETED) is ok
    assert len(checked.reply) == (size if ok else 0)
    assert checked.error.code == ("" if ok else "invalid_argument")


async def test_one_reply_discharges_the_ask_and_the_final_message_says_nothing_more(mesh: RelayMesh) -> None:
    ada, bob, worker = await _pair(mesh)
    asking = asyncio.create_task(ada.ask(bob, wait=50))
    await _queued(mesh, worker)
    turn = await worker.next()
    await bob.reply(turn.messages[0].id, "by reply")
    assert (await asking).reply == "by reply"
    assert await worker.end(turn, "and a last word")
    assert not (await ada.take()).messages
    view = await ada.check(turn.turn_id)
    assert [m.body for m in await mesh.thread(view.thread_id)] == ["well?", "by reply"]


async def test_a_person_who_asks_finds_the_answer_in_the_thread(mesh: RelayMesh) -> None:
    _, bob, worker = await _pair(mesh)
    zoe = await mesh.person("zoe", 2)
    view = await zoe.ask(bob)
    await worker.end(await worker.next(), "for you")
    assert (await zoe.check(view.turn_id)).reply == "for you"
    assert [m.body for m in await mesh.thread(view.thread_id, zoe)] == ["well?", "for you"]


async def test_a_prompt_runs_at_depth_zero_in_a_session_of_its_own(mesh: RelayMesh) -> None:
    _, bob, worker = await _pair(mesh)
    request = session_pb2.PromptRequest(agent="bob", text="do   this\nplease", wait_seconds=0)
    first = (await mesh.admin.sessions.Prompt(request)).turn
    turn = await worker.next()
    assert (turn.depth, turn.channel, turn.session_title) == (0, "human", "do this please")
    await worker.end(turn, "done")
    assert (await mesh.admin.check(first.turn_id)).reply == "done"
    second = (await mesh.admin.sessions.Prompt(request)).turn
    assert second.session_id != first.session_id
    request.session_id = first.session_id
    third = (await mesh.admin.sessions.Prompt(request)).turn
    assert third.session_id == first.session_id
    follow_up = [t for t in await worker.claim() if t.session_id == first.session_id]
    assert [t.continued for t in follow_up] == [True]
    assert bob.id


async def test_a_stranger_cannot_check_a_turn(mesh: RelayMesh) -> None:
    ada, bob, _ = await _pair(mesh)
    eve = await mesh.agent("eve")
    view = await ada.ask(bob)
    unknown = await refusal(eve.check("trn_nothing"))
    hidden = await refusal(eve.check(view.turn_id))
    assert unknown.reason == hidden.reason == "not_found"
    assert unknown.message.replace("trn_nothing", view.turn_id) == hidden.message


async def test_an_ask_follows_up_in_a_session_that_the_caller_opened(mesh: RelayMesh) -> None:
    ada, bob, worker = await _pair(mesh)
    eve = await mesh.agent("eve")
    first = await ada.ask(bob)
    await worker.end(await worker.next(), "one")
    again = await ada.ask(bob, session_id=first.session_id)
    assert again.session_id == first.session_id
    assert (await refusal(eve.ask(bob, session_id=first.session_id))).reason == "not_found"


async def test_a_new_start_delivers_an_answer_that_a_killed_process_was_about_to_hand_over(
    mesh: RelayMesh,
) -> None:
    ada, bob, worker = await _pair(mesh)
    view = await ada.ask(bob)
    waiting = asyncio.create_task(ada.check(view.turn_id, wait=50))
    turn = await worker.next()
    await until(lambda: mesh.relay.waits.someone(mesh.workspace_id, turn.turn_id, ada.id), "the wait")
    # What a kill between the commit and the answer leaves behind: the wait's row, and nobody who waits.
    await mesh.relay.journal.write(lambda book: None)
    mesh.relay.waits.forget = lambda workspace_id, waiter: None  # type: ignore[method-assign]
    await worker.end(turn, "on the edge")
    assert (await waiting).reply == "on the edge"
    await mesh.reopen()
    assert [message.body for message in (await ada.take()).messages] == ["on the edge"]


async def test_a_turn_takes_its_slot_back_when_its_question_is_dropped_as_it_gives_it(
    mesh: RelayMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, bob, cid = await mesh.agent("ada"), await mesh.agent("bob"), await mesh.agent("cid")
    await mesh.policy(concurrent_runs=1)
    ada_works, cid_works = await mesh.worker(ada), await mesh.worker(cid)
    await bob.send(ada)
    turn = await ada_works.next()
    set_waiting, heard = mesh.relay.admission.set_waiting, asyncio.Event()

    async def slow(*of: Any, **more: Any) -> None:
        await set_waiting(*of, **more)
        heard.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(mesh.relay.admission, "set_waiting", slow)
    asking = asyncio.create_task(ada_works.ask(turn, bob, wait=5))
    await heard.wait()
    asking.cancel()
    await asyncio.wait({asking})
    await mesh.relay.admission.settled()
    await bob.send(cid)
    assert not await cid_works.claim()
