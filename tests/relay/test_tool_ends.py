"""How calls of tools end: each once, with its charge kept and its run slot given back."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from functools import partial
from typing import Any

import pytest
from hopline.relay.v1 import delegation_pb2
from hopline.relay.v1 import message_pb2 as msg
from hopline.relay.v1.tool_pb2 import CallToolRequest
from hopline.runtime.v1 import tunnel_pb2 as pb
from hopline_relay.store.schema import instances
from sqlalchemy import update

from tests.support.relay_mesh import Caller, RelayMesh, attempt, refusal, until
from tests.support.tool_worker import ToolWorker, call_tool, calling, state, turns_of, worker_of


async def _slots_are_back(mesh: RelayMesh, caller: Caller, worker: ToolWorker) -> None:
    """Show that a run slot is free where the policy has one: another call runs."""
    under_way = calling(caller, worker.agent, timeout_seconds=50)
    await worker.answer(await worker.call(), "after")
    assert (await under_way).result_json == '"after"'


async def _ended(mesh: RelayMesh, agent: Caller) -> delegation_pb2.Turn:
    """Wait until the newest turn of an agent has ended."""
    for _ in range(200):
        turn = (await turns_of(mesh, agent))[0]
        if turn.HasField("ended_at"):
            return turn
        await asyncio.sleep(0.005)
    raise AssertionError("the turn does not end")


@pytest.fixture
async def pair(mesh: RelayMesh) -> tuple[Caller, ToolWorker]:
    """One run slot, somebody who calls, and a worker."""
    await mesh.policy(concurrent_runs=1, pair_budget="0")
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    return ada, await worker_of(bob, "look")


async def test_a_call_whose_time_is_over_is_stopped(mesh: RelayMesh, pair: tuple[Caller, ToolWorker]) -> None:
    ada, worker = pair
    under_way = calling(ada, worker.agent, timeout_seconds=5)
    call = await worker.call()
    assert call.deadline.ToSeconds() == round(mesh.clock.now()) + 5
    await mesh.clock.advance(5.1)
    error = await refusal(under_way)
    assert (error.reason, "within 5 s" in error.message) == ("deadline_exceeded", True)
    assert error.details["turn_id"] == call.turn_id
    assert await worker.told_to_stop() == call.call_id
    turn = await _ended(mesh, worker.agent)
    assert (state(turn), turn.error.code) == ("failed", "deadline_exceeded")
    await worker.answer(call, "too late")
    await worker.beat()
    assert (await ada.check(call.turn_id)).reply == ""
    await _slots_are_back(mesh, ada, worker)


async def test_a_time_beyond_50_s_is_clamped(mesh: RelayMesh, pair: tuple[Caller, ToolWorker]) -> None:
    ada, worker = pair
    under_way = calling(ada, worker.agent, timeout_seconds=3000)
    call = await worker.call()
    assert call.deadline.ToSeconds() == round(mesh.clock.now()) + 50
    await worker.answer(call)
    await under_way


async def test_a_call_whose_caller_leaves_is_stopped(
    mesh: RelayMesh, pair: tuple[Caller, ToolWorker]
) -> None:
    ada, worker = pair
    under_way = calling(ada, worker.agent)
    call = await worker.call()
    under_way.cancel()
    assert await worker.told_to_stop() == call.call_id
    turn = await _ended(mesh, worker.agent)
    assert (state(turn), turn.error.message) == ("canceled", "its caller has left")
    assert (await mesh.usage(ada)).sent_today == 1
    await _slots_are_back(mesh, ada, worker)


async def test_a_caller_that_leaves_before_its_call_is_written_stops_it_too(
    mesh: RelayMesh, pair: tuple[Caller, ToolWorker]
) -> None:
    ada, worker = pair
    for ticks in range(1, 40):
        under_way = calling(ada, worker.agent)
        for _ in range(ticks):
            await asyncio.sleep(0)
        under_way.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await under_way
    await mesh.relay._tools.drained()
    assert {state(turn) for turn in await turns_of(mesh, worker.agent)} <= {"canceled"}
    while True:  # what the worker was given was called off
        await worker.beat()
        left = {item.WhichOneof("item") for item in worker._read}
        if left <= {"tool_call", "tool_call_canceled"}:
            break
    kinds = [item.WhichOneof("item") for item in worker._read]
    assert kinds.count("tool_call") == kinds.count("tool_call_canceled")
    worker._read.clear()
    await _slots_are_back(mesh, ada, worker)


async def test_whoever_called_may_cancel_it(mesh: RelayMesh, pair: tuple[Caller, ToolWorker]) -> None:
    ada, worker = pair
    under_way = calling(ada, worker.agent)
    call = await worker.call()
    await ada.turns.Cancel(delegation_pb2.CancelRequest(turn_id=call.turn_id))
    answer = await under_way
    assert (state(answer.turn), answer.turn.error.code) == ("canceled", "canceled")
    assert await worker.told_to_stop() == call.call_id
    await _slots_are_back(mesh, ada, worker)


@pytest.mark.parametrize("what", ["pause", "delete"])
async def test_pausing_or_deleting_the_agent_ends_its_calls(
    mesh: RelayMesh, pair: tuple[Caller, ToolWorker], what: str
) -> None:
    ada, worker = pair
    under_way = calling(ada, worker.agent)
    await worker.call()
    await getattr(mesh, what)(worker.agent)
    answer = await under_way
    assert state(answer.turn) == "canceled"
    assert "paused" in answer.turn.error.message or "deleted" in answer.turn.error.message
    other = await worker_of(await mesh.agent("cid"), "look")
    await _slots_are_back(mesh, ada, other)


async def test_pausing_the_caller_ends_its_calls(mesh: RelayMesh, pair: tuple[Caller, ToolWorker]) -> None:
    ada, worker = pair
    own = await worker_of(ada)
    await mesh.policy(concurrent_runs=2)
    await mesh.admin.send(ada)
    turn = await own.start()
    await own.calling(turn.turn_id, call_tool=CallToolRequest(agent="bob", name="look"))
    call = await worker.call()
    await mesh.pause(ada)
    assert await worker.told_to_stop() == call.call_id


async def test_a_worker_that_is_lost_ends_the_call_and_nobody_runs_it_again(
    mesh: RelayMesh, pair: tuple[Caller, ToolWorker]
) -> None:
    ada, worker = pair
    other = await worker_of(worker.agent, "look")
    under_way = calling(ada, worker.agent)
    calls = {asyncio.create_task(each.call()): each for each in (worker, other)}
    done, waiting = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    lost = calls[done.pop()]
    left = next(each for each in (worker, other) if each is not lost)
    lost.stream.cancel()
    answer = await under_way
    assert (state(answer.turn), answer.turn.error.code) == ("failed", "unavailable")
    assert "not run again" in answer.turn.error.message
    assert not next(iter(waiting)).done()
    next(iter(waiting)).cancel()
    await mesh.passes(120)
    assert [state(turn) for turn in await turns_of(mesh, worker.agent)] == ["failed"]
    next_one = ToolWorker(worker.agent)
    await next_one.offer("look")
    left.stream.cancel()
    await until(lambda: len(mesh.relay.dispatcher.attachments(mesh.workspace_id, worker.agent.id)) == 1)
    await _slots_are_back(mesh, ada, next_one)


async def test_what_a_lost_call_has_asked_for_ends_with_it(
    mesh: RelayMesh, pair: tuple[Caller, ToolWorker]
) -> None:
    ada, worker = pair
    await mesh.policy(concurrent_runs=2)
    cid = await mesh.agent("cid")
    other = await worker_of(cid)
    under_way = calling(ada, worker.agent)
    call = await worker.call()
    await worker.calling(call.turn_id, ask=msg.AskRequest(agent="cid", text="?", wait_seconds=50))
    start = await other.start()
    worker.stream.cancel()
    assert (await under_way).turn.error.code == "unavailable"
    assert (await other.next("cancel")).cancel.turn_id == start.turn_id


async def test_a_worker_that_detaches_ends_its_calls(
    mesh: RelayMesh, pair: tuple[Caller, ToolWorker]
) -> None:
    ada, worker = pair
    under_way = calling(ada, worker.agent)
    await worker.call()
    await worker.say(pb.WorkerItem(detach=pb.DetachAgent(attachment=1)))
    assert (await under_way).turn.error.code == "unavailable"


async def test_a_relay_that_was_started_again_has_ended_what_ran(
    mesh: RelayMesh, pair: tuple[Caller, ToolWorker]
) -> None:
    ada, worker = pair
    key = str(uuid.uuid4())
    under_way = calling(ada, worker.agent, request_id=key)
    call = await worker.call()
    database = mesh.relay.journal.database
    await mesh.reopen()
    assert database is not mesh.relay.journal.database
    assert not isinstance(await attempt(_result(under_way)), CallToolRequest)
    turn = (await turns_of(mesh, worker.agent))[0]
    assert (turn.id, state(turn) in ("failed", "canceled")) == (call.turn_id, True)
    again = await call_tool(ada, worker.agent, request_id=key)
    assert (again.turn.turn_id, state(again.turn)) == (call.turn_id, state(turn))
    usage = await mesh.usage(ada)
    assert usage.sent_today == 1
    await _slots_are_back(mesh, ada, await worker_of(worker.agent, "look"))


async def _result(under_way: asyncio.Task[Any]) -> Any:
    try:
        return await under_way
    except asyncio.CancelledError:
        return None


async def test_what_a_relay_that_died_left_running_is_ended_and_wakes_nobody(
    mesh: RelayMesh, pair: tuple[Caller, ToolWorker]
) -> None:
    ada, worker = pair
    own = await worker_of(ada)
    await mesh.policy(concurrent_runs=3)
    await mesh.admin.send(ada)
    turn = await own.start()
    await own.calling(turn.turn_id, call_tool=CallToolRequest(agent="bob", name="look"))
    call = await worker.call()
    await mesh.relay.journal.write(
        lambda book: book.connection.execute(update(instances).values(ended_at=book.now))
    )
    await mesh.relay._tool_runs.recover()  # as the next process does
    view = await ada.check(call.turn_id)
    assert (state(view), view.error.code) == ("failed", "unavailable")
    assert "not run again" in view.error.message
    assert (await ada.take()).messages == []


async def test_counters_that_are_lost_meanwhile_change_nothing(
    mesh: RelayMesh, pair: tuple[Caller, ToolWorker]
) -> None:
    ada, worker = pair
    under_way = calling(ada, worker.agent)
    call = await worker.call()
    await mesh.forget_counters(50)
    await ada.send(worker.agent)
    assert (await mesh.usage(ada)).sent_today == 2
    await worker.answer(call, 3)
    assert (await under_way).result_json == "3"


async def test_a_turn_that_is_cancelled_takes_its_calls_with_it(
    mesh: RelayMesh, pair: tuple[Caller, ToolWorker]
) -> None:
    _, worker = pair
    cid = await mesh.agent("cid")
    own = await worker_of(cid)
    await mesh.policy(concurrent_runs=2)
    await mesh.admin.send(cid)
    turn = await own.start()
    number = await own.calling(turn.turn_id, call_tool=CallToolRequest(agent="bob", name="look"))
    call = await worker.call()
    await mesh.admin.turns.Cancel(delegation_pb2.CancelRequest(turn_id=turn.turn_id))
    assert await worker.told_to_stop() == call.call_id
    result = (await own.next("call_result")).call_result
    assert (result.call_id, state(result.call_tool.turn)) == (number, "canceled")


async def test_a_worker_that_calls_off_its_call_ends_the_tool(
    mesh: RelayMesh, pair: tuple[Caller, ToolWorker]
) -> None:
    ada, worker = pair
    own = await worker_of(ada)
    number = await own.calling("", call_tool=CallToolRequest(agent="bob", name="look"))
    call = await worker.call()
    await own.say(pb.WorkerItem(call_canceled=pb.CallCanceled(attachment=1, call_id=number)))
    assert await worker.told_to_stop() == call.call_id
    assert state(await _ended(mesh, worker.agent)) == "canceled"


async def test_a_result_said_twice_counts_once(mesh: RelayMesh, pair: tuple[Caller, ToolWorker]) -> None:
    ada, worker = pair
    under_way = calling(ada, worker.agent)
    call = await worker.call()
    item = pb.ToolResult(attachment=1, call_id=call.call_id, result_json="1")
    other = pb.ToolResult(attachment=1, call_id=call.call_id, failure="no")
    await worker.say(pb.WorkerItem(tool_result=item), pb.WorkerItem(tool_result=other))
    assert (await under_way).result_json == "1"
    assert len(await mesh.thread((await turns_of(mesh, worker.agent))[0].thread_id)) == 2


async def test_a_result_of_a_call_that_is_not_there_changes_nothing(
    mesh: RelayMesh, pair: tuple[Caller, ToolWorker]
) -> None:
    ada, worker = pair
    stray = pb.ToolResult(attachment=1, call_id=77, result_json="1")
    await worker.say(pb.WorkerItem(tool_result=stray), pb.WorkerItem(tool_result=pb.ToolResult(attachment=9)))
    await _slots_are_back(mesh, ada, worker)


async def test_a_worker_cannot_hold_a_call_as_if_it_were_a_turn(
    mesh: RelayMesh, pair: tuple[Caller, ToolWorker]
) -> None:
    ada, worker = pair
    under_way = calling(ada, worker.agent)
    call = await worker.call()
    other = ToolWorker(worker.agent)
    attached = await other.offer(held=[pb.HeldTurn(turn_id=call.turn_id, attempt=1)])
    assert list(attached.attached.resumed) == []
    early = pb.TurnEnded(attachment=1, turn_id=call.turn_id, attempt=1, answer="not JSON")
    await worker.say(pb.WorkerItem(ended=early))
    assert not (await worker.next("ended_ack")).ended_ack.recorded
    await worker.answer(call, 1)
    assert (await under_way).result_json == "1"


@pytest.mark.parametrize("first", range(8))
async def test_of_many_ends_at_once_one_counts(
    mesh: RelayMesh, pair: tuple[Caller, ToolWorker], first: int
) -> None:
    ada, worker = pair
    for ticks in range(0, 24, 3):
        under_way = calling(ada, worker.agent)
        call = await worker.call()
        cancel = delegation_pb2.CancelRequest(turn_id=call.turn_id)
        ends = [partial(worker.answer, call, "done"), partial(ada.turns.Cancel, cancel)]
        begun = []
        for end in ends[first % 2 :] + ends[: first % 2]:
            begun.append(asyncio.ensure_future(end()))
            for _ in range(ticks * (1 + first // 2)):
                await asyncio.sleep(0)
        answer = await under_way
        await asyncio.gather(*begun)
        turn = await _ended(mesh, worker.agent)
        assert state(turn) == state(answer.turn)
        assert (answer.result_json == '"done"') == (state(turn) == "completed")
        thread = await mesh.thread(turn.thread_id)
        assert len(thread) == (2 if state(turn) == "completed" else 1)
    worker._read.clear()
    await _slots_are_back(mesh, ada, worker)
    await until(lambda: not mesh.relay._tool_runs._runs, "the last place")
    assert not mesh.relay.waits.tool_turns


async def test_the_sweep_ends_a_call_that_nobody_has_ended(
    mesh: RelayMesh, pair: tuple[Caller, ToolWorker]
) -> None:
    ada, worker = pair
    under_way = calling(ada, worker.agent, timeout_seconds=5)
    call = await worker.call()
    mesh.relay._tool_runs._runs.clear()
    under_way.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await under_way
    await mesh.relay._tools.drained()
    await mesh.passes(20)
    assert (await _ended(mesh, worker.agent)).id == call.turn_id


async def test_a_clock_that_is_set_ends_no_call(mesh: RelayMesh, pair: tuple[Caller, ToolWorker]) -> None:
    ada, worker = pair
    under_way = calling(ada, worker.agent)
    call = await worker.call()
    mesh.clock.set_wall(3600)
    await mesh.passes(1)
    mesh.clock.set_wall(-7200)
    await mesh.passes(1)
    await worker.answer(call, 1)
    assert (await under_way).result_json == "1"
    assert (await turns_of(mesh, worker.agent))[0].status == msg.TURN_STATUS_COMPLETED
