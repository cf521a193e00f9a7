"""Cancelling, and what happens to work when an agent is paused or deleted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hopline.relay.v1 import delegation_pb2
from hopline.relay.v1 import message_pb2 as pb
from hopline_relay.admission import Admission
from hopline_relay.endings import Ending, Endings
from hopline_relay.turns import ClaimedTurn
from hopline_rpc.errors import HoplineError

from tests.support.relay_mesh import Caller, RelayMesh, Worker, refusal


async def _cancel(caller: Caller, turn_id: str = "", **more: str) -> delegation_pb2.CancelResponse:
    request = delegation_pb2.CancelRequest(**more)
    if turn_id:
        request.turn_id = turn_id
    answer: delegation_pb2.CancelResponse = await caller.turns.Cancel(request)
    return answer


async def _chain(mesh: RelayMesh) -> tuple[list[Caller], list[Worker], list[ClaimedTurn], pb.TurnView]:
    """Let ada ask bob, bob ask cid, cid ask dan, and write dan a plain message."""
    names = ("ada", "bob", "cid", "dan")
    agents = [await mesh.agent(name) for name in names]
    workers = [await mesh.worker(agent) for agent in agents]
    view = await agents[0].ask(agents[1])
    turns = [await workers[1].next()]
    for number in (2, 3):
        await workers[number - 1].ask(turns[-1], agents[number])
        turns.append(await workers[number].next())
    await workers[1].send(turns[0], agents[3], text="plain")
    return agents, workers, turns, view


async def test_cancelling_ends_what_only_it_waits_for_and_tells_the_workers(mesh: RelayMesh) -> None:
    agents, workers, turns, view = await _chain(mesh)
    stopped: list[str] = []
    mesh.relay.turns.on_cancel = lambda items: stopped.extend(held.turn_id for _, _, held, _ in items)
    answer = await _cancel(agents[0], view.turn_id)
    assert (answer.status, answer.canceled) == (pb.TURN_STATUS_CANCELED, 3)
    assert stopped == [turn.turn_id for turn in turns]
    assert not any([await workers[3].end(turns[2], "too late"), await workers[1].end(turns[0], "too late")])
    # What it merely sent goes on.
    assert [m.body for m in (await agents[3].take()).messages] == ["plain"]
    # Nobody is told: ada knows, and the turns of bob and cid are over.
    for agent in agents[:3]:
        assert not (await agent.take()).messages
    assert (await agents[0].check(view.turn_id)).status == pb.TURN_STATUS_CANCELED
    again = await _cancel(agents[0], view.turn_id)
    assert (again.status, again.canceled) == (pb.TURN_STATUS_CANCELED, 0)


async def test_a_turn_that_has_ended_keeps_its_status(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(bob)
    view = await ada.ask(bob)
    await worker.end(await worker.next(), "done")
    answer = await _cancel(ada, session_id=view.session_id)
    assert (answer.status, answer.canceled) == (pb.TURN_STATUS_COMPLETED, 0)


async def test_a_waiting_ask_learns_that_a_person_cancelled_it(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(bob)
    asking = asyncio.create_task(ada.ask(bob, wait=50))
    turns: list[ClaimedTurn] = []
    while not turns:
        turns = await worker.claim()
    await _cancel(mesh.admin, turns[0].turn_id)
    view = await asking
    assert (view.status, view.error.code) == (pb.TURN_STATUS_CANCELED, "canceled")
    assert "admin" in view.error.message


async def test_only_who_started_a_turn_or_operates_its_agent_may_cancel_it(mesh: RelayMesh) -> None:
    ada, bob, eve = await mesh.agent("ada"), await mesh.agent("bob"), await mesh.agent("eve")
    zoe = await mesh.person("zoe")
    view = await ada.ask(bob)
    for caller in (eve, bob, zoe):
        for how in ({"turn_id": view.turn_id}, {"session_id": view.session_id}):
            assert (await refusal(_cancel(caller, **how))).reason == "not_found"
    await mesh.grant("zoe", 1, "bob")
    assert (await refusal(_cancel(zoe, view.turn_id))).reason == "not_found"
    await mesh.grant("zoe", 2, "bob")
    assert (await _cancel(zoe, view.turn_id)).canceled == 1
    told = (await ada.take()).messages
    assert [getattr(message, "from").kind for message in told] == ["mesh"]


async def test_pausing_ends_running_turns_and_debts_and_leaves_plain_messages(mesh: RelayMesh) -> None:
    ada, bob, cid = await mesh.agent("ada"), await mesh.agent("bob"), await mesh.agent("cid")
    worker = await mesh.worker(bob)
    running = await ada.ask(bob)
    turn = await worker.next()
    asked_on = await worker.ask(turn, cid)
    queued = await ada.ask(bob)
    plain = await ada.send(bob, text="plain")
    gone: list[tuple[str, str]] = []
    mesh.relay.turns.on_agent_gone = lambda ws, agent, token, code, text: gone.append((agent, code))
    await mesh.pause(bob)
    assert gone == [(bob.id, "agent_paused")]
    for view in (running, queued):
        checked = await ada.check(view.turn_id)
        assert (checked.status, checked.error.code) == (pb.TURN_STATUS_CANCELED, "agent_paused")
    assert (await mesh.admin.check(asked_on.turn_id)).status == pb.TURN_STATUS_CANCELED
    assert not await worker.end(turn, "too late")
    assert not await worker.claim()
    await mesh.resume(bob)
    assert [m.id for m in (await bob.take()).messages] == [plain.message_id]


async def test_a_creditor_that_does_not_wait_is_told_by_message_why(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await ada.ask(bob)
    await mesh.pause(bob)
    told = (await ada.take()).messages
    assert len(told) == 1
    assert "agent_paused" in told[0].body
    assert "bob" in told[0].body


@pytest.mark.parametrize("state", ["queued", "running", "pulled"])
async def test_deleting_ends_everything_and_threads_stay_readable(mesh: RelayMesh, state: str) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(bob)
    view, plain = await ada.ask(bob), await ada.send(bob)
    if state == "running":
        await worker.next()
    elif state == "pulled":
        await bob.take()
    await mesh.delete(bob)
    checked = await ada.check(view.turn_id)
    assert (checked.status, checked.error.code) == (pb.TURN_STATUS_CANCELED, "canceled")
    assert "deleted" in checked.error.message
    assert (await ada.check(plain.deliveries[0].turn_id)).status == pb.TURN_STATUS_CANCELED
    assert (await mesh.thread(view.thread_id, ada))[0].body == "well?"
    assert (await refusal(ada.send(bob))).reason == "not_found"
    assert (await refusal(bob.take())).reason == "unauthenticated"


async def test_what_was_missed_while_the_relay_was_away_is_done_when_it_starts(mesh: RelayMesh) -> None:
    ada, bob, cid = await mesh.agent("ada"), await mesh.agent("bob"), await mesh.agent("cid")
    first, second = await ada.ask(bob), await ada.ask(cid)
    await mesh.close_relay()
    await mesh.pause(bob)
    await mesh.delete(cid)
    await mesh.open_relay()
    assert (await ada.check(first.turn_id)).error.code == "agent_paused"
    assert (await ada.check(second.turn_id)).status == pb.TURN_STATUS_CANCELED


async def test_those_further_down_a_chain_do_not_learn_who_cancelled_it(mesh: RelayMesh) -> None:
    ada, bob, cid = await mesh.agent("ada"), await mesh.agent("bob"), await mesh.agent("cid")
    first = await ada.ask(bob)
    worker = await mesh.worker(bob)
    second = await worker.ask(await worker.next(), cid)
    await ada.turns.Cancel(delegation_pb2.CancelRequest(turn_id=first.turn_id))
    for reader, turn_id, words in (
        (bob, first.turn_id, "canceled by ada"),
        (cid, second.turn_id, "canceled with the work that it was asked for"),
    ):
        answer = await reader.turns.GetTurn(delegation_pb2.GetTurnRequest(turn_id=turn_id))
        assert (answer.turn.error.code, answer.turn.error.message) == ("canceled", words)


async def test_a_paused_agent_cancels_nothing(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    asked = await ada.ask(bob)
    await mesh.pause(ada)
    request = delegation_pb2.CancelRequest(turn_id=asked.turn_id)
    assert (await refusal(ada.turns.Cancel(request))).reason == "agent_paused"
    await mesh.resume(ada)
    assert (await ada.turns.Cancel(request)).canceled == 1


@pytest.mark.parametrize("pulls", [False, True], ids=["a tunnel claims", "the agent pulls"])
async def test_a_turn_that_ends_while_it_is_claimed_leaves_no_trace_in_the_backlog(
    mesh: RelayMesh, monkeypatch: pytest.MonkeyPatch, *, pulls: bool
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    asked = await ada.ask(bob)
    worker = await mesh.worker(bob)
    begin = Admission.begin

    async def cancel_and_begin(admission: Admission, items: Any) -> list[bool]:
        monkeypatch.undo()
        assert (await _cancel(ada, asked.turn_id)).canceled == 1
        return await begin(admission, items)

    monkeypatch.setattr(Admission, "begin", cancel_and_begin)
    assert not (await bob.take()).messages if pulls else not await worker.claim()
    await mesh.relay.admission.settled()
    usage = await mesh.usage(bob)
    assert (usage.inbox, usage.running) == (0, 0)


async def test_a_withdrawal_that_cannot_be_written_leaves_the_turns_beside_it_in_the_queue(
    mesh: RelayMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    yan = await mesh.person("yan")
    ada, cid = await mesh.agent("ada", owner_id=yan.id), await mesh.agent("cid")
    bob = await mesh.agent("bob")
    await mesh.grant("yan", 2, "bob")
    withdrawn, kept = await ada.ask(bob), await cid.ask(bob)
    await mesh.grant("yan", 1, "bob")
    worker = await mesh.worker(bob)
    with monkeypatch.context() as patched:
        patched.setattr(Endings, "end", _no_store)
        assert (await refusal(worker.claim())).reason == "unavailable"
    assert [turn.turn_id for turn in await worker.claim()] == [kept.turn_id]
    assert (await ada.check(withdrawn.turn_id)).status == pb.TURN_STATUS_CANCELED


async def _no_store(self: Endings, ending: Ending) -> bool:
    raise HoplineError("unavailable", "the disk of the store is full")
