"""Children: started and gone on at once, what they owe and how that ends."""

from __future__ import annotations

import asyncio

import pytest
from hopline.registry.v1 import agent_pb2
from hopline.relay.v1 import dead_letter_pb2, session_pb2
from hopline.relay.v1 import delegation_pb2 as pb
from hopline_relay.store import children
from hopline_relay.turns import ClaimedTurn

from tests.support.relay_mesh import Caller, RelayMesh, Worker, attempt, refusal, start_child

pytestmark = pytest.mark.both_stores

UUID = "6f9619ff-8b86-d011-b42d-00c04fc964ff"


async def _prompted(mesh: RelayMesh) -> tuple[Caller, Worker, ClaimedTurn]:
    """Have a person prompt a lead; returns it, its worker and the turn that runs."""
    lead = await mesh.agent("lead")
    worker = await mesh.worker(lead)
    await mesh.admin.sessions.Prompt(session_pb2.PromptRequest(agent="lead", text="go", wait_seconds=0))
    return lead, worker, await worker.next()


async def _owing(mesh: RelayMesh, session_id: str, root_id: str = "") -> list[str]:
    rows = await mesh.relay.journal.read(
        lambda connection: children.owing(connection, mesh.workspace_id, session_id, root_id)
    )
    return [row.session_id for row in rows]


async def _report(caller: Caller, text: str, **more: str) -> pb.ReportToCallerResponse:
    answer: pb.ReportToCallerResponse = await caller.turns.ReportToCaller(
        pb.ReportToCallerRequest(text=text, **more)
    )
    return answer


async def test_a_child_is_started_at_once_and_its_final_message_wakes_who_started_it(mesh: RelayMesh) -> None:
    lead, worker, turn = await _prompted(mesh)
    sub = await mesh.agent("sub")
    child = await start_child(lead, sub, "look it up", caller_session_id=turn.session_id)
    assert child.outcome == pb.START_OUTCOME_CREATED
    theirs = await mesh.worker(sub)
    task = await theirs.next()
    assert (task.cause, task.session_id, task.depth) == ("task", child.session_id, 1)
    assert (task.messages[0].body, task.messages[0].reply_expected) == ("look it up", True)
    assert await _owing(mesh, turn.session_id, turn.root_id) == [child.session_id]
    assert await _owing(mesh, turn.session_id, "another root") == []
    await worker.end(turn, "")
    await theirs.end(task, "it is so")
    woken = await worker.next()
    assert (woken.session_id, woken.depth, woken.cause) == (turn.session_id, 0, "answer")
    assert woken.messages[0].body == "it is so"
    assert await _owing(mesh, turn.session_id) == []


async def test_the_first_report_discharges_what_is_owed_and_the_final_message_says_nothing_more(
    mesh: RelayMesh,
) -> None:
    lead, worker, turn = await _prompted(mesh)
    sub = await mesh.agent("sub")
    child = await start_child(lead, sub, caller_session_id=turn.session_id)
    await worker.end(turn, "")
    theirs = await mesh.worker(sub)
    task = await theirs.next()
    reported = await _report(sub, "found", caller_session_id=child.session_id)
    assert (reported.is_delivered, reported.thread_id, reported.depth) == (True, child.thread_id, 0)
    assert await _owing(mesh, turn.session_id) == []
    woken = await worker.next()
    assert (woken.cause, woken.depth, woken.messages[0].body) == ("report", 0, "found")
    await theirs.end(task, "and out")
    assert await worker.claim() == []


async def test_a_further_report_is_a_start_of_the_childs_own(mesh: RelayMesh) -> None:
    lead, worker, turn = await _prompted(mesh)
    sub = await mesh.agent("sub")
    child = await start_child(lead, sub, caller_session_id=turn.session_id)
    await worker.end(turn, "")
    await (await mesh.worker(sub)).next()
    await _report(sub, "one", caller_session_id=child.session_id)
    second = await _report(sub, "two", caller_session_id=child.session_id)
    assert (second.is_delivered, second.depth) == (True, 2)
    assert (await mesh.usage(sub)).sent_today == 2


async def test_a_report_that_is_repeated_is_delivered_once(mesh: RelayMesh) -> None:
    lead, worker, turn = await _prompted(mesh)
    sub = await mesh.agent("sub")
    child = await start_child(lead, sub, caller_session_id=turn.session_id)
    await worker.end(turn, "")
    theirs = await mesh.worker(sub)
    task = await theirs.next()
    first = await _report(sub, "one", caller_session_id=child.session_id, request_id=UUID)
    await theirs.end(task, "")
    again = await _report(sub, "one", caller_session_id=child.session_id, request_id=UUID)
    assert again == first
    assert len(await worker.claim()) == 1


