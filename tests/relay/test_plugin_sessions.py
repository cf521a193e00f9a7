"""What plugins do in sessions that they were handed: as whom, by which rules, and at what it counts."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hopline.relay.v1 import message_pb2, session_pb2
from hopline.relay.v1 import plugin_session_pb2 as pb
from hopline_relay.domain.handing import Handed
from hopline_rpc.errors import HoplineError

from tests.support.plugins import Plugin, install, uninstall
from tests.support.relay_mesh import Caller, RelayMesh


async def prompt(mesh: RelayMesh, agent: Caller, text: str = "hello", **more: Any) -> Any:
    request = session_pb2.PromptRequest(agent=agent.id, text=text, wait_seconds=0, **more)
    return (await mesh.admin.sessions.Prompt(request)).turn


def hand(mesh: RelayMesh, plugin: Plugin, session_id: str, **at: Any) -> None:
    """Hand a session to a plugin, as an event would."""
    record = mesh.relay.directory.plugin(mesh.workspace_id, plugin.id)
    assert record is not None
    handed = Handed(session_id, **{"depth": 0, "root_id": "", "generation": 0, **at})
    mesh.relay.grants.hand(record, handed)


async def spawn(plugin: Plugin, session_id: str, agent: str = "", task: str = "look", **more: Any) -> Any:
    request = pb.SpawnSubagentRequest(session_id=session_id, agent=agent, task=task, **more)
    return await plugin.chat.SpawnSubagent(request)


async def send(plugin: Plugin, session_id: str, to: str, text: str = "well?", **more: Any) -> Any:
    return await plugin.chat.SendPeer(
        pb.SendPeerRequest(session_id=session_id, to_session_id=to, text=text, **more)
    )


async def read(plugin: Plugin, session_id: str, of: str = "", **more: Any) -> Any:
    request = pb.ReadConversationRequest(session_id=session_id, of_session_id=of, **more)
    return await plugin.chat.ReadConversation(request)


async def post(plugin: Plugin, session_id: str, text: str = "news", **more: Any) -> str:
    request = pb.PostMessageRequest(session_id=session_id, text=text, **more)
    return str((await plugin.chat.PostMessage(request)).message_id)


CALLS: dict[str, Any] = {
    "spawn": lambda plugin, session_id: spawn(plugin, session_id, "helper"),
    "send": lambda plugin, session_id: send(plugin, session_id, "ses_other"),
    "read": lambda plugin, session_id: read(plugin, session_id),
    "peer": lambda plugin, session_id: plugin.chat.GetPeer(
        pb.GetPeerRequest(session_id=session_id, peer_session_id=session_id)
    ),
    "post": lambda plugin, session_id: post(plugin, session_id),
}
each_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


# -- who may, and where ------------------------------------------------------------------------------


@each_call
async def test_a_session_that_was_not_handed_over_answers_like_one_that_never_was(
    mesh: RelayMesh, call: Any
) -> None:
    plugin, other = await install(mesh), await install(mesh, "other")
    lead = await mesh.agent("lead")
    await mesh.agent("helper")
    turn = await prompt(mesh, lead)
    hand(mesh, other, turn.session_id)
    told = []
    for session_id in (turn.session_id, "ses_never"):
        with pytest.raises(HoplineError) as caught:
            await call(plugin, session_id)
        told.append((caught.value.reason, caught.value.message.replace(session_id, "ID")))
    assert told == [("not_found", "there is no session 'ID'")] * 2


@each_call
async def test_without_the_permission_nothing_is_done_and_it_is_named(mesh: RelayMesh, call: Any) -> None:
    plugin = await install(mesh, permissions=["todo.read", "todo.write", "notify.write"])
    turn = await prompt(mesh, await mesh.agent("lead"))
    hand(mesh, plugin, turn.session_id)
    for session_id in (turn.session_id, "ses_never"):
        with pytest.raises(HoplineError) as caught:
            await call(plugin, session_id)
        assert caught.value.reason == "permission_denied"
        assert "session" in caught.value.message


@each_call
async def test_after_the_causality_window_and_after_its_agent_is_deleted_a_session_is_gone(
    mesh: RelayMesh, call: Any
) -> None:
    plugin, lead = await install(mesh), await mesh.agent("lead")
    turn = await prompt(mesh, lead)
    hand(mesh, plugin, turn.session_id)
    await mesh.delete(lead)
    with pytest.raises(HoplineError) as caught:
        await call(plugin, turn.session_id)
    assert caught.value.reason == "not_found"
    other = await prompt(mesh, await mesh.agent("other"))
    hand(mesh, plugin, other.session_id)
    await mesh.skip(600)
    with pytest.raises(HoplineError) as caught:
        await call(plugin, other.session_id)
    assert caught.value.reason == "not_found"


async def test_an_uninstalled_plugins_token_is_nobodys(mesh: RelayMesh) -> None:
    plugin = await install(mesh)
    turn = await prompt(mesh, await mesh.agent("lead"))
    hand(mesh, plugin, turn.session_id)
    await uninstall(mesh)
    with pytest.raises(HoplineError) as caught:
        await post(plugin, turn.session_id)
    assert caught.value.reason == "unauthenticated"


# -- starting subagents ------------------------------------------------------------------------------


async def test_a_subagent_is_started_as_the_sessions_agent_and_reports_to_the_session(
    mesh: RelayMesh,
) -> None:
    plugin, lead, helper = await install(mesh), await mesh.agent("lead"), await mesh.agent("helper")
    turn = await prompt(mesh, lead)
    hand(mesh, plugin, turn.session_id)
    started = await spawn(plugin, turn.session_id, "helper", "look it up")
    assert started.outcome == pb.SPAWN_OUTCOME_CREATED
    worker = await mesh.worker(helper)
    child = await worker.next()
    assert (child.session_id, child.depth) == (started.child_session_id, 1)
    (sent,) = [each for each in await mesh.events("message.sent") if dict(each.details).get("kind") == "task"]
    assert sent.actor_id == lead.id
    assert dict(sent.details)["plugin_id"] == plugin.id
    assert await worker.end(child, "found it")
    leads = await mesh.worker(lead)
    first = await leads.next()
    assert await leads.end(first, "hello yourself")
    report = await leads.next()
    assert report.session_id == turn.session_id
    assert report.messages[0].body == "found it"


async def test_without_an_agent_a_copy_of_the_sessions_own_is_started(mesh: RelayMesh) -> None:
    plugin, lead = await install(mesh), await mesh.agent("lead")
    turn = await prompt(mesh, lead)
    hand(mesh, plugin, turn.session_id)
    started = await spawn(plugin, turn.session_id)
    assert started.outcome == pb.SPAWN_OUTCOME_CREATED
    found = await mesh.admin.sessions.GetSession(
        session_pb2.GetSessionRequest(session_id=started.child_session_id)
    )
    assert found.session.agent.id == lead.id


async def test_what_the_sessions_agent_cannot_reach_is_forbidden_alike(mesh: RelayMesh) -> None:
    plugin, lead = await install(mesh), await mesh.agent("lead")
    await mesh.foreign_agent("stranger")
    helper = await mesh.agent("helper")
    await mesh.pause(helper)
    turn = await prompt(mesh, lead)
    hand(mesh, plugin, turn.session_id)
    found = [await spawn(plugin, turn.session_id, name) for name in ("stranger", "helper", "nobody")]
    assert {each.outcome for each in found} == {pb.SPAWN_OUTCOME_FORBIDDEN}
    assert len({each.reason for each in found}) == 1
    assert not any(each.child_session_id for each in found)


async def test_it_counts_at_the_highest_depth_that_was_handed_over_in_whichever_session(
    mesh: RelayMesh,
) -> None:
    await mesh.policy(max_depth=3)
    plugin, lead, helper = await install(mesh), await mesh.agent("lead"), await mesh.agent("helper")
    turn = await prompt(mesh, lead)
    hand(mesh, plugin, turn.session_id)
    hand(mesh, plugin, "ses_of_another_chat", depth=2, root_id="rot_deep")
    started = await spawn(plugin, turn.session_id, "helper")
    assert started.outcome == pb.SPAWN_OUTCOME_CREATED
    child = await (await mesh.worker(helper)).next()
    assert child.depth == 3
    hand(mesh, plugin, "ses_of_another_chat", depth=3, root_id="rot_deep")
    assert (await spawn(plugin, turn.session_id, "helper")).outcome == pb.SPAWN_OUTCOME_DEPTH_EXCEEDED
    await mesh.skip(600)
    hand(mesh, plugin, turn.session_id)
    again = await spawn(plugin, turn.session_id, "helper")
    assert again.outcome == pb.SPAWN_OUTCOME_CREATED, "what was handed counts for the window alone"


async def test_it_is_charged_to_a_root_that_was_handed_over(mesh: RelayMesh) -> None:
    plugin, lead, helper = await install(mesh), await mesh.agent("lead"), await mesh.agent("helper")
    turn = await prompt(mesh, lead)
    worker = await mesh.worker(lead)
    root_id = (await worker.next()).root_id
    hand(mesh, plugin, turn.session_id, root_id=root_id)
    await spawn(plugin, turn.session_id, "helper")
    assert (await (await mesh.worker(helper)).next()).root_id == root_id


async def test_the_same_request_starts_once_and_other_content_is_a_conflict_by_the_plugins_own_id(
    mesh: RelayMesh,
) -> None:
    plugin, lead = await install(mesh), await mesh.agent("lead")
    await mesh.agent("helper")
    turn = await prompt(mesh, lead)
    hand(mesh, plugin, turn.session_id)
    request_id = str(uuid.uuid4())
    one = await spawn(plugin, turn.session_id, "helper", request_id=request_id)
    other = await spawn(plugin, turn.session_id, "helper", request_id=request_id)
    assert one.child_session_id == other.child_session_id
    with pytest.raises(HoplineError) as caught:
        await spawn(plugin, turn.session_id, "helper", "something else", request_id=request_id)
    assert caught.value.reason == "request_id_conflict"
    assert caught.value.details["request_id"] == request_id
    # The agent's own request of that id is another one.
    await lead.send("helper", request_id=request_id)


# -- sending and looking -----------------------------------------------------------------------------


async def test_a_message_goes_into_another_session_that_the_agent_may_say_something_in(
    mesh: RelayMesh,
) -> None:
    plugin, lead, helper = await install(mesh), await mesh.agent("lead"), await mesh.agent("helper")
    turn = await prompt(mesh, lead)
    hand(mesh, plugin, turn.session_id)
    child = (await spawn(plugin, turn.session_id, "helper")).child_session_id
    said = await send(plugin, turn.session_id, child, "and hurry")
    assert (said.is_delivered, said.is_canceled, said.cancel_reason) == (True, False, "")
    worker = await mesh.worker(helper)
    first = await worker.next()
    await worker.end(first, "done")
    second = await worker.next()
    assert (second.session_id, second.messages[0].body) == (child, "and hurry")
    peer = await plugin.chat.GetPeer(pb.GetPeerRequest(session_id=turn.session_id, peer_session_id=child))
    assert (peer.id, peer.agent.id, peer.state) == (child, helper.id, "busy")


async def test_a_session_that_is_not_there_for_the_agent_is_data_and_answers_alike(mesh: RelayMesh) -> None:
    plugin, lead, other = await install(mesh), await mesh.agent("lead"), await mesh.agent("other")
    turn, hidden = await prompt(mesh, lead), await prompt(mesh, other)
    hand(mesh, plugin, turn.session_id)
    found = [await send(plugin, turn.session_id, to) for to in (hidden.session_id, "ses_never")]
    assert found[0] == found[1]
    assert not found[0].is_delivered
    assert not found[0].is_canceled
    assert not found[0].cancel_reason
    told = []
    for session_id in (hidden.session_id, "ses_never"):
        for call in (
            plugin.chat.GetPeer(pb.GetPeerRequest(session_id=turn.session_id, peer_session_id=session_id)),
            read(plugin, turn.session_id, session_id),
        ):
            with pytest.raises(HoplineError) as caught:
                await call
            told.append((caught.value.reason, caught.value.message.replace(session_id, "ID")))
    assert set(told) == {("not_found", "there is no session 'ID'")}


async def test_a_conversation_is_read_page_by_page_and_nothing_is_taken_by_it(mesh: RelayMesh) -> None:
    plugin, lead, other = await install(mesh), await mesh.agent("lead"), await mesh.agent("other")
    sent = await other.send(lead, text="one")
    session_id = sent.deliveries[0].session_id
    await other.send(lead, text="two")
    hand(mesh, plugin, session_id)
    first = await read(plugin, session_id, page_size=1)
    assert [each.text for each in first.entries] == ["one"]
    second = await read(plugin, session_id, page_token=first.next_page_token)
    assert [each.text for each in second.entries] == ["two"]
    assert not second.next_page_token
    taken = await lead.take()
    assert [each.body for each in taken.messages] == ["one", "two"]


# -- posting -----------------------------------------------------------------------------------------


async def test_a_post_stands_in_the_session_as_the_plugins_and_wakes_its_agent(mesh: RelayMesh) -> None:
    plugin, lead = await install(mesh), await mesh.agent("lead")
    turn = await prompt(mesh, lead)
    hand(mesh, plugin, turn.session_id)
    message_id = await post(plugin, turn.session_id, "prices changed")
    worker = await mesh.worker(lead)
    first = await worker.next()
    assert await worker.end(first, "hello yourself")
    woken = await worker.next()
    assert (woken.session_id, woken.messages[0].id, woken.messages[0].body) == (
        turn.session_id,
        message_id,
        "prices changed",
    )
    assert (woken.sender_kind, woken.depth) == ("plugin", 1)
    sender = getattr(woken.messages[0], "from")
    assert (sender.kind, sender.id, sender.display) == ("plugin", plugin.id, "the plugin Shop")
    assert await worker.end(woken, "noted")
    entries = (await read(plugin, turn.session_id)).entries
    assert "prices changed" in [each.text for each in entries]


async def test_what_a_plugin_does_discharges_nothing_that_the_session_owes(mesh: RelayMesh) -> None:
    plugin, lead = await install(mesh), await mesh.agent("lead")
    await mesh.agent("helper")
    turn = await prompt(mesh, lead)
    hand(mesh, plugin, turn.session_id)
    await post(plugin, turn.session_id)
    child = (await spawn(plugin, turn.session_id, "helper")).child_session_id
    await send(plugin, turn.session_id, child)
    view = await mesh.admin.check(turn.turn_id)
    assert view.status == message_pb2.TURN_STATUS_QUEUED
    worker = await mesh.worker(lead)
    await worker.end(await worker.next(), "the answer")
    assert (await mesh.admin.check(turn.turn_id)).reply == "the answer"


async def test_a_reply_to_a_post_is_for_the_record(mesh: RelayMesh) -> None:
    plugin, lead = await install(mesh), await mesh.agent("lead")
    sent = await (await mesh.agent("other")).send(lead)
    session_id = sent.deliveries[0].session_id
    hand(mesh, plugin, session_id)
    message_id = await post(plugin, session_id)
    await lead.take()
    await lead.reply(message_id, "thanks")


async def test_posts_are_the_plugins_own_quota(mesh: RelayMesh) -> None:
    await mesh.policy(sent_per_day=2)
    plugin, lead = await install(mesh), await mesh.agent("lead")
    turn = await prompt(mesh, lead)
    hand(mesh, plugin, turn.session_id)
    before = (await mesh.usage(lead)).sent_today
    for _ in range(2):
        await post(plugin, turn.session_id)
    with pytest.raises(HoplineError) as caught:
        await post(plugin, turn.session_id)
    assert caught.value.reason == "quota_exceeded"
    assert (await mesh.usage(lead)).sent_today == before
    await mesh.reopen()
    with pytest.raises(HoplineError) as caught:
        await post(plugin, turn.session_id)
    assert caught.value.reason == "quota_exceeded", "counted anew from the record"


async def test_a_post_that_waits_is_withdrawn_with_its_plugin(mesh: RelayMesh) -> None:
    plugin, lead = await install(mesh), await mesh.agent("lead")
    sent = await (await mesh.agent("other")).send(lead)
    hand(mesh, plugin, sent.deliveries[0].session_id)
    message_id = await post(plugin, sent.deliveries[0].session_id)
    await uninstall(mesh)
    worker = await mesh.worker(lead)
    first = await worker.next()
    await worker.end(first, "so")
    assert await worker.claim() == []
    states = {
        each.id: each.deliveries[0].state
        for thread in (await mesh.admin.messages.ListThreads(message_pb2.ListThreadsRequest())).threads
        for each in await mesh.thread(thread.id)
        if each.deliveries
    }
    assert states[message_id] == message_pb2.DELIVERY_STATE_WITHDRAWN


# -- the fuse ----------------------------------------------------------------------------------------


async def newest(mesh: RelayMesh) -> int:
    """Return the hook generation of the newest turn."""
    query = "SELECT hook_generation FROM turns ORDER BY ordinal DESC LIMIT 1"
    return int(
        await mesh.relay.journal.read(lambda connection: connection.exec_driver_sql(query).scalar_one())
    )


async def test_each_act_is_one_generation_on_and_past_the_limit_the_loop_dies_quietly(
    mesh: RelayMesh,
) -> None:
    plugin, lead = await install(mesh), await mesh.agent("lead")
    helper = await mesh.agent("helper")
    turn = await prompt(mesh, lead)
    worker = await mesh.worker(helper)
    session_id, generation = turn.session_id, 0
    for number in range(1, 10):
        hand(mesh, plugin, session_id, generation=generation)
        started = await spawn(plugin, session_id, "helper")
        if started.outcome != pb.SPAWN_OUTCOME_CREATED:
            break
        await worker.claim()
        generation = await newest(mesh)
        assert generation == number
    assert number == 5, "four reactions to one event, and no more"
    assert started.outcome == pb.SPAWN_OUTCOME_FORBIDDEN
    assert "withheld" in started.reason
    said = await send(plugin, session_id, session_id)
    assert (said.is_delivered, said.is_canceled) == (False, True)
    assert "withheld" in said.cancel_reason
    for call in (CALLS["read"], CALLS["peer"], CALLS["post"]):
        with pytest.raises(HoplineError) as caught:
            await call(plugin, session_id)
        assert caught.value.reason == "permission_denied"
        assert "withheld" in caught.value.message


async def test_a_report_of_what_a_plugin_started_is_no_fresh_event(mesh: RelayMesh) -> None:
    plugin, lead, helper = await install(mesh), await mesh.agent("lead"), await mesh.agent("helper")
    turn = await prompt(mesh, lead)
    hand(mesh, plugin, turn.session_id, generation=2)
    await spawn(plugin, turn.session_id, "helper")
    worker = await mesh.worker(helper)
    await worker.end(await worker.next(), "found it")
    query = "SELECT hook_generation FROM messages WHERE kind IN ('answer', 'report')"
    generations = await mesh.relay.journal.read(
        lambda connection: connection.exec_driver_sql(query).scalars().all()
    )
    assert generations == [3]


async def test_refusals_of_a_plugin_are_not_its_agents(mesh: RelayMesh) -> None:
    await mesh.policy(refusals="3/60s")
    plugin, lead = await install(mesh), await mesh.agent("lead")
    await mesh.agent("helper")
    turn = await prompt(mesh, lead)
    hand(mesh, plugin, turn.session_id)
    for _ in range(3):
        await spawn(plugin, turn.session_id, "nobody")
    with pytest.raises(HoplineError) as caught:
        await spawn(plugin, turn.session_id, "helper")
    assert caught.value.reason == "overloaded"
    await lead.send("helper")
