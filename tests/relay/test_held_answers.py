"""A lead does not answer early: its answer to a person is held, kept, woken with, sent, released."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hopline.relay.v1 import draft_pb2, session_pb2
from hopline.relay.v1 import message_pb2 as pb

from tests.support.holds import Led, led
from tests.support.relay_mesh import RelayMesh, refusal

COMPLETED, RUNNING, FAILED = pb.TURN_STATUS_COMPLETED, pb.TURN_STATUS_RUNNING, pb.TURN_STATUS_FAILED


@pytest.fixture
async def crew(mesh: RelayMesh) -> Led:
    """A lead with a worker, two subagents with workers."""
    return await led(mesh, "ann", "bo")


async def test_a_final_message_is_held_while_a_subagent_owes_a_report(crew: Led) -> None:
    turn = await crew.prompted()
    await crew.start(turn, "ann")
    await crew.lead.end(turn, "I have asked ann")
    view = await crew.check(turn.turn_id)
    assert (view.status, view.held, view.has_draft, view.has_reply) == (RUNNING, True, True, False)
    assert [party.name for party in view.waiting_on] == ["ann"]


async def test_what_the_lead_writes_once_nothing_holds_it_is_the_answer(crew: Led) -> None:
    turn = await crew.prompted()
    await crew.start(turn, "ann")
    await crew.lead.end(turn, "I have asked ann")
    await crew.report("ann", "42")
    later = await crew.lead.next()
    await crew.lead.end(later, "ann says 42")
    view = await crew.answered(turn.turn_id)
    assert view.reply == "ann says 42"
    assert not view.held
    assert await crew.answers(turn) == ["ann says 42"]


async def test_the_newest_draft_is_kept_while_others_still_owe(crew: Led) -> None:
    turn = await crew.prompted()
    await crew.start(turn, "ann")
    await crew.start(turn, "bo")
    await crew.lead.end(turn, "first")
    await crew.report("ann", "42")
    await crew.lead.end(await crew.lead.next(), "second")
    (hold,) = await crew.held()
    assert (hold.draft, [each.agent.name for each in hold.waiting_on]) == ("second", ["bo"])
    assert await crew.answers(turn) == []


async def test_a_lead_that_says_nothing_new_is_woken_with_its_draft_and_then_the_draft_is_sent(
    crew: Led,
) -> None:
    turn = await crew.prompted()
    await crew.start(turn, "ann")
    await crew.lead.end(turn, "my draft")
    await crew.report("ann", "42")
    await crew.lead.end(await crew.lead.next(), "")
    woken = await crew.woken()
    assert (woken.cause, woken.depth, woken.root_id) == ("draft", turn.depth, turn.root_id)
    assert "my draft" in woken.messages[0].body
    await crew.lead.end(woken, "")
    assert (await crew.answered(turn.turn_id)).reply == "my draft"
    assert await crew.held() == []


async def test_what_the_woken_lead_writes_is_sent_instead_of_its_draft(crew: Led) -> None:
    turn = await crew.prompted()
    await crew.start(turn, "ann")
    await crew.lead.end(turn, "my draft")
    await crew.report("ann", "42")
    await crew.lead.end(await crew.lead.next(), None)
    await crew.lead.end(await crew.woken(), "better")
    assert (await crew.answered(turn.turn_id)).reply == "better"
    assert await crew.answers(turn) == ["better"]


async def test_an_answer_is_not_sent_before_the_lead_has_read_the_last_report(crew: Led) -> None:
    turn = await crew.prompted()
    await crew.start(turn, "ann")
    await crew.start(turn, "bo")
    await crew.report("ann", "1")
    await crew.report("bo", "2")
    await crew.lead.end(turn, "too early")
    assert [party.name for party in (await crew.check(turn.turn_id)).waiting_on] == ["ann", "bo"]
    await crew.lead.end(await crew.lead.next(), "still early")
    assert await crew.answers(turn) == []
    await crew.lead.end(await crew.lead.next(), "now")
    assert (await crew.answered(turn.turn_id)).reply == "now"


async def test_without_subagents_and_todos_nothing_is_held(crew: Led) -> None:
    turn = await crew.prompted()
    await crew.lead.end(turn, "at once")
    assert (await crew.check(turn.turn_id)).reply == "at once"
    assert await crew.held() == []


async def test_a_lead_that_ends_silently_with_subagents_at_work_still_owes_its_answer(crew: Led) -> None:
    turn = await crew.prompted()
    await crew.start(turn, "ann")
    await crew.lead.end(turn, "")
    view = await crew.check(turn.turn_id)
    assert (view.status, view.held, view.has_draft) == (RUNNING, True, False)
    await crew.report("ann", "42")
    await crew.lead.end(await crew.lead.next(), "")
    await crew.lead.end(await crew.woken(), "")
    view = await crew.answered(turn.turn_id)
    assert (view.status, view.error.code) == (FAILED, "ended_without_answer")


async def test_reply_to_human_is_sent_at_once_where_nothing_holds_it(crew: Led) -> None:
    turn = await crew.prompted()
    said = await crew.reply(turn, "here")
    assert said.status == draft_pb2.REPLY_STATUS_SENT
    await crew.lead.end(turn, "and a last word")
    assert (await crew.answered(turn.turn_id)).reply == "here"
    assert await crew.answers(turn) == ["here"]


async def test_reply_to_human_is_held_and_says_for_what(crew: Led) -> None:
    turn = await crew.prompted()
    await crew.start(turn, "ann")
    said = await crew.reply(turn, "soon")
    assert said.status == draft_pb2.REPLY_STATUS_HELD
    assert [each.agent.name for each in said.waiting_on] == ["ann"]
    assert said.open_todos == 0
    await crew.lead.end(turn, "")
    await crew.report("ann", "42")
    later = await crew.lead.next()
    assert (await crew.reply(later, "it is 42")).status == draft_pb2.REPLY_STATUS_SENT
    await crew.lead.end(later, "I have told them")
    assert (await crew.answered(turn.turn_id)).reply == "it is 42"
    assert await crew.answers(turn) == ["it is 42"]
    assert await crew.held() == []


async def test_a_person_who_waits_gets_the_answer_when_it_is_sent(crew: Led) -> None:
    prompting = asyncio.create_task(crew.prompt(50))
    turn = await crew.lead_next()
    await crew.start(turn, "ann")
    await crew.lead.end(turn, "draft")
    await crew.report("ann", "42")
    assert not prompting.done()
    await crew.lead.end(await crew.lead.next(), "42")
    assert (await prompting).reply == "42"


async def test_a_wait_that_ends_while_it_is_held_says_for_what(crew: Led) -> None:
    prompting = asyncio.create_task(crew.prompt(5))
    turn = await crew.lead_next()
    await crew.start(turn, "ann")
    await crew.lead.end(turn, "draft")
    await crew.mesh.clock.advance(6)
    view = await prompting
    assert (view.status, view.held, [each.name for each in view.waiting_on]) == (RUNNING, True, ["ann"])


async def test_a_released_draft_is_the_answer_and_what_comes_later_is_none(crew: Led) -> None:
    turn = await crew.prompted()
    await crew.start(turn, "ann")
    await crew.lead.end(turn, "as it is")
    released = await crew.release(turn.session_id)
    assert (released.status, released.reply, released.turn_id) == (COMPLETED, "as it is", turn.turn_id)
    again = await crew.release(turn.session_id)
    assert again.reply == "as it is"
    await crew.report("ann", "42")
    await crew.lead.end(await crew.lead.next(), "too late")
    assert await crew.answers(turn) == ["as it is"]
    (event,) = await crew.mesh.events("answer.released")
    assert event.actor_name == "admin"


async def test_what_is_said_beside_an_answer_that_was_given_is_held_for_nothing(crew: Led) -> None:
    turn = await crew.held_with("as it is", "ann")
    await crew.release(turn.session_id)
    await crew.report("ann", "42")
    later = await crew.lead.next()
    await crew.start(later, "bo")
    assert (await crew.reply(later, "by the way")).status == draft_pb2.REPLY_STATUS_SENT
    await crew.lead.end(later, "")
    assert await crew.held() == []
    await crew.report("bo", "43")
    await crew.lead.end(await crew.lead.next(), "and that")
    assert await crew.answers(turn) == ["as it is", "by the way"]


async def test_nothing_is_released_where_nothing_is_held_or_written(crew: Led) -> None:
    turn = await crew.prompted()
    assert (await refusal(crew.release(turn.session_id))).reason == "failed_precondition"
    await crew.start(turn, "ann")
    await crew.lead.end(turn, "")
    error = await refusal(crew.release(turn.session_id))
    assert error.reason == "failed_precondition"
    assert "written no answer" in error.message


async def test_a_reply_to_the_prompt_is_refused_while_its_answer_is_held(crew: Led) -> None:
    turn = await crew.prompted()
    await crew.start(turn, "ann")
    error = await refusal(
        crew.lead.agent.reply(turn.messages[0].id, "early", caller_session_id=turn.session_id)
    )
    assert error.reason == "failed_precondition"
    assert "reply_to_human" in error.message
    await crew.report("ann", "42")
    await crew.lead.end(turn, None)
    later = await crew.lead.next()
    await crew.lead.agent.reply(turn.messages[0].id, "in time", caller_session_id=turn.session_id)
    await crew.lead.end(later, "more")
    assert await crew.answers(turn) == ["in time"]


async def test_another_prompt_in_the_session_is_not_held_for_the_first(crew: Led) -> None:
    turn = await crew.prompted()
    await crew.start(turn, "ann")
    await crew.lead.end(turn, "later")
    other = await crew.prompted(turn.session_id)
    await crew.lead.end(other, "at once")
    assert (await crew.check(other.turn_id)).reply == "at once"
    assert (await crew.check(turn.turn_id)).held


async def test_only_main_agents_answer_people(crew: Led) -> None:
    turn = await crew.prompted()
    await crew.start(turn, "ann")
    ann = await crew.workers["ann"].next()
    request = draft_pb2.ReplyToHumanRequest(text="hello", caller_session_id=ann.session_id)
    error = await refusal(crew.drafts(crew.workers["ann"].agent).ReplyToHuman(request))
    assert error.reason == "failed_precondition"
    assert "report_to_caller" in error.message


async def test_a_session_that_no_person_prompted_has_nobody_to_reply_to(crew: Led) -> None:
    request = draft_pb2.ReplyToHumanRequest(text="hello")
    error = await refusal(crew.drafts(crew.lead.agent).ReplyToHuman(request))
    assert (error.reason, "ask_owner" in error.message) == ("failed_precondition", True)


@pytest.mark.parametrize("what", ["session", "list"])
async def test_people_see_of_a_session_that_it_is_held(crew: Led, what: str) -> None:
    turn = await crew.prompted()
    await crew.start(turn, "ann")
    await crew.lead.end(turn, "draft")
    sessions: Any = crew.mesh.admin.sessions
    if what == "session":
        request = session_pb2.GetSessionRequest(session_id=turn.session_id)
        session = (await sessions.GetSession(request)).session
    else:
        listed = await sessions.ListSessions(session_pb2.ListSessionsRequest(agent=crew.lead.agent.id))
        (session,) = [each for each in listed.sessions if each.id == turn.session_id]
    assert (session.held, [each.name for each in session.waiting_on]) == (True, ["ann"])