async def test_who_may_not_be_reached_and_who_does_not_exist_are_forbidden_alike(mesh: RelayMesh) -> None:
    lead, _, turn = await _prompted(mesh)
    paused, far = await mesh.agent("paused"), await mesh.agent("far")
    other = await mesh.agent("other-lead")
    await mesh.agent("theirs", is_subagent=True, parent_agent_id=other.id, is_group_only_callable=True)
    await mesh.pause(paused)
    update = agent_pb2.UpdateAgentRequest(agent_ref=lead.id, agent=agent_pb2.Agent(reach=[other.id]))
    update.update_mask.paths.append("reach")
    await mesh.admin.agents.UpdateAgent(update)
    forbidden = pb.ChildStart(outcome=pb.START_OUTCOME_FORBIDDEN)
    for name in ("nobody", "paused", "theirs", "far", far.id):
        assert await start_child(lead, name, caller_session_id=turn.session_id) == forbidden


async def test_a_subagent_starts_no_subagents_unless_the_policy_lets_it(mesh: RelayMesh) -> None:
    lead, _, turn = await _prompted(mesh)
    sub = await mesh.agent("sub", is_subagent=True, parent_agent_id=lead.id)
    plain, other = await mesh.agent("plain"), await mesh.agent("other")
    too_deep = pb.ChildStart(outcome=pb.START_OUTCOME_DEPTH_EXCEEDED)
    # A subagent is one in whatever session it runs, and any agent in the session of a child.
    assert await start_child(sub, other) == too_deep
    child = await start_child(lead, plain, caller_session_id=turn.session_id)
    theirs = await mesh.worker(plain)
    task = await theirs.next()
    assert await start_child(plain, other, caller_session_id=task.session_id) == too_deep
    # Nor by way of an agent that it asks.
    await theirs.ask(task, other)
    asked = await (await mesh.worker(other)).next()
    assert await start_child(other, sub, caller_session_id=asked.session_id) == too_deep
    await mesh.policy(subagent_depth=2)
    below = await start_child(plain, other, caller_session_id=child.session_id)
    assert (below.outcome, below.depth) == (pb.START_OUTCOME_CREATED, 2)


async def test_the_depth_rail_is_an_outcome_too(mesh: RelayMesh) -> None:
    await mesh.policy(max_depth=0)
    lead, _, turn = await _prompted(mesh)
    sub = await mesh.agent("sub")
    child = await start_child(lead, sub, caller_session_id=turn.session_id)
    assert child == pb.ChildStart(outcome=pb.START_OUTCOME_DEPTH_EXCEEDED)


async def test_a_session_has_at_most_20_unfinished_children_and_an_end_makes_room(mesh: RelayMesh) -> None:
    await mesh.policy(pair_budget="0")
    lead, _, turn = await _prompted(mesh)
    sub = await mesh.agent("sub")
    for number in range(20):
        await start_child(
            lead, sub, str(number), caller_session_id=turn.session_id, is_fire_and_forget=number % 2 == 0
        )
    one_more = start_child(lead, sub, caller_session_id=turn.session_id)
    error = await refusal(one_more)
    assert (error.reason, error.details["limit"]) == ("limit_reached", 20)
    theirs = await mesh.worker(sub)
    await theirs.end(await theirs.next(), "done")
    child = await start_child(lead, sub, caller_session_id=turn.session_id)
    assert child.outcome == pb.START_OUTCOME_CREATED
    assert (
        await refusal(start_child(lead, sub, caller_session_id=turn.session_id))
    ).reason == "limit_reached"


async def test_of_many_starts_at_once_no_more_than_20_pass(mesh: RelayMesh) -> None:
    await mesh.policy(pair_budget="0")
    lead, _, turn = await _prompted(mesh)
    sub = await mesh.agent("sub")
    calls = [start_child(lead, sub, str(number), caller_session_id=turn.session_id) for number in range(40)]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(each, pb.ChildStart) for each in outcomes) == 20
    assert (await mesh.usage(lead)).sent_today == 20


async def test_nobody_hears_of_the_end_of_what_was_fired_and_forgotten(mesh: RelayMesh) -> None:
    lead, worker, turn = await _prompted(mesh)
    sub = await mesh.agent("sub")
    await start_child(lead, sub, caller_session_id=turn.session_id, is_fire_and_forget=True)
    assert await _owing(mesh, turn.session_id) == []
    await worker.end(turn, "")
    theirs = await mesh.worker(sub)
    task = await theirs.next()
    assert not task.messages[0].reply_expected
    await theirs.end(task, failure="no")
    assert await worker.claim() == []


