"""A lead is never held for good: each way in which what it waits for ends, and in which it ends itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hopline.relay.v1 import delegation_pb2
from hopline.relay.v1 import message_pb2 as pb
from hopline_relay.store import holds
from hopline_rpc.errors import HoplineError
from hopline_rpc.faults import Point
from sqlalchemy import text

from tests.support.holds import Led, led
from tests.support.relay_mesh import RelayMesh

COMPLETED, RUNNING = pb.TURN_STATUS_COMPLETED, pb.TURN_STATUS_RUNNING
FAILED, CANCELED = pb.TURN_STATUS_FAILED, pb.TURN_STATUS_CANCELED


@pytest.fixture
async def crew(mesh: RelayMesh) -> Led:
    return await led(mesh, "ann", "bo")


async def _run(mesh: RelayMesh, statement: str, **values: str) -> None:
    await mesh.relay.journal.write(lambda book: book.connection.execute(text(statement), values))


# --- what it waits for ends ---------------------------------------------------------------------------


async def _reports(crew: Led) -> None:
    await crew.report("ann", "42")


async def _fails(crew: Led) -> None:
    worker = crew.workers["ann"]
    await worker.end(await worker.next(), failure="no idea")


async def _dies(crew: Led) -> None:
    task = await crew.workers["ann"].next()
    for _ in range(3):
        await crew.mesh.worker_lost(task.turn_id)
        await crew.workers["ann"].claim(1)


async def _is_deleted(crew: Led) -> None:
    await crew.mesh.delete(crew.workers["ann"].agent)


async def _is_paused(crew: Led) -> None:
    await crew.workers["ann"].next()
    await crew.mesh.pause(crew.workers["ann"].agent)


async def _is_canceled(crew: Led) -> None:
    task = await crew.workers["ann"].next()
    await crew.cancel(turn_id=task.turn_id)


async def _waits_too_long(crew: Led) -> None:
    await crew.mesh.skip(86_401)
    await crew.mesh.relay.sweep.due()


TELLING = (_reports, _fails, _dies, _is_deleted, _is_paused, _is_canceled, _waits_too_long)


@pytest.mark.parametrize("ends", TELLING, ids=lambda each: each.__name__)
async def test_a_child_that_reports_or_will_not_wakes_its_lead_which_then_answers(
    crew: Led, ends: Callable[[Led], Awaitable[None]]
) -> None:
    turn = await crew.held_with("draft", "ann")
    await ends(crew)
    told = await crew.lead.next()
    assert told.cause in ("answer", "notice", "report")
    await crew.lead.end(told, "all that I know")
    assert (await crew.answered(turn.turn_id)).reply == "all that I know"
    assert await crew.answers(turn) == ["all that I know"]
    assert await crew.held() == []


@pytest.mark.parametrize("ends", TELLING, ids=lambda each: each.__name__)
async def test_whatever_ends_a_child_a_lead_that_says_nothing_sends_its_draft(
    crew: Led, ends: Callable[[Led], Awaitable[None]]
) -> None:
    turn = await crew.held_with("draft", "ann")
    await ends(crew)
    await crew.lead.end(await crew.lead.next(), None)
    await crew.lead.end(await crew.woken(), None)
    assert (await crew.answered(turn.turn_id)).reply == "draft"


async def test_a_child_that_a_person_closes_wakes_its_lead(crew: Led) -> None:
    turn = await crew.prompted()
    child = await crew.start(turn, "ann")
    await crew.lead.end(turn, "draft")
    await crew.close(child.session_id, crew.mesh.admin)
    await crew.lead.end(await crew.lead.next(), "without ann")
    assert (await crew.answered(turn.turn_id)).reply == "without ann"


async def test_a_lead_that_closes_its_children_answers_in_the_same_turn(crew: Led) -> None:
    turn = await crew.prompted()
    child = await crew.start(turn, "ann")
    assert (await crew.reply(turn, "soon")).open_todos == 0
    await crew.close(child.session_id, crew.lead.agent)
    await crew.lead.end(turn, "never mind")
    assert (await crew.answered(turn.turn_id)).reply == "never mind"
    assert await crew.held() == []


async def test_a_lead_that_closes_its_children_and_says_nothing_more_is_woken_with_what_was_held(
    crew: Led,
) -> None:
    turn = await crew.prompted()
    child = await crew.start(turn, "ann")
    await crew.reply(turn, "soon")
    await crew.close(child.session_id, crew.lead.agent)
    await crew.lead.end(turn, None)
    assert (await crew.check(turn.turn_id)).held
    await crew.lead.end(await crew.woken(), None)
    assert (await crew.answered(turn.turn_id)).reply == "soon"


async def test_a_child_of_which_nobody_wants_to_hear_again_holds_nothing(crew: Led) -> None:
    turn = await crew.prompted()
    await crew.start(turn, "ann", forget=True)
    # It may report all the same: that waits for the lead, and the lead's answer not for that.
    child = await crew.workers["ann"].next()
    report = delegation_pb2.ReportToCallerRequest(text="42", caller_session_id=child.session_id)
    assert (await crew.workers["ann"].agent.turns.ReportToCaller(report)).is_delivered
    await crew.lead.end(turn, "at once")
    assert (await crew.check(turn.turn_id)).reply == "at once"


async def test_what_ends_without_a_word_is_found_by_the_sweep(crew: Led) -> None:
    turn = await crew.held_with("draft", "ann")
    await crew.settled()
    await _run(crew.mesh, "UPDATE children SET state = 'ended'")
    await crew.mesh.clock.advance(6)
    await crew.lead.end(await crew.woken(), None)
    assert (await crew.answered(turn.turn_id)).reply == "draft"


# --- the lead itself ----------------------------------------------------------------------------------


async def _without_reasons(crew: Led) -> Any:
    """Bring the lead to where it was woken with its draft; returns the prompt's turn and that one."""
    turn = await crew.held_with("draft", "ann")
    await crew.report("ann", "42")
    await crew.lead.end(await crew.lead.next(), None)
    await crew.settled()
    return turn


