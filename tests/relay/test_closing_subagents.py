"""close_subagent: for good, with all that goes on for the child, whatever races with it."""

from __future__ import annotations

import asyncio

from hopline.registry.v1 import identity_pb2
from hopline.relay.v1 import delegation_pb2 as pb
from hopline.relay.v1 import message_pb2, session_pb2
from hopline_relay.domain.values import MESH
from hopline_relay.store import closing
from hopline_relay.turns import ClaimedTurn

from tests.support.relay_mesh import Caller, RelayMesh, Worker, attempt, refusal, start_child


async def _close(caller: Caller, session_id: str) -> pb.CloseSubagentResponse:
    answer: pb.CloseSubagentResponse = await caller.turns.CloseSubagent(
        pb.CloseSubagentRequest(session_id=session_id)
    )
    return answer


async def _crew(mesh: RelayMesh) -> tuple[Caller, Worker, Caller, Worker, ClaimedTurn, pb.ChildStart]:
    """Let a lead start a child in a session of its own; the lead's turn has ended, the child's runs."""
    lead, sub = await mesh.agent("lead"), await mesh.agent("sub")
    worker, theirs = await mesh.worker(lead), await mesh.worker(sub)
    await mesh.admin.sessions.Prompt(session_pb2.PromptRequest(agent="lead", text="go", wait_seconds=0))
    turn = await worker.next()
    child = await start_child(lead, sub, caller_session_id=turn.session_id)
    await worker.end(turn, "")
    return lead, worker, sub, theirs, await theirs.next(), child


async def _report(sub: Caller, session_id: str) -> pb.ReportToCallerResponse:
    answer: pb.ReportToCallerResponse = await sub.turns.ReportToCaller(
        pb.ReportToCallerRequest(text="late", caller_session_id=session_id)
    )
    return answer


async def test_what_a_child_says_of_a_task_that_was_cancelled_wakes_nobody(mesh: RelayMesh) -> None:
    _, worker, sub, _, task, child = await _crew(mesh)
    await mesh.admin.turns.Cancel(pb.CancelRequest(turn_id=task.turn_id))
    assert await _report(sub, child.session_id) == pb.ReportToCallerResponse(cancel_reason="canceled")
    assert {each.cause for each in await worker.claim()} <= {"draft", "notice"}


async def test_a_closed_child_is_stopped_and_wakes_nobody_any_more(mesh: RelayMesh) -> None:
    lead, worker, sub, theirs, task, child = await _crew(mesh)
    await lead.messages.Ask(
        message_pb2.AskRequest(agent="sub", text="more", session_id=child.session_id, wait_seconds=0)
    )
    closed = await _close(lead, child.session_id)
    assert (closed.state, closed.canceled) == ("closed", 2)
    assert not await theirs.end(task, "too late")
    assert await _report(sub, child.session_id) == pb.ReportToCallerResponse(cancel_reason="session_closed")
    assert await theirs.claim() == []
    # But for what it owes the person, of which it was silent.
    assert {each.cause for each in await worker.claim()} <= {"draft"}
    found = await mesh.admin.sessions.GetSession(session_pb2.GetSessionRequest(session_id=child.session_id))
    assert (found.session.state, found.session.child.state) == ("closed", "closed")
    assert not found.session.child.owes_report
    again = await _close(lead, child.session_id)
    assert (again.state, again.canceled) == ("closed", 0)
    assert len(await mesh.events("session.closed")) == 1


async def test_nothing_goes_into_a_closed_session(mesh: RelayMesh) -> None:
    lead, _, sub, _, _, child = await _crew(mesh)
    await _close(lead, child.session_id)
    error = await refusal(lead.ask(sub, session_id=child.session_id))
    assert error.reason == "session_closed"
    said = await lead.turns.SendMessageToSession(
        pb.SendMessageToSessionRequest(session_id=child.session_id, text="still there?")
    )
    assert said == pb.SendMessageToSessionResponse(cancel_reason="session_closed")
    # And none is started from there.
    await mesh.policy(subagent_depth=3)
    error = await refusal(start_child(sub, lead, caller_session_id=child.session_id))
    assert error.reason == "session_closed"


async def test_the_children_of_a_child_are_closed_with_it_however_deep(mesh: RelayMesh) -> None:
    await mesh.policy(subagent_depth=3)
    lead, worker, sub, theirs, task, child = await _crew(mesh)
    third, fourth = await mesh.agent("third"), await mesh.agent("fourth")
    below = await start_child(sub, third, caller_session_id=child.session_id)
    await theirs.end(task, "")
    thirds = await mesh.worker(third)
    running = await thirds.next()
    deepest = await start_child(third, fourth, caller_session_id=below.session_id)
    await worker.end(await worker.next(), "")
    closed = await _close(lead, child.session_id)
    assert closed.canceled == 2
    assert not await thirds.end(running, "late")
    assert await (await mesh.worker(fourth)).claim() == await theirs.claim() == []
    for each in (child, below, deepest):
        found = await mesh.admin.sessions.GetSession(
            session_pb2.GetSessionRequest(session_id=each.session_id)
        )
        assert found.session.state == "closed"


