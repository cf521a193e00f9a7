"""Timers: what is set, when it wakes its session, once, and what ends it before."""

from __future__ import annotations

import asyncio
import json

import pytest
from hopline.relay.v1 import delegation_pb2, timer_pb2
from hopline_relay.timer_wakes import TimerWakes
from hopline_rpc.clock import from_timestamp

from tests.support.left import Desk, at_work
from tests.support.relay_mesh import RelayMesh, refusal

pytestmark = pytest.mark.both_stores

REQUEST = "6f9619ff-8b86-d011-b42d-00c04fc964ff"
DAY = 86_400


async def _passes(desk: Desk, seconds: float) -> None:
    await desk.mesh.skip(seconds)
    await desk.look()


async def test_a_timer_wakes_its_session_with_its_note_where_it_was_set(mesh: RelayMesh) -> None:
    desk = await at_work(mesh)
    first = desk.turn
    timer = await desk.set(60, "is the build green?")
    assert from_timestamp(timer.due_at) == mesh.clock.now() + 60
    await desk.end()
    await _passes(desk, 59)
    assert await desk.woken() is None
    await _passes(desk, 1)
    turn = await desk.again()
    assert (turn.session_id, turn.depth, turn.root_id) == (first.session_id, first.depth, first.root_id)
    message = turn.messages[0]
    assert (turn.cause, message.note, message.body) == ("timer", "timer", "is the build green?")
    assert json.loads(message.payload_json) == {"timer_id": timer.id, "late_seconds": 0}
    assert await desk.timers() == []
    (event,) = await mesh.events("timer.fired")
    assert (event.turn_id, event.details["timer_id"]) == (turn.turn_id, timer.id)