async def test_a_woken_turn_that_fails_sends_the_draft(crew: Led) -> None:
    turn = await _without_reasons(crew)
    await crew.lead.end(await crew.woken(), failure="the model is down")
    assert (await crew.answered(turn.turn_id)).reply == "draft"


async def test_a_woken_turn_whose_worker_dies_again_and_again_sends_the_draft(crew: Led) -> None:
    turn = await _without_reasons(crew)
    await crew.fail_silently(await crew.woken())
    assert (await crew.answered(turn.turn_id)).reply == "draft"


async def test_a_woken_turn_that_no_worker_ever_takes_sends_the_draft(crew: Led) -> None:
    turn = await _without_reasons(crew)
    assert (await crew.held())[0].woken
    await crew.mesh.skip(86_401)
    await crew.mesh.relay.sweep.due()
    assert (await crew.answered(turn.turn_id)).reply == "draft"


async def test_a_later_turn_that_fails_leads_to_the_draft_as_well(crew: Led) -> None:
    turn = await crew.held_with("draft", "ann")
    await crew.report("ann", "42")
    await crew.lead.end(await crew.lead.next(), failure="the model is down")
    await crew.lead.end(await crew.woken(), None)
    assert (await crew.answered(turn.turn_id)).reply == "draft"


async def test_a_prompted_turn_that_fails_with_a_draft_goes_on_as_what_it_has_started(crew: Led) -> None:
    turn = await crew.prompted()
    await crew.start(turn, "ann")
    await crew.reply(turn, "soon")
    await crew.lead.end(turn, failure="crashed")
    assert (await crew.check(turn.turn_id)).held
    await crew.report("ann", "42")
    await crew.lead.end(await crew.lead.next(), "42")
    assert (await crew.answered(turn.turn_id)).reply == "42"


