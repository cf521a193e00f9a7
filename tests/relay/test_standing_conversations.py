"""message_agent and send_message_to_session: one conversation for two, and words into a session."""

from __future__ import annotations

import asyncio

import pytest
from hopline.relay.v1 import delegation_pb2 as pb
from hopline.relay.v1 import message_pb2, session_pb2

from tests.support.relay_mesh import Caller, RelayMesh, refusal, start_child

pytestmark = pytest.mark.both_stores


async def _message(sender: Caller, to: Caller, text: str = "hello", **more: str) -> pb.MessageAgentResponse:
    answer: pb.MessageAgentResponse = await sender.turns.MessageAgent(
        pb.MessageAgentRequest(agent=to.id, text=text, **more)
    )
    return answer


async def _say(
    sender: Caller, session_id: str, text: str = "well?", **more: str
) -> pb.SendMessageToSessionResponse:
    answer: pb.SendMessageToSessionResponse = await sender.turns.SendMessageToSession(
        pb.SendMessageToSessionRequest(session_id=session_id, text=text, **more)
    )
    return answer


async def _session(reader: Caller, session_id: str) -> session_pb2.Session:
    found = await reader.sessions.GetSession(session_pb2.GetSessionRequest(session_id=session_id))
    return found.session  # type: ignore[no-any-return] # a stub without types


