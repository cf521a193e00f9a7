"""Hooks on what sessions leave to themselves: todos that are added, timers that are set and that come due."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hopline.hooks.v1 import hook_pb2 as pb
from hopline.relay.v1 import timer_pb2, todo_pb2
from hopline_rpc.clock import from_timestamp

from tests.support.hook_rig import HookRig, never
from tests.support.left import Desk, at_work
from tests.support.relay_mesh import RelayMesh, refusal, until

REQUEST = "6f9619ff-8b86-d011-b42d-00c04fc964ff"


@pytest.fixture
def rig(mesh: RelayMesh) -> HookRig:
    return HookRig(mesh)


async def _note(desk: Desk, *texts: str, **more: Any) -> todo_pb2.AddTodosResponse:
    request = todo_pb2.AddTodosRequest(texts=texts, **more)
    principal = await desk.worker.principal()
    return await desk.mesh.relay.handlers.todos.add_todos(principal, request, turn_id=desk.turn.turn_id)


async def _set(desk: Desk, message: str = "look", **more: Any) -> timer_pb2.SetTimerResponse:
    request = timer_pb2.SetTimerRequest(delay_seconds=60, message=message, **more)
    principal = await desk.worker.principal()
    return await desk.mesh.relay.handlers.timers.set_timer(principal, request, turn_id=desk.turn.turn_id)


def _todo(asked: pb.TodoAddedRequest) -> pb.TodoAddedResponse:
    if asked.text == "bad":
        return pb.TodoAddedResponse(veto=pb.HookVeto(reason="not that"))
    if asked.text == "void":
        return pb.TodoAddedResponse(text="")
    return pb.TodoAddedResponse(text=f"{asked.text}!") if asked.text == "mild" else pb.TodoAddedResponse()


async def test_todos_are_passed_rewritten_vetoed_and_dropped_each_by_itself(
    mesh: RelayMesh, rig: HookRig
) -> None:
    desk = await at_work(mesh)
    rig.add("abe", _todo, "todo_added")
    answer = await _note(desk, "one", "bad", "mild", "void", request_id=REQUEST)
    assert [todo.text for todo in answer.todos] == ["one", "mild!"]
    assert [(bool(each.todo_id), each.is_canceled, each.cancel_reason) for each in answer.outcomes] == [
        (True, False, ""),
        (False, True, "not that"),
        (True, False, ""),
        (False, False, ""),
    ]
    assert [each.todo_id for each in answer.outcomes if each.todo_id] == [todo.id for todo in answer.todos]
    assert [todo.text for todo in (await desk.listed()).todos] == ["one", "mild!"]
    asked = rig.asked[0][1]
    assert (asked.agent.id, asked.agent.session_id, asked.agent.turn_id) == (
        desk.agent.id,
        desk.session,
        desk.turn.turn_id,
    )
    assert asked.context.session.session_id == desk.session
    # The same request is not asked about again, and says the same.
    again = await _note(desk, "one", "bad", "mild", "void", request_id=REQUEST)
    assert (list(again.todos), list(again.outcomes)) == (list(answer.todos), list(answer.outcomes))
    assert len(rig.asked) == 4
    await mesh.relay.journal.write(lambda book: None)
    assert len(await mesh.events("hook.vetoed")) == 1


async def test_of_todos_that_are_all_kept_back_nothing_is_left_and_nobody_is_woken(
    mesh: RelayMesh, rig: HookRig
) -> None:
    desk = await at_work(mesh)
    rig.add("abe", _todo, "todo_added")
    answer = await _note(desk, "bad", request_id=REQUEST)
    assert (list(answer.todos), answer.list.open) == ([], 0)
    assert list((await _note(desk, "bad", request_id=REQUEST)).outcomes) == list(answer.outcomes)
    assert len(rig.asked) == 1
    assert (await refusal(_note(desk, "other", request_id=REQUEST))).reason == "request_id_conflict"
    await desk.end()
    assert await desk.woken() is None


def _timer(asked: Any) -> Any:
    answer = {pb.NotifyScheduledRequest: pb.NotifyScheduledResponse}.get(
        type(asked), pb.NotifyDeliveredResponse
    )
    if asked.text == "bad":
        return answer(veto=pb.HookVeto(reason="not now"))
    return answer(text="") if asked.text == "void" else answer(text=f"{asked.text}!")


async def test_a_timer_that_is_set_is_rewritten_vetoed_or_dropped(mesh: RelayMesh, rig: HookRig) -> None:
    desk = await at_work(mesh)
    rig.add("abe", _timer, "notify_scheduled")
    made = await _set(desk, "look")
    assert (made.timer.message, made.is_canceled) == ("look!", False)
    assert from_timestamp(rig.asked[0][1].fire_at) == mesh.clock.now() + 60
    vetoed = await _set(desk, "bad", request_id=REQUEST)
    assert (vetoed.HasField("timer"), vetoed.is_canceled, vetoed.cancel_reason) == (False, True, "not now")
    assert await _set(desk, "bad", request_id=REQUEST) == vetoed
    assert (await refusal(_set(desk, "other", request_id=REQUEST))).reason == "request_id_conflict"
    dropped = await _set(desk, "void")
    assert (dropped.HasField("timer"), dropped.is_canceled) == (False, False)
    assert rig.texts("abe") == ["look", "bad", "void"]
    assert [timer.message for timer in await desk.timers()] == ["look!"]


@pytest.mark.parametrize(("text", "woken"), [("look", "look!"), ("bad", None), ("void", None)])
async def test_a_timer_that_is_due_wakes_with_what_hooks_leave_of_it_or_not_at_all(
    mesh: RelayMesh, rig: HookRig, text: str, woken: str | None
) -> None:
    desk = await at_work(mesh)
    made = await _set(desk, text)
    rig.add("abe", _timer, "notify_delivered")
    await desk.end()
    await mesh.skip(60)
    await desk.look()
    turn = await desk.woken()
    assert (turn.messages[0].body if turn is not None else None) == woken
    ((_, asked),) = rig.asked
    assert (asked.timer_id, asked.agent.session_id) == (made.timer.id, desk.session)
    assert await desk.timers() == []
    assert len(await mesh.events("timer.dropped")) == (woken is None)


async def test_a_timer_that_cannot_fire_just_now_is_not_asked_about_again(
    mesh: RelayMesh, rig: HookRig
) -> None:
    desk = await at_work(mesh)
    await _set(desk)
    rig.add("abe", _timer, "notify_delivered")
    await desk.end()
    await mesh.pause(desk.agent)
    await mesh.skip(60)
    await desk.look()
    await mesh.skip(60)
    await desk.look()
    assert rig.texts("abe") == ["look"]
    await mesh.resume(desk.agent)
    await until(lambda: not mesh.relay.left.timers._shaped)
    turn = await desk.woken()
    assert turn is not None
    assert turn.messages[0].body == "look!"
    assert rig.texts("abe") == ["look"]


@pytest.mark.parametrize("closed", [False, True])
async def test_a_stuck_hook_holds_a_todo_and_a_timer_for_two_seconds(
    mesh: RelayMesh, rig: HookRig, *, closed: bool
) -> None:
    desk = await at_work(mesh)
    rig.add("abe", never, "todo_added", closed=closed)
    rig.add("bea", never, "notify_scheduled", closed=closed)
    calls = [asyncio.ensure_future(_note(desk, "one")), asyncio.ensure_future(_set(desk))]
    await until(lambda: len(rig.asked) == 2)
    await mesh.clock.advance(2.0)
    noted, made = await asyncio.gather(*calls)
    assert isinstance(noted, todo_pb2.AddTodosResponse)
    assert isinstance(made, timer_pb2.SetTimerResponse)
    assert (bool(noted.todos), made.HasField("timer")) == (not closed, not closed)
    assert made.is_canceled == closed


async def test_without_a_hook_of_their_kind_nothing_is_asked(mesh: RelayMesh, rig: HookRig) -> None:
    desk = await at_work(mesh)
    rig.add("abe", _todo, "system_prompt")
    answer = await _note(desk, "one")
    assert (len(answer.todos), len(answer.outcomes)) == (1, 0)
    assert (await _set(desk)).timer.message == "look"
    assert not rig.asked