async def test_a_child_that_fails_or_ends_without_an_answer_is_told_and_wakes(mesh: RelayMesh) -> None:
    lead, worker, turn = await _prompted(mesh)
    sub, silent = await mesh.agent("sub"), await mesh.agent("silent", reply_mode=1)
    await start_child(lead, sub, caller_session_id=turn.session_id)
    await start_child(lead, silent, caller_session_id=turn.session_id)
    await worker.end(turn, "")
    theirs = await mesh.worker(sub)
    await theirs.end(await theirs.next(), failure="out of words")
    woken = await worker.next()
    assert woken.cause == "notice"
    assert "out of words (turn_failed)" in woken.messages[0].body
    await worker.end(woken, "")
    theirs = await mesh.worker(silent)
    await theirs.end(await theirs.next(), "never told")
    woken = await worker.next()
    assert "ended_without_answer" in woken.messages[0].body


async def test_a_child_whose_agent_is_paused_or_deleted_is_told_and_wakes(mesh: RelayMesh) -> None:
    lead, worker, turn = await _prompted(mesh)
    one, two = await mesh.agent("one"), await mesh.agent("two")
    for sub in (one, two):
        await start_child(lead, sub, caller_session_id=turn.session_id)
    await worker.end(turn, "")
    await mesh.pause(one)
    woken = await worker.next()
    assert woken.messages[0].body.startswith("one did not answer")
    await worker.end(woken, "")
    await mesh.delete(two)
    woken = await worker.next()
    assert woken.messages[0].body.startswith("two did not answer")
    assert await _owing(mesh, turn.session_id) == []


async def test_a_copy_of_the_caller_runs_in_a_session_of_its_own_and_reports_to_the_first(
    mesh: RelayMesh,
) -> None:
    lead, worker, turn = await _prompted(mesh)
    request = pb.StartSelfSubagentRequest(task="count", caller_session_id=turn.session_id)
    child = (await lead.turns.StartSelfSubagent(request)).start
    assert (child.outcome, child.agent.id) == (pb.START_OUTCOME_CREATED, lead.id)
    copy = await worker.next()
    assert copy.session_id == child.session_id != turn.session_id
    again = (
        await lead.turns.StartSelfSubagent(
            pb.StartSelfSubagentRequest(task="count", caller_session_id=copy.session_id)
        )
    ).start
    assert again.outcome == pb.START_OUTCOME_DEPTH_EXCEEDED
    # From beside it another one starts all the same.
    beside = (await lead.turns.StartSelfSubagent(request)).start
    assert beside.outcome == pb.START_OUTCOME_CREATED
    await worker.end(turn, "")
    await worker.end(copy, "three")
    woken = next(each for each in await worker.claim() if each.session_id == turn.session_id)
    assert woken.messages[0].body == "three"


async def test_the_name_of_the_caller_itself_is_no_subagent_and_it_is_told_how_to_start_a_copy(
    mesh: RelayMesh,
) -> None:
    lead, _, turn = await _prompted(mesh)
    error = await refusal(start_child(lead, lead, caller_session_id=turn.session_id))
    assert error.reason == "invalid_argument"
    assert "start_self_subagent" in error.message


async def test_where_nobody_waits_there_is_nobody_to_report_to(mesh: RelayMesh) -> None:
    lead, _, turn = await _prompted(mesh)
    for session_id in (turn.session_id, ""):
        error = await refusal(_report(lead, "so", caller_session_id=session_id))
        assert (error.reason, "nobody waits" in error.message) == ("failed_precondition", True)


