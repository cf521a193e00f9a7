"""The mesh's own hooks, switched on for a workspace: credentials go, reports without evidence are marked."""

from __future__ import annotations

import json

import pytest
from hopline.relay.v1 import delegation_pb2 as pb
from hopline.relay.v1 import message_pb2, session_pb2
from hopline_relay.domain.evidence import UNVERIFIED
from hopline_relay.store import children
from hopline_relay.turns import ClaimedTurn

from tests.support.hook_rig import HookRig, passes, rewrite, veto
from tests.support.relay_mesh import Caller, RelayMesh, Worker, start_child

TOKEN = "ghp_" + "a1B2" * 9
REMOVED = "[github token removed]"


async def test_a_credential_reaches_nobody_while_it_is_switched_on(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await mesh.policy(redact_credentials=True)
    sent = await ada.send(
        bob, text=f"use {TOKEN}", subject=f"about {TOKEN}", payload_json=json.dumps({"token": TOKEN})
    )
    (message,) = (await bob.take()).messages
    assert (message.body, message.subject) == (f"use {REMOVED}", f"about {REMOVED}")
    assert json.loads(message.payload_json) == {"token": REMOVED}
    assert [each.body for each in await mesh.thread(sent.thread_id, ada)] == [f"use {REMOVED}"]
    (event,) = await mesh.events("hook.rewrote")
    assert (event.actor_kind, event.details["hook"]) == ("mesh", "redact_credentials")
    for file in mesh.folder.glob("*.db*"):
        assert TOKEN.encode() not in file.read_bytes()
    await mesh.policy(redact_credentials=False)
    assert not mesh.relay.hooks.active
    await ada.send(bob, text=f"use {TOKEN}")
    assert (await bob.take()).messages[0].body == f"use {TOKEN}"


async def test_an_answer_and_a_reply_are_redacted_too_and_what_a_person_says_is_not(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await mesh.policy(redact_credentials=True)
    worker = await mesh.worker(bob)
    view = await ada.ask(bob)
    await worker.end(await worker.next(), f"it is {TOKEN}")
    assert (await ada.check(view.turn_id)).reply == f"it is {REMOVED}"
    await mesh.admin.send(ada, text=f"here: {TOKEN}")
    (message,) = (await ada.take()).messages
    assert message.body == f"here: {TOKEN}"
    await bob.send(ada, text="which?")
    (asked,) = (await ada.take()).messages
    await ada.reply(asked.id, f"this: {TOKEN}")
    assert (await worker.next()).messages[0].body == f"this: {REMOVED}"


async def test_what_is_built_in_comes_before_every_plugin(mesh: RelayMesh) -> None:
    rig = HookRig(mesh)
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await mesh.policy(redact_credentials=True)
    rig.add("abe", lambda asked: rewrite(asked.text + "!"), order=-1000)
    await ada.send(bob, text=f"use {TOKEN}")
    assert rig.texts("abe") == [f"use {REMOVED}"]
    assert (await bob.take()).messages[0].body == f"use {REMOVED}!"


async def test_what_is_switched_on_holds_after_a_restart_and_in_its_own_workspace_alone(
    mesh: RelayMesh,
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await mesh.policy(redact_credentials=True)
    stranger = await mesh.foreign_agent("stranger")
    there = Caller(mesh, "", mesh.admin.token, "other")
    other = await mesh.agent("other", there)
    await mesh.reopen()
    await ada.send(bob, text=TOKEN)
    assert (await bob.take()).messages[0].body == REMOVED
    await stranger.send(other, text=TOKEN)
    assert (await other.take()).messages[0].body == TOKEN


# --- reports ---------------------------------------------------------------------------------------


async def _child(mesh: RelayMesh) -> tuple[Worker, Caller, Worker, ClaimedTurn]:
    """Have a lead start a subagent; returns the lead's worker, the subagent, its worker and its turn."""
    lead = await mesh.agent("lead")
    sub = await mesh.agent("sub", is_subagent=True, parent_agent_id=lead.id)
    worker, theirs = await mesh.worker(lead), await mesh.worker(sub)
    await mesh.admin.sessions.Prompt(session_pb2.PromptRequest(agent="lead", text="go", wait_seconds=0))
    turn = await worker.next()
    await start_child(lead, sub, "build it", caller_session_id=turn.session_id)
    await worker.end(turn, "")
    return worker, sub, theirs, await theirs.next()


async def _report(sub: Caller, task: ClaimedTurn, text: str) -> pb.ReportToCallerResponse:
    request = pb.ReportToCallerRequest(text=text, caller_session_id=task.session_id)
    answer: pb.ReportToCallerResponse = await sub.turns.ReportToCaller(request)
    return answer


@pytest.mark.parametrize("by", ["report", "reply", "answer"])
async def test_a_report_that_claims_to_be_done_without_evidence_is_marked_for_the_lead(
    mesh: RelayMesh, by: str
) -> None:
    await mesh.policy(evidence_required=True)
    worker, sub, theirs, task = await _child(mesh)
    if by == "report":
        assert (await _report(sub, task, "All done.")).is_delivered
    elif by == "reply":
        request = message_pb2.ReplyRequest(message_id=task.messages[0].id, text="All done.")
        await mesh.relay.handlers.reply(await theirs.principal(), request, turn_id=task.turn_id)
    else:
        await theirs.end(task, "All done.")
    (message,) = (await worker.next()).messages
    assert message.body == f"All done.\n\n{UNVERIFIED}"


async def test_reports_with_evidence_and_other_messages_are_left_alone(mesh: RelayMesh) -> None:
    await mesh.policy(evidence_required=True)
    worker, sub, _, task = await _child(mesh)
    await _report(sub, task, "Done, 12 passed.")
    assert (await worker.next()).messages[0].body == "Done, 12 passed."
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await ada.send(bob, text="All done.")
    assert (await bob.take()).messages[0].body == "All done."


async def test_the_first_task_of_a_subagent_goes_through_no_hook_and_its_report_is_told_as_one(
    mesh: RelayMesh,
) -> None:
    rig = HookRig(mesh)
    rig.add("abe", passes)
    worker, sub, _, task = await _child(mesh)
    assert not rig.asked
    await _report(sub, task, "found")
    ((_, asked),) = rig.asked
    assert (asked.kind, asked.is_subagent_report, asked.text) == ("report", True, "found")
    assert asked.in_reply_to == task.messages[0].id
    assert (await worker.next()).messages[0].body == "found"


async def test_a_vetoed_report_is_data_for_its_author_and_no_lead_is_held_for_it(mesh: RelayMesh) -> None:
    rig = HookRig(mesh)
    rig.add("abe", lambda asked: veto("report claims done without evidence"))
    worker, sub, theirs, task = await _child(mesh)
    reported = await _report(sub, task, "done")
    assert (reported.is_delivered, reported.is_canceled) == (False, True)
    assert reported.cancel_reason == "report claims done without evidence"
    woken = await worker.next()
    assert "withheld" in woken.messages[0].body
    owing = await mesh.relay.journal.read(
        lambda connection: children.owing(connection, mesh.workspace_id, woken.session_id, "")
    )
    assert not list(owing)
    await theirs.end(task, "and out")
    assert await worker.claim() == []


async def test_a_vetoed_message_to_an_agent_or_a_session_is_data(mesh: RelayMesh) -> None:
    rig = HookRig(mesh)
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    first = await ada.send(bob)
    rig.add("abe", lambda asked: veto("hush") if asked.text == "loud" else rewrite(""))
    for text, reason in (("loud", "hush"), ("void", "")):
        said = await ada.turns.MessageAgent(pb.MessageAgentRequest(agent="bob", text=text))
        assert (said.message_id, said.session_id) == ("", "")
        assert (said.is_canceled, said.cancel_reason) == (bool(reason), reason)
        there = first.deliveries[0].session_id
        request = pb.SendMessageToSessionRequest(session_id=there, text=text)
        told = await ada.turns.SendMessageToSession(request)
        assert (told.is_delivered, told.is_canceled, told.cancel_reason) == (False, bool(reason), reason)
    assert [request.kind for _, request in rig.asked] == ["peer"] * 4
    assert len((await bob.take()).messages) == 1