async def test_two_agents_have_one_conversation_with_an_end_at_each(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    first = await _message(ada, bob)
    theirs = await mesh.worker(bob)
    running = await theirs.next()
    # Also while a turn runs there, what is said next waits in the same session.
    second = await _message(ada, bob)
    assert first.session_id == second.session_id == running.session_id
    assert first.thread_id != second.thread_id
    await theirs.end(running, "so")
    back = await _message(bob, ada)
    assert (back.session_id, back.own_session_id) == (first.own_session_id, first.session_id)
    here, there = await _session(ada, first.own_session_id), await _session(bob, first.session_id)
    assert (here.title, there.title) == ("With bob", "With ada")
    assert (here.peer_session_id, there.peer_session_id) == (there.id, here.id)
    assert there.opened_by.session_id == here.id
    assert [each.id for each in here.opened] == [there.id]


async def test_what_the_other_says_in_the_end_comes_back_and_wakes_the_session_that_spoke(
    mesh: RelayMesh,
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker, theirs = await mesh.worker(ada), await mesh.worker(bob)
    await mesh.admin.sessions.Prompt(session_pb2.PromptRequest(agent="ada", text="go", wait_seconds=0))
    turn = await worker.next()
    said = await _message(ada, bob, "what do you think?", caller_session_id=turn.session_id)
    await worker.end(turn, "")
    serving = await theirs.next()
    assert (serving.cause, serving.depth, serving.messages[0].reply_expected) == ("peer", 1, True)
    await theirs.end(serving, "nothing")
    woken = await worker.next()
    assert (woken.session_id, woken.depth) == (turn.session_id, 0)
    assert (woken.messages[0].body, woken.messages[0].in_reply_to) == ("nothing", said.message_id)


async def test_without_a_session_of_its_own_an_agent_speaks_from_its_end(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    said = await _message(ada, bob)
    theirs = await mesh.worker(bob)
    await theirs.end(await theirs.next(), "so")
    woken = await (await mesh.worker(ada)).next()
    assert (woken.session_id, woken.messages[0].body) == (said.own_session_id, "so")


async def test_who_serves_such_a_message_answers_it_and_writes_none_of_its_own(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    said = await _message(ada, bob)
    theirs = await mesh.worker(bob)
    serving = await theirs.next()
    error = await refusal(_message(bob, ada, caller_session_id=serving.session_id))
    assert (error.reason, error.details["message_id"]) == ("answer_instead", said.message_id)
    await theirs.end(serving, "so")
    assert (await _message(bob, ada)).session_id == said.own_session_id


async def test_both_may_begin_at_once_and_still_have_one_conversation(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    one, other = await asyncio.gather(_message(ada, bob), _message(bob, ada))
    assert (one.session_id, one.own_session_id) == (other.own_session_id, other.session_id)


async def test_a_message_of_a_conversation_ends_with_the_turn_that_was_cancelled(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker, theirs = await mesh.worker(ada), await mesh.worker(bob)
    await mesh.admin.sessions.Prompt(session_pb2.PromptRequest(agent="ada", text="go", wait_seconds=0))
    turn = await worker.next()
    await _message(ada, bob, caller_session_id=turn.session_id)
    child = await start_child(ada, bob, caller_session_id=turn.session_id)
    forgotten = await start_child(ada, bob, caller_session_id=turn.session_id, is_fire_and_forget=True)
    canceled = await mesh.admin.turns.Cancel(pb.CancelRequest(turn_id=turn.turn_id))
    assert canceled.canceled == 3
    assert (await _session(mesh.admin, child.session_id)).child.state == "ended"
    # What nobody waits for goes on.
    assert [each.session_id for each in await theirs.claim()] == [forgotten.session_id]


async def test_a_lead_says_something_in_the_session_of_its_child_and_nothing_is_owed(mesh: RelayMesh) -> None:
    lead, sub = await mesh.agent("lead"), await mesh.agent("sub")
    child = await start_child(lead, sub)
    theirs = await mesh.worker(sub)
    await theirs.end(await theirs.next(), "done")
    await lead.take()
    said = await _say(lead, child.session_id, "and the rest?")
    assert (said.is_delivered, said.is_canceled, said.cancel_reason) == (True, False, "")
    more = await theirs.next()
    assert (more.turn_id, more.session_id, more.continued) == (said.turn_id, child.session_id, True)
    assert (more.messages[0].body, more.messages[0].reply_expected) == ("and the rest?", False)
    await theirs.end(more, "nobody waits for this")
    assert not (await lead.take()).messages
    reported = await sub.turns.ReportToCaller(
        pb.ReportToCallerRequest(text="the rest", caller_session_id=child.session_id)
    )
    assert reported.is_delivered
    assert [message.body for message in (await lead.take()).messages] == ["the rest"]


async def test_a_session_that_is_not_there_for_the_caller_is_data_and_alike_for_all_reasons(
    mesh: RelayMesh,
) -> None:
    ada, bob, eve = await mesh.agent("ada"), await mesh.agent("bob"), await mesh.agent("eve")
    sent = await ada.send(bob)
    asked = await ada.messages.Ask(
        message_pb2.AskRequest(agent="bob", text="so", wait_seconds=0, own_endpoint=True)
    )
    nowhere = pb.SendMessageToSessionResponse()
    for session_id in (sent.deliveries[0].session_id, asked.turn.session_id, "ses_none"):
        assert await _say(eve, session_id) == nowhere
    # Bob runs it, and is not who it is bound to.
    assert await _say(bob, asked.turn.session_id) == nowhere
    await mesh.pause(bob)
    assert await _say(ada, sent.deliveries[0].session_id) == nowhere


async def test_an_agent_says_something_in_another_session_of_its_own_but_not_in_the_one_it_calls_from(
    mesh: RelayMesh,
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await ada.send(bob)
    theirs = await mesh.worker(bob)
    turn = await theirs.next()
    await mesh.admin.sessions.Prompt(session_pb2.PromptRequest(agent="bob", text="go", wait_seconds=0))
    other = await theirs.next()
    assert (await _say(bob, other.session_id, caller_session_id=turn.session_id)).is_delivered
    error = await refusal(_say(bob, turn.session_id, caller_session_id=turn.session_id))
    assert (error.reason, "session_id" in error.message) == ("invalid_argument", True)


async def test_a_lead_prompts_where_its_subagents_work_for_its_crew_alone(mesh: RelayMesh) -> None:
    lead = await mesh.agent("lead")
    one, two = [await mesh.agent(name, is_subagent=True, parent_agent_id=lead.id) for name in ("one", "two")]
    stranger = await mesh.agent("stranger")
    inside, outside = await one.send(two), await stranger.send(two)
    assert (await _say(lead, inside.deliveries[0].session_id)).is_delivered
    assert not (await _say(lead, outside.deliveries[0].session_id)).is_delivered


async def test_a_child_does_not_write_into_the_session_that_waits_for_its_report(mesh: RelayMesh) -> None:
    lead, sub = await mesh.agent("lead"), await mesh.agent("sub")
    # A session of the lead's that the subagent has opened, from which the lead starts it.
    opened = await sub.send(lead)
    session_id = opened.deliveries[0].session_id
    await start_child(lead, sub, caller_session_id=session_id)
    task = await (await mesh.worker(sub)).next()
    error = await refusal(_say(sub, session_id, caller_session_id=task.session_id))
    assert error.reason == "answer_instead"