async def test_a_report_answers_the_ask_that_its_turn_works_on(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    asked = await ada.ask(bob)
    turn = await (await mesh.worker(bob)).next()
    assert (await _report(bob, "yes", caller_session_id=turn.session_id)).is_delivered
    assert (await ada.check(asked.turn_id)).reply == "yes"


async def test_of_several_tasks_that_were_pulled_at_once_a_report_names_none(mesh: RelayMesh) -> None:
    lead, worker, turn = await _prompted(mesh)
    sub = await mesh.agent("sub")
    await start_child(lead, sub, "one", caller_session_id=turn.session_id)
    await worker.end(turn, "")
    await sub.take()
    assert (await _report(sub, "so")).is_delivered
    assert (await worker.next()).messages[0].body == "so"
    for task in ("two", "three"):
        await start_child(lead, sub, task)
    taken = await sub.take()
    error = await refusal(_report(sub, "which?"))
    assert error.details["message_ids"] == [message.id for message in taken.messages]
    await sub.reply(taken.messages[0].id, "two")
    assert (await _report(sub, "three")).is_delivered


async def test_the_children_of_a_deleted_lead_are_stopped_though_its_turn_has_ended(mesh: RelayMesh) -> None:
    lead, worker, turn = await _prompted(mesh)
    running, waiting = await mesh.agent("running"), await mesh.agent("waiting")
    for sub in (running, waiting):
        await start_child(lead, sub, caller_session_id=turn.session_id)
    theirs = await mesh.worker(running)
    task = await theirs.next()
    await worker.end(turn, "")
    await mesh.delete(lead)
    assert not await theirs.end(task, "for nobody")
    assert await (await mesh.worker(waiting)).claim() == []


async def test_a_report_and_the_deletion_of_the_lead_at_once_leave_nothing_open(mesh: RelayMesh) -> None:
    for turn_about in range(4):
        lead, sub = await mesh.agent(f"lead-{turn_about}"), await mesh.agent(f"sub-{turn_about}")
        child = await start_child(lead, sub)
        task = await (await mesh.worker(sub)).next()
        calls = [attempt(_report(sub, "so", caller_session_id=task.session_id)), mesh.delete(lead)]
        if turn_about % 2:
            calls.reverse()
        await asyncio.gather(*calls)
        found = await mesh.admin.sessions.GetSession(
            session_pb2.GetSessionRequest(session_id=child.session_id)
        )
        assert not found.session.child.owes_report
        late = await _report(sub, "late", caller_session_id=task.session_id)
        assert not late.is_delivered
        # Whichever came first: its task went with the lead, or it had reported before.
        assert late.cancel_reason == "canceled" or "no longer there" in late.cancel_reason


async def test_of_two_reports_at_once_one_discharges_and_the_other_is_a_start(mesh: RelayMesh) -> None:
    lead, worker, turn = await _prompted(mesh)
    sub = await mesh.agent("sub")
    child = await start_child(lead, sub, caller_session_id=turn.session_id)
    await worker.end(turn, "")
    await (await mesh.worker(sub)).next()
    reports = await asyncio.gather(
        *(_report(sub, str(number), caller_session_id=child.session_id) for number in range(2))
    )
    assert sorted(report.depth for report in reports) == [0, 2]
    assert await _owing(mesh, turn.session_id) == []


async def test_a_report_and_the_end_of_its_turn_at_once_wake_the_lead_once_for_the_task(
    mesh: RelayMesh,
) -> None:
    for turn_about in range(4):
        lead, sub = await mesh.agent(f"lead-{turn_about}"), await mesh.agent(f"sub-{turn_about}")
        child = await start_child(lead, sub)
        theirs = await mesh.worker(sub)
        task = await theirs.next()
        report = attempt(_report(sub, "reported", caller_session_id=child.session_id))
        calls = [report, theirs.end(task, "ended")]
        if turn_about % 2:
            calls.reverse()
        await asyncio.gather(*calls)
        bodies = [message.body for message in (await lead.take()).messages]
        # The end may come first: then the report is one more message of the child's own.
        assert bodies in (["reported"], ["ended", "reported"])


async def test_children_and_their_limit_survive_a_restart(mesh: RelayMesh) -> None:
    await mesh.policy(pair_budget="0")
    lead, _, turn = await _prompted(mesh)
    sub = await mesh.agent("sub")
    for number in range(20):
        await start_child(lead, sub, str(number), caller_session_id=turn.session_id)
    await mesh.reopen()
    assert len(await _owing(mesh, turn.session_id, turn.root_id)) == 20
    error = await refusal(start_child(lead, sub, caller_session_id=turn.session_id))
    assert error.reason == "limit_reached"


async def test_a_child_that_nobody_took_is_told_and_lives_again_when_it_is_retried(mesh: RelayMesh) -> None:
    await mesh.policy(queue_seconds=60)
    lead, sub = await mesh.agent("lead"), await mesh.agent("sub")
    child = await start_child(lead, sub)
    await mesh.passes(61)
    [told] = (await lead.take()).messages
    assert "deadline_exceeded" in told.body
    parent = (await mesh.admin.turns.GetTurn(pb.GetTurnRequest(turn_id=told.deliveries[0].turn_id))).turn
    assert await _owing(mesh, parent.session_id) == []
    letters = dead_letter_pb2.RetryDeadLettersRequest(turn_ids=[child.turn_id])
    await mesh.admin.letters.RetryDeadLetters(letters)
    assert await _owing(mesh, parent.session_id) == [child.session_id]
    theirs = await mesh.worker(sub)
    await theirs.end(await theirs.next(), "at last")
    assert [message.body for message in (await lead.take()).messages] == ["at last"]