async def test_it_keeps_the_depth_of_the_turn_that_set_it(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await bob.send(ada)
    worker = await mesh.worker(ada)
    desk = Desk(mesh, ada, worker, await worker.next())
    assert (await desk.set(10)).depth == 1
    await desk.end()
    await _passes(desk, 10)
    assert (await desk.again()).depth == 1


async def test_while_a_turn_runs_it_waits_in_the_session(mesh: RelayMesh) -> None:
    desk = await at_work(mesh)
    await desk.set(10)
    await _passes(desk, 10)
    assert await desk.woken() is None
    assert await desk.timers() == []
    await desk.end()
    await desk.again()


@pytest.mark.parametrize("seconds", [0, 9, 31_622_401])
async def test_a_time_that_is_too_near_or_too_far_is_refused(mesh: RelayMesh, seconds: int) -> None:
    desk = await at_work(mesh)
    request = timer_pb2.SetTimerRequest(delay_seconds=seconds, message="x", caller_session_id=desk.session)
    error = await refusal(desk.agent.timers.SetTimer(request))
    assert error.reason == "invalid_argument"
    assert "delay_seconds" in error.message
    request.delay_seconds = 10
    await desk.agent.timers.SetTimer(request)


@pytest.mark.parametrize("message", ["", "a\0b", "é" * 2049])
async def test_what_is_no_note_is_refused_by_name(mesh: RelayMesh, message: str) -> None:
    ada = await mesh.agent("ada")
    request = timer_pb2.SetTimerRequest(delay_seconds=10, message=message)
    error = await refusal(ada.timers.SetTimer(request))
    assert error.reason == "invalid_argument"
    assert "message" in error.message


async def test_a_session_takes_twenty_timers_and_no_more(mesh: RelayMesh) -> None:
    desk = await at_work(mesh)
    made = [await desk.set(1000 - number) for number in range(20)]
    error = await refusal(desk.set(10))
    assert (error.reason, error.details) == ("limit_reached", {"limit": 20, "used": 20})
    assert [each.id for each in await desk.timers()] == [each.id for each in reversed(made)]
    cancel = timer_pb2.CancelTimerRequest(timer_id=made[0].id, caller_session_id=desk.session)
    await desk.agent.timers.CancelTimer(cancel)
    await desk.set(10)
    other = await at_work(mesh, "bob")
    await other.set(10)


async def test_the_same_request_sets_it_once(mesh: RelayMesh) -> None:
    desk = await at_work(mesh)
    first = await desk.set(60, request_id=REQUEST)
    assert (await desk.set(60, request_id=REQUEST)).id == first.id
    assert (await refusal(desk.set(61, request_id=REQUEST))).reason == "request_id_conflict"
    await _passes(desk, 60)
    assert (await refusal(desk.set(60, request_id=REQUEST))).reason == "failed_precondition"


async def test_what_is_called_off_wakes_nobody(mesh: RelayMesh) -> None:
    desk = await at_work(mesh)
    timer = await desk.set(10)
    cancel = timer_pb2.CancelTimerRequest(timer_id=timer.id, caller_session_id=desk.session)
    await desk.agent.timers.CancelTimer(cancel)
    error = await refusal(desk.agent.timers.CancelTimer(cancel))
    assert (error.reason, error.message) == ("not_found", f"there is no timer {timer.id!r}")
    await desk.end()
    await _passes(desk, 60)
    assert await desk.woken() is None


async def test_timers_of_another_session_or_agent_do_not_exist(mesh: RelayMesh) -> None:
    desk = await at_work(mesh)
    timer = await desk.set(60)
    bob = await mesh.agent("bob")
    for caller in (desk.agent, bob):  # the first calls from its inbox session
        error = await refusal(caller.timers.CancelTimer(timer_pb2.CancelTimerRequest(timer_id=timer.id)))
        assert (error.reason, error.message) == ("not_found", f"there is no timer {timer.id!r}")
    look = timer_pb2.ListTimersRequest(session_id=desk.session)
    zoe = await mesh.person("zoe")
    assert (await refusal(zoe.timers.ListTimers(look))).reason == "not_found"
    await mesh.grant("zoe", 1, desk.agent.id)
    assert [each.id for each in (await zoe.timers.ListTimers(look)).timers] == [timer.id]
    cancel = timer_pb2.CancelTimerRequest(timer_id=timer.id)
    assert (await refusal(zoe.timers.CancelTimer(cancel))).reason == "permission_denied"
    await mesh.admin.timers.CancelTimer(cancel)
    assert await desk.timers() == []


async def test_pages_follow_each_other_in_the_order_of_time(mesh: RelayMesh) -> None:
    desk = await at_work(mesh)
    for number in range(7):
        await desk.set(100 - 10 * number, str(number))
    request = timer_pb2.ListTimersRequest(session_id=desk.session, page_size=3)
    found: list[str] = []
    while True:
        page = await mesh.admin.timers.ListTimers(request)
        found += [timer.message for timer in page.timers]
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    assert found == [str(number) for number in reversed(range(7))]


# --- once, late rather than never ------------------------------------------------------------------


async def test_it_survives_a_restart_and_fires_late_where_the_mesh_was_down(mesh: RelayMesh) -> None:
    desk = await at_work(mesh)
    timer = await desk.set(60)
    await desk.end()
    await mesh.close()
    mesh.clock.skip(600)
    await mesh.open()
    desk.worker = await mesh.worker(desk.agent)
    for _ in range(2000):
        if (turn := await desk.woken()) is not None:
            break
        await asyncio.sleep(0.001)
    assert turn is not None
    assert json.loads(turn.messages[0].payload_json) == {"timer_id": timer.id, "late_seconds": 540}


async def test_of_many_that_look_at_once_one_fires(mesh: RelayMesh) -> None:
    desk = await at_work(mesh)
    for _ in range(5):
        await desk.set(10)
    await desk.end()
    relay = mesh.relay
    others = [TimerWakes(relay.journal, relay.mesh_wakes, mesh.clock) for _ in range(4)]
    mesh.clock.skip(10)
    await asyncio.gather(*(other.look() for other in [*others, relay.left.timers]))
    assert len(await mesh.events("timer.fired")) == 5


async def test_it_fires_by_itself_when_its_time_has_come(mesh: RelayMesh) -> None:
    desk = await at_work(mesh)
    await desk.set(10)
    assert await desk.worker.end(desk.turn, "done")
    await mesh.clock.advance(11)
    for _ in range(2000):
        if (turn := await desk.woken()) is not None:
            break
        await asyncio.sleep(0.001)
    assert turn is not None


async def test_a_clock_that_is_set_back_makes_it_due_anew_and_one_set_on_makes_it_due(
    mesh: RelayMesh,
) -> None:
    desk = await at_work(mesh)
    await desk.set(3600)
    await desk.end()
    mesh.clock.set_wall(-DAY)
    await desk.look()
    (timer,) = await desk.timers()
    assert from_timestamp(timer.due_at) == mesh.clock.now() + 3600
    mesh.clock.set_wall(DAY)
    await desk.look()
    await desk.again()


async def test_a_paused_agent_is_woken_late_once_it_is_resumed(mesh: RelayMesh) -> None:
    desk = await at_work(mesh)
    await desk.set(10)
    await desk.end()
    await mesh.pause(desk.agent)
    await _passes(desk, 10)
    assert len(await desk.timers()) == 1
    await mesh.resume(desk.agent)
    await desk.look()
    desk.worker = await mesh.worker(desk.agent)
    await desk.again()


async def test_without_credits_it_fires_once_they_are_there(mesh: RelayMesh) -> None:
    await mesh.policy(credits="1")
    await mesh.deposit("1")
    desk = await at_work(mesh)
    await desk.set(10)
    await desk.end()
    await _passes(desk, 10)
    assert await desk.woken() is None
    await mesh.deposit("5")
    await _passes(desk, 61)
    turn = await desk.again()
    assert json.loads(turn.messages[0].payload_json)["late_seconds"] == 61


# --- ends ------------------------------------------------------------------------------------------


async def test_cancelling_the_turn_that_set_it_calls_it_off(mesh: RelayMesh) -> None:
    desk = await at_work(mesh)
    await desk.set(60)
    other = await at_work(mesh, "bob")
    await other.set(60)
    await mesh.admin.turns.Cancel(delegation_pb2.CancelRequest(turn_id=desk.turn.turn_id))
    assert await desk.timers() == []
    assert len(await other.timers()) == 1
    (event,) = await mesh.events("timer.dropped")
    assert event.details["reason"] == "canceled"


async def test_cancelling_calls_off_what_was_set_further_on(mesh: RelayMesh) -> None:
    desk = await at_work(mesh)
    first = desk.turn
    await desk.set(10)
    await desk.end()
    await _passes(desk, 10)
    await desk.again()
    await desk.set(60)
    await desk.end()
    await mesh.admin.turns.Cancel(delegation_pb2.CancelRequest(turn_id=first.turn_id))
    assert await desk.timers() == []


async def test_a_timer_of_a_cancelled_turn_that_was_left_over_does_not_fire(mesh: RelayMesh) -> None:
    desk = await at_work(mesh)
    await desk.set(60)

    async def killed(turns: object) -> None:
        """As if the process had died right after the end of the turn."""

    mesh.relay._cancels.on_ended = killed
    await mesh.admin.turns.Cancel(delegation_pb2.CancelRequest(turn_id=desk.turn.turn_id))
    assert len(await desk.timers()) == 1
    await _passes(desk, 60)
    assert await desk.timers() == []
    assert await desk.woken() is None


async def test_a_failed_turn_leaves_its_timers(mesh: RelayMesh) -> None:
    desk = await at_work(mesh)
    await desk.set(10)
    await desk.end(failure="boom")
    await _passes(desk, 10)
    await desk.again()


async def test_a_root_that_is_exhausted_ends_a_loop_of_timers(mesh: RelayMesh) -> None:
    await mesh.policy(root_turns=4)
    desk = await at_work(mesh)
    await desk.set(10)
    await desk.end()
    fired = 0
    for _ in range(10):
        await _passes(desk, 10)
        if (turn := await desk.woken()) is None:
            break
        fired += 1
        await desk.set(10, turn=turn)
        await desk.end(turn)
    assert fired == 3
    assert await desk.timers() == []
    (event,) = await mesh.events("timer.dropped")
    assert event.details["reason"] == "root_exhausted"


async def test_deleting_the_agent_calls_its_timers_off(mesh: RelayMesh) -> None:
    desk = await at_work(mesh)
    await desk.set(10)
    await mesh.delete(desk.agent)
    rows = await mesh.relay.journal.read(
        lambda connection: connection.exec_driver_sql("SELECT count(*) FROM timers").scalar()
    )
    assert rows == 0
