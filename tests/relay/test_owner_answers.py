"""How questions to owners end: who may end them, once, in time, and what the agent and the log hear of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hopline.registry.v1 import agent_pb2
from hopline.relay.v1 import delegation_pb2
from hopline.relay.v1 import escalation_pb2 as esc
from hopline.relay.v1 import message_pb2 as pb
from hopline_rpc.errors import HoplineError

from tests.support.owners import (
    ANSWERED,
    DAY,
    EXPIRED,
    PENDING,
    WITHDRAWN,
    answer,
    ask_owner,
    ask_within,
    listed,
    look,
    waits,
    withdraw,
)
from tests.support.relay_mesh import Caller, RelayMesh, attempt, refusal

VIEWER, OPERATOR, ADMIN = 1, 2, 3


async def give(mesh: RelayMesh, agent: Caller, owner: str) -> None:
    """Give an agent to another owner."""
    request = agent_pb2.UpdateAgentRequest(agent_ref=agent.id, agent=agent_pb2.Agent(owner_id=owner))
    request.update_mask.paths.append("owner_id")
    await mesh.admin.agents.UpdateAgent(request)


async def get(person: Caller, escalation_id: str) -> esc.Escalation:
    request = esc.GetEscalationRequest(escalation_id=escalation_id)
    response: esc.GetEscalationResponse = await person.escalations.GetEscalation(request)
    return response.escalation


async def test_of_two_answers_at_once_one_counts_and_the_other_is_told_so(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    zoe = await mesh.person("zoe", OPERATOR)
    for number in range(10):
        pending = await ask_owner(ada, f"question {number}")
        outcomes = await asyncio.gather(
            attempt(answer(mesh.admin, pending.id, "yes")), attempt(answer(zoe, pending.id, "no"))
        )
        [won] = [each for each in outcomes if not isinstance(each, HoplineError)]
        [lost] = [each for each in outcomes if isinstance(each, HoplineError)]
        assert lost.reason == "failed_precondition"
        assert f"it is answered by {won.ended_by.name}" in lost.message
        [message] = (await ada.take()).messages
        assert message.body == won.answer
    assert len(await mesh.events("escalation.answered")) == 10


async def test_the_same_answer_of_the_same_person_again_changes_nothing(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    zoe = await mesh.person("zoe", OPERATOR)
    pending = await ask_owner(ada)
    once = await answer(mesh.admin, pending.id)
    assert await answer(mesh.admin, pending.id) == once
    assert (await refusal(answer(zoe, pending.id))).reason == "failed_precondition"
    assert (await refusal(answer(mesh.admin, pending.id, "no"))).reason == "failed_precondition"
    assert (await refusal(withdraw(mesh.admin, pending.id))).reason == "failed_precondition"
    assert len(await mesh.thread(pending.thread_id)) == 2


async def test_an_answer_is_one_of_the_options_in_its_very_letters(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    pending = await ask_owner(ada, options=["yes", "no"])
    for text in ("Yes", "yes ", "maybe"):
        error = await refusal(answer(mesh.admin, pending.id, text))
        assert error.reason == "invalid_argument"
        assert "'yes', 'no'" in error.message
    assert (await answer(mesh.admin, pending.id, "no")).answer == "no"
    assert "has ended before" in (await refusal(answer(mesh.admin, pending.id, "maybe"))).message


@pytest.mark.parametrize(("size", "ok"), [(0, False), (1, True), (65_536, True), (65_537, False)])
async def test_an_answer_has_a_size(mesh: RelayMesh, size: int, ok: bool) -> None:
    pending = await ask_owner(await mesh.agent("ada"))
    if ok:
        assert len((await answer(mesh.admin, pending.id, "x" * size)).answer) == size
    else:
        assert (await refusal(answer(mesh.admin, pending.id, "x" * size))).reason == "invalid_argument"


async def test_who_holds_what_may_do_what(mesh: RelayMesh) -> None:
    owner = await mesh.person("owner", OPERATOR)
    ada = await mesh.agent("ada", owner)
    viewer, operator, stranger = [await mesh.person(name) for name in ("viewer", "operator", "stranger")]
    await mesh.grant("viewer", VIEWER, "ada")
    await mesh.grant("operator", OPERATOR, "ada")
    pending = await ask_owner(ada)
    assert pending.owner.name == "owner"
    for reader in (owner, viewer, operator, mesh.admin):
        assert [each.id for each in await listed(reader)] == [pending.id]
        assert (await get(reader, pending.id)).question == "Deploy now?"
    assert await listed(stranger) == []
    for call in (answer, withdraw):
        assert (await refusal(call(viewer, pending.id))).reason == "permission_denied"
    # To others it is not there, in the words for what never existed.
    attempts: tuple[Callable[[Caller, str], Awaitable[Any]], ...] = (answer, withdraw, get)
    for attempted in attempts:
        hidden = await refusal(attempted(stranger, pending.id))
        unknown = await refusal(attempted(stranger, "esc_0"))
        assert hidden.reason == unknown.reason == "not_found"
        assert unknown.message.replace("esc_0", pending.id) == hidden.message
    assert (await refusal(listed(stranger, agent="ada"))).reason == "not_found"
    assert (await answer(operator, pending.id, "on behalf")).ended_by.name == "operator"
    [message] = (await ada.take()).messages
    assert getattr(message, "from").name == "operator"


async def test_nothing_of_another_workspace_is_seen_or_answered(mesh: RelayMesh) -> None:
    foreign = await mesh.foreign_agent("spy")
    pending = await ask_owner(foreign)
    ada = await mesh.agent("ada")
    assert await listed(mesh.admin) == []
    for call in (answer(mesh.admin, pending.id), get(mesh.admin, pending.id), look(ada, pending.id)):
        assert (await refusal(call)).reason == "not_found"


async def test_questions_are_listed_newest_first_page_by_page(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    asked = []
    for number in range(5):
        asked.append((await ask_owner(ada, f"question {number}")).id)
        asked.append((await ask_owner(bob, f"question {number}")).id)
    await answer(mesh.admin, asked[3])
    for every, wanted in ((True, asked[::-1]), (False, [each for each in asked[::-1] if each != asked[3]])):
        found: list[str] = []
        token = ""
        while True:
            request = esc.ListEscalationsRequest(all=every, page_size=3, page_token=token)
            page = await mesh.admin.escalations.ListEscalations(request)
            found += [each.id for each in page.escalations]
            if not (token := page.next_page_token):
                break
        assert found == wanted
    assert {each.agent.name for each in await listed(mesh.admin, agent="bob", all=True)} == {"bob"}


async def test_what_nobody_answers_expires_after_a_day_with_an_answer_that_says_so(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    pending = await ask_owner(ada)
    assert pending.expires_at.ToSeconds() - pending.created_at.ToSeconds() == DAY
    await mesh.skip(DAY - 1)
    await mesh.relay._escalations.expire()
    assert (await look(ada, pending.id)).status == PENDING
    await mesh.skip(1)
    await mesh.relay._escalations.expire()
    found = await get(mesh.admin, pending.id)
    assert found.status == EXPIRED
    assert "did not answer within 24 h" in found.answer
    [message] = (await ada.take()).messages
    assert (message.body, getattr(message, "from").kind) == (found.answer, "mesh")
    assert message.escalation_id == pending.id
    assert (await look(ada, pending.id)).answer == found.answer
    error = await refusal(answer(mesh.admin, pending.id))
    assert (error.reason, "it is expired" in error.message) == ("failed_precondition", True)


async def test_a_call_that_waits_hears_that_its_question_expires(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    pending = await ask_owner(ada)
    await mesh.skip(DAY - 10)
    asking = asyncio.create_task(look(ada, pending.id, wait=50))
    await waits(mesh, ada)
    await mesh.skip(11)
    await mesh.relay._escalations.expire()
    assert (await asking).status == EXPIRED
    assert not (await ada.take()).messages


async def test_a_person_takes_a_question_back_and_the_agent_is_told_why(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    pending = await ask_owner(ada)
    ended = await withdraw(mesh.admin, pending.id, "ask again on Monday")
    assert (ended.status, ended.ended_by.name) == (WITHDRAWN, "admin")
    [message] = (await ada.take()).messages
    assert "ask again on Monday" in message.body
    assert await withdraw(mesh.admin, pending.id) == ended
    assert (await refusal(answer(mesh.admin, pending.id))).reason == "failed_precondition"


async def test_cancelling_the_turn_takes_its_question_back_and_wakes_nobody(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await ada.ask(bob)
    worker = await mesh.worker(bob)
    turn = await worker.next()
    asking = asyncio.create_task(ask_within(worker, turn, wait=50))
    identifier = await waits(mesh, bob)
    await ada.turns.Cancel(delegation_pb2.CancelRequest(turn_id=turn.turn_id))
    found = await asking
    assert (found.id, found.status) == (identifier, WITHDRAWN)
    assert "the turn that asked was canceled" in found.answer
    assert not await worker.claim()
    assert (await refusal(ask_within(worker, turn, "Again?"))).reason == "failed_precondition"


async def test_cancelling_work_that_has_ended_takes_back_what_it_still_asks(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    asked = await ada.ask(bob)
    worker = await mesh.worker(bob)
    turn = await worker.next()
    pending = await ask_within(worker, turn)
    await worker.end(turn, "the rest comes later")
    assert (await get(mesh.admin, pending.id)).status == PENDING
    await mesh.admin.turns.Cancel(delegation_pb2.CancelRequest(turn_id=asked.turn_id))
    assert (await get(mesh.admin, pending.id)).status == WITHDRAWN


async def test_an_answer_on_its_way_is_cancelled_with_the_turn_that_asked(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    asked = await ada.ask(bob)
    worker = await mesh.worker(bob)
    turn = await worker.next()
    pending = await ask_within(worker, turn)
    await answer(mesh.admin, pending.id)
    await mesh.admin.turns.Cancel(delegation_pb2.CancelRequest(turn_id=asked.turn_id))
    assert not await worker.claim()


async def test_one_message_less_of_a_pull_leaves_its_question(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    first, second = await ada.ask(bob, "one"), await ada.ask(bob, "two")
    assert len((await bob.take()).messages) == 2
    pending = await ask_owner(bob)
    await ada.turns.Cancel(delegation_pb2.CancelRequest(turn_id=first.turn_id))
    assert (await look(bob, pending.id)).status == PENDING
    assert (await ada.check(second.turn_id)).status == pb.TURN_STATUS_WAITING_FOR_OWNER
    await ada.turns.Cancel(delegation_pb2.CancelRequest(turn_id=second.turn_id))
    assert (await look(bob, pending.id)).status == WITHDRAWN


@pytest.mark.parametrize("how", ["pause", "delete"])
async def test_an_agent_that_is_paused_or_deleted_asks_no_more(mesh: RelayMesh, how: str) -> None:
    ada = await mesh.agent("ada")
    pending = await ask_owner(ada)
    await getattr(mesh, how)(ada)
    found = await get(mesh.admin, pending.id)
    assert found.status == WITHDRAWN
    assert how in found.answer
    assert (await refusal(answer(mesh.admin, pending.id))).reason == "failed_precondition"
    if how == "pause":
        await mesh.resume(ada)
        assert not (await ada.take()).messages


async def test_a_question_follows_its_agent_to_another_owner(mesh: RelayMesh) -> None:
    first = await mesh.person("first", OPERATOR)
    second = await mesh.person("second")
    ada = await mesh.agent("ada", first)
    pending = await ask_owner(ada)
    await give(mesh, ada, "second")
    [found] = await listed(second)
    assert (found.id, found.owner.name) == (pending.id, "second")
    await answer(second, pending.id, "mine now")
    assert (await look(ada, pending.id)).answer == "mine now"
    [moved] = await mesh.events("escalation.moved")
    assert moved.details["new_owner_id"] == second.id


async def test_every_step_stands_in_the_log(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    answered, expired, withdrawn = [await ask_owner(ada, name) for name in ("a", "b", "c")]
    await answer(mesh.admin, answered.id)
    await withdraw(mesh.admin, withdrawn.id, "why not")
    await mesh.skip(DAY)
    await mesh.relay._escalations.expire()
    events = await mesh.events("escalation.", agent="ada")
    assert [(event.action, event.actor_name, event.details["escalation_id"]) for event in events] == [
        ("escalation.asked", "ada", answered.id),
        ("escalation.asked", "ada", expired.id),
        ("escalation.asked", "ada", withdrawn.id),
        ("escalation.answered", "admin", answered.id),
        ("escalation.withdrawn", "admin", withdrawn.id),
        ("escalation.expired", "the mesh", expired.id),
    ]
    assert events[4].details["reason"] == "why not"


async def test_a_restart_loses_no_question_and_no_answer(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    asked, told = await ask_owner(ada), await ask_owner(bob)
    await answer(mesh.admin, told.id, "before")
    await mesh.reopen()
    assert [message.body for message in (await bob.take()).messages] == ["before"]
    await answer(mesh.admin, asked.id, "after")
    assert [message.body for message in (await ada.take()).messages] == ["after"]


async def test_an_answer_that_a_killed_process_was_about_to_hand_over_is_delivered_once(
    mesh: RelayMesh,
) -> None:
    ada = await mesh.agent("ada")
    asking = asyncio.create_task(ask_owner(ada, wait=50))
    identifier = await waits(mesh, ada)
    # What a kill between the commit and the answer leaves behind: the wait's row, and nobody who waits.
    mesh.relay.waits.forget = lambda workspace_id, waiter: None  # type: ignore[method-assign]
    await answer(mesh.admin, identifier, "on the edge")
    assert (await asking).status == ANSWERED
    await mesh.reopen()
    assert [message.body for message in (await ada.take()).messages] == ["on the edge"]
    await mesh.reopen()
    assert not (await ada.take()).messages


async def test_what_happened_while_the_relay_was_away_is_caught_up_with(mesh: RelayMesh) -> None:
    owner = await mesh.person("owner", OPERATOR)
    agents = [await mesh.agent(name, owner) for name in ("paused", "deleted", "given")]
    asked = [await ask_owner(agent) for agent in agents]
    await mesh.close_relay()
    await mesh.pause(agents[0])
    await mesh.delete(agents[1])
    await mesh.person("second")
    await give(mesh, agents[2], "second")
    await mesh.open_relay()
    found = [await get(mesh.admin, each.id) for each in asked]
    assert [each.status for each in found] == [WITHDRAWN, WITHDRAWN, PENDING]
    assert found[2].owner.name == "second"


async def test_people_see_that_a_turn_waits_for_its_owner(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await ada.ask(bob)
    worker = await mesh.worker(bob)
    turn = await worker.next()
    pending = await ask_within(worker, turn)

    async def statuses() -> list[int]:
        one = await mesh.admin.turns.GetTurn(delegation_pb2.GetTurnRequest(turn_id=turn.turn_id))
        all_ = await mesh.admin.turns.ListTurns(delegation_pb2.ListTurnsRequest())
        return [one.turn.status, *(each.status for each in all_.turns)]

    assert await statuses() == [pb.TURN_STATUS_WAITING_FOR_OWNER] * 2
    await answer(mesh.admin, pending.id)
    assert pb.TURN_STATUS_WAITING_FOR_OWNER not in await statuses()


async def test_a_receive_only_agent_asks_its_owner_and_answers_whoever_asked(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    box = await mesh.agent("box", kind=agent_pb2.AGENT_KIND_RECEIVE_ONLY)
    asked = await ada.ask(box, "May I?")
    [message] = (await box.take()).messages
    pending = await ask_owner(box, "May ada?")
    assert (await refusal(box.ask(ada))).reason == "receive_only"
    await answer(mesh.admin, pending.id, "she may")
    assert (await look(box, pending.id)).answer == "she may"
    await box.reply(message.id, "you may")
    assert (await ada.check(asked.turn_id)).reply == "you may"