async def test_a_prompted_turn_that_fails_without_a_draft_fails_the_prompt(crew: Led) -> None:
    turn = await crew.prompted()
    await crew.start(turn, "ann")
    await crew.lead.end(turn, failure="crashed")
    view = await crew.check(turn.turn_id)
    assert (view.status, view.error.code) == (FAILED, "turn_failed")


async def test_a_woken_lead_that_starts_another_child_is_held_for_that(crew: Led) -> None:
    turn = await _without_reasons(crew)
    woken = await crew.woken()
    await crew.start(woken, "bo")
    await crew.lead.end(woken, None)
    view = await crew.check(turn.turn_id)
    assert [party.name for party in view.waiting_on] == ["bo"]
    await crew.report("bo", "43")
    await crew.lead.end(await crew.lead.next(), "both")
    assert (await crew.answered(turn.turn_id)).reply == "both"


@pytest.mark.parametrize("what", ["pause", "delete"])
async def test_a_lead_that_is_paused_or_deleted_owes_nothing_any_more(crew: Led, what: str) -> None:
    prompting = asyncio.create_task(crew.prompt(50))
    turn = await crew.lead_next()
    await crew.start(turn, "ann")
    await crew.lead.end(turn, "draft")
    await getattr(crew.mesh, what)(crew.lead.agent)
    view = await prompting
    assert (view.status, view.error.code) == (CANCELED, "agent_paused" if what == "pause" else "canceled")
    assert await crew.answers(turn) == []
    assert await _rows(crew.mesh) == []


async def _rows(mesh: RelayMesh) -> list[Any]:
    return await mesh.relay.journal.read(lambda connection: holds.after(connection, ("", "")))


async def test_a_lead_that_was_paused_while_no_mesh_was_there_owes_nothing_after_the_start(crew: Led) -> None:
    turn = await crew.held_with("draft", "ann")
    await crew.mesh.close_relay()
    await crew.mesh.pause(crew.lead.agent)
    await crew.mesh.open_relay()
    assert (await crew.check(turn.turn_id)).error.code == "agent_paused"


@pytest.mark.parametrize("how", ["turn", "session", "later"])
async def test_a_person_who_cancels_ends_what_is_held(crew: Led, how: str) -> None:
    turn = await crew.held_with("draft", "ann", "bo")
    later = None
    if how == "later":
        await crew.report("ann", "42")
        later = await crew.lead.next()
    of = {"session_id": turn.session_id} if how == "session" else {"turn_id": (later or turn).turn_id}
    ended = await crew.cancel(**of)
    assert ended.status == CANCELED
    view = await crew.answered(turn.turn_id)
    assert (view.status, view.error.code) == (CANCELED, "canceled")
    assert await crew.lead.claim() == await crew.workers["bo"].claim() == []
    assert await crew.answers(turn) == []


async def test_a_turn_of_the_lead_that_another_ends_leaves_the_draft(crew: Led) -> None:
    turn = await crew.held_with("draft", "ann")
    await crew.report("ann", "42")
    later = await crew.lead.next()
    await crew.mesh.relay.turns.cancel(crew.mesh.workspace_id, later.turn_id, "too much")
    await crew.lead.end(await crew.woken(), None)
    assert (await crew.answered(turn.turn_id)).reply == "draft"


# --- it cannot be woken -------------------------------------------------------------------------------


async def test_a_root_without_turns_left_sends_the_draft_as_it_is(crew: Led) -> None:
    await crew.mesh.policy(root_turns=2)
    turn = await crew.prompted()
    child = await crew.start(turn, "ann")
    await crew.lead.end(turn, "draft")
    await crew.close(child.session_id, crew.mesh.admin)
    await crew.lead.end(await crew.lead.next(), None)
    assert (await crew.answered(turn.turn_id)).reply == "draft"