async def test_only_who_started_it_and_who_operates_its_agent_close_a_child(mesh: RelayMesh) -> None:
    _lead, _, sub, _, _task, child = await _crew(mesh)
    eve, yan = await mesh.agent("eve"), await mesh.person("yan")
    model = await refusal(_close(eve, "ses_none"))
    for other in (eve, sub, yan):
        error = await refusal(_close(other, child.session_id))
        assert (error.reason, error.message) == (
            "not_found",
            model.message.replace("ses_none", child.session_id),
        )
    await mesh.grant("yan", identity_pb2.ROLE_VIEWER, "sub")
    assert (await refusal(_close(yan, child.session_id))).reason == "permission_denied"
    await mesh.grant("yan", identity_pb2.ROLE_OPERATOR, "sub")
    assert (await _close(yan, child.session_id)).canceled == 1


async def test_who_waits_for_a_child_that_a_person_closes_is_told(mesh: RelayMesh) -> None:
    _lead, worker, _, _, _, child = await _crew(mesh)
    await _close(mesh.admin, child.session_id)
    woken = await worker.next()
    assert (woken.cause, "closed by admin" in woken.messages[0].body) == ("notice", True)


async def test_a_session_that_is_nobodys_child_is_not_closed(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    sent = await ada.send(bob)
    error = await refusal(_close(ada, sent.deliveries[0].session_id))
    assert error.reason == "failed_precondition"


async def test_a_report_and_a_close_at_once_leave_nothing_open_and_wake_once_at_most(mesh: RelayMesh) -> None:
    for turn_about in range(6):
        lead, sub = await mesh.agent(f"lead{turn_about}"), await mesh.agent(f"sub{turn_about}")
        child = await start_child(lead, sub)
        task = await (await mesh.worker(sub)).next()
        calls = [attempt(_report(sub, task.session_id)), attempt(_close(lead, child.session_id))]
        if turn_about % 2:
            calls.reverse()
        outcomes = await asyncio.gather(*calls)
        report = next(each for each in outcomes if isinstance(each, pb.ReportToCallerResponse))
        bodies = [message.body for message in (await lead.take()).messages]
        assert bodies == (["late"] if report.is_delivered else [])
        found = await mesh.admin.sessions.GetSession(
            session_pb2.GetSessionRequest(session_id=child.session_id)
        )
        assert (found.session.state, found.session.child.owes_report) == ("closed", False)


async def test_a_child_that_is_started_while_its_parent_is_closed_does_not_live_on(mesh: RelayMesh) -> None:
    await mesh.policy(subagent_depth=3)
    lead, _, sub, _, _, child = await _crew(mesh)
    third = await mesh.agent("third")
    started = [attempt(start_child(sub, third, caller_session_id=child.session_id)) for _ in range(5)]
    await asyncio.gather(_close(lead, child.session_id), *started)
    assert await (await mesh.worker(third)).claim() == []


async def test_what_a_process_began_to_close_is_completed_by_the_next(mesh: RelayMesh) -> None:
    _lead, _, _, _theirs, task, child = await _crew(mesh)
    await mesh.relay.journal.write(
        lambda book: closing.close(book, mesh.workspace_id, child.session_id, MESH)
    )
    await mesh.reopen()
    turn = await mesh.admin.turns.GetTurn(pb.GetTurnRequest(turn_id=task.turn_id))
    assert turn.turn.status == message_pb2.TURN_STATUS_CANCELED


async def test_a_copy_that_closes_itself_leaves_nobody_waiting(mesh: RelayMesh) -> None:
    request = pb.StartSelfSubagentRequest(task="count")
    for from_parent in (False, True):
        lead = await mesh.agent(f"lead-{from_parent}")
        child = (await lead.turns.StartSelfSubagent(request)).start
        worker = await mesh.worker(lead)
        copy = await worker.next()
        found = await mesh.admin.sessions.GetSession(
            session_pb2.GetSessionRequest(session_id=child.session_id)
        )
        parent = found.session.child.parent_session_id
        close = pb.CloseSubagentRequest(
            session_id=child.session_id, caller_session_id=parent if from_parent else copy.session_id
        )
        assert (await lead.turns.CloseSubagent(close)).canceled == 1
        told = [message.body for message in (await lead.take()).messages]
        assert len(told) == (0 if from_parent else 1)
        assert all("closed by lead" in each for each in told)


async def test_who_cancels_a_session_ends_the_children_that_earlier_turns_of_it_have_started(
    mesh: RelayMesh,
) -> None:
    lead, sub = await mesh.agent("lead"), await mesh.agent("sub")
    worker, theirs = await mesh.worker(lead), await mesh.worker(sub)
    asked = await mesh.admin.sessions.Prompt(
        session_pb2.PromptRequest(agent="lead", text="go", wait_seconds=0)
    )
    turn = await worker.next()
    await start_child(lead, sub, caller_session_id=turn.session_id)
    await worker.end(turn, "")
    task = await theirs.next()
    await mesh.admin.sessions.Prompt(
        session_pb2.PromptRequest(agent="lead", text="and?", session_id=asked.turn.session_id, wait_seconds=0)
    )
    newer = await worker.next()
    canceled = await mesh.admin.turns.Cancel(pb.CancelRequest(session_id=asked.turn.session_id))
    assert canceled.canceled == 2
    assert not await worker.end(newer, "late")
    assert not await theirs.end(task, "late")