async def test_a_root_without_turns_left_and_no_draft_fails_the_prompt_for_that_reason(crew: Led) -> None:
    await crew.mesh.policy(root_turns=2)
    turn = await crew.prompted()
    child = await crew.start(turn, "ann")
    await crew.lead.end(turn, None)
    await crew.close(child.session_id, crew.mesh.admin)
    await crew.lead.end(await crew.lead.next(), None)
    view = await crew.answered(turn.turn_id)
    assert (view.status, view.error.code) == (FAILED, "root_exhausted")


async def test_without_credits_the_draft_is_sent_for_answers_travel(crew: Led) -> None:
    await crew.mesh.policy(credits="1")
    await crew.mesh.deposit("2")
    turn = await crew.prompted()
    child = await crew.start(turn, "ann")
    await crew.workers["ann"].next()
    await crew.lead.end(turn, "draft")
    await crew.close(child.session_id, crew.mesh.admin)
    await crew.lead.end(await crew.lead.next(), None)
    assert (await crew.answered(turn.turn_id)).reply == "draft"


async def test_in_a_session_that_is_closed_the_draft_is_sent(crew: Led) -> None:
    turn = await crew.held_with("draft", "ann")
    await _run(crew.mesh, "UPDATE sessions SET closed = 1 WHERE id = :id", id=turn.session_id)
    await _run(crew.mesh, "UPDATE children SET state = 'ended'")
    await crew.mesh.clock.advance(6)
    assert (await crew.answered(turn.turn_id)).reply == "draft"


# --- restarts -----------------------------------------------------------------------------------------


async def test_what_is_held_is_held_after_a_restart_and_ends_as_before(crew: Led) -> None:
    turn = await crew.held_with("draft", "ann")
    await crew.mesh.reopen()
    await crew.attach()
    assert [hold.draft for hold in await crew.held()] == ["draft"]
    await crew.report("ann", "42")
    await crew.lead.end(await crew.lead.next(), "42")
    assert (await crew.answered(turn.turn_id)).reply == "42"


async def test_a_start_wakes_a_lead_whose_reasons_ended_while_no_mesh_was_there(crew: Led) -> None:
    turn = await crew.held_with("draft", "ann")
    await crew.settled()
    await _run(crew.mesh, "UPDATE children SET state = 'ended'")
    await crew.mesh.reopen()
    await crew.attach()
    await crew.lead.end(await crew.woken(), None)
    assert (await crew.answered(turn.turn_id)).reply == "draft"


@pytest.mark.parametrize("point", ["hold.seen", "hold.admitted", "hold.sent"])
async def test_a_process_that_dies_as_it_sends_a_draft_sends_it_once(
    crew: Led, monkeypatch: pytest.MonkeyPatch, point: Point
) -> None:
    turn = await _without_reasons(crew)
    woken = await crew.woken()

    def die(name: Point) -> None:
        if name == point:
            raise HoplineError("unavailable", "killed here")

    for module in ("holding", "hold_ends"):
        monkeypatch.setattr(f"hopline_relay.{module}.point", die)
    await crew.lead.end(woken, None)
    await crew.settled()
    monkeypatch.undo()
    await crew.mesh.reopen()
    assert (await crew.answered(turn.turn_id)).reply == "draft"
    assert await crew.answers(turn) == ["draft"]


# --- retention ----------------------------------------------------------------------------------------


async def test_what_is_held_is_not_forgotten_however_old_it_is(crew: Led) -> None:
    await crew.mesh.policy(retention_days=2, queue_seconds=30 * 86_400)
    turn = await crew.held_with("draft", "ann")
    await crew.mesh.skip(20 * 86_400)
    sweeping = asyncio.ensure_future(crew.mesh.relay.retention.sweep(crew.mesh.workspace_id))
    while not sweeping.done():
        await crew.mesh.clock.advance(0.1)
        await asyncio.sleep(0)
    await sweeping
    view = await crew.release(turn.session_id)
    assert (view.status, view.reply) == (COMPLETED, "draft")
