"""The audit log: what stands in it, for whom, once."""

from __future__ import annotations

import asyncio

import pytest
from google.protobuf.json_format import MessageToDict
from hopline.relay.v1 import audit_pb2, delegation_pb2, session_pb2
from hopline_relay.store import audit as audit_store
from hopline_rpc.clock import to_timestamp

from tests.support.relay_mesh import Caller, RelayMesh, refusal

pytestmark = pytest.mark.both_stores


async def _actions(mesh: RelayMesh, caller: Caller | None = None, **more: object) -> list[str]:
    request = audit_pb2.ListEventsRequest(page_size=200, **more)  # type: ignore[arg-type]
    answer = await (caller or mesh.admin).audit.ListEvents(request)
    return [event.action for event in answer.events]


async def test_an_exchange_stands_in_the_log_in_order_without_gaps(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    asked = await ada.ask(bob)
    worker = await mesh.worker(bob)
    await worker.end(await worker.next(), "yes")
    await refusal(ada.send("nobody"))
    await mesh.relay.refusals.drained()
    events = await mesh.events()
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    of_turn = [event.action for event in events if event.turn_id == asked.turn_id]
    assert of_turn == ["message.sent", "turn.started", "turn.ended"]
    assert [event.actor_name for event in events if event.turn_id == asked.turn_id] == ["ada", "bob", "bob"]
    refused = events[-1]
    assert (refused.action, refused.actor_name) == ("message.refused", "ada")
    assert refused.details["reason"] == "unknown"


async def test_changes_of_the_registry_stand_in_the_log_once(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    await mesh.pause(ada)
    before = await _actions(mesh)
    assert before.count("agent.paused") == 1
    await mesh.close_relay()
    await mesh.resume(ada)
    await mesh.open_relay()
    await mesh.grant("admin", 3)
    await mesh.reopen()
    await mesh.policy(max_depth=3)
    # The log follows on a stream of its own, which a write waits for only once it has begun.
    for _ in range(100):
        after = await _actions(mesh)
        if after.count("policy.updated") > before.count("policy.updated"):
            break
        await mesh.clock.advance(0.1)
    assert after[: len(before)] == before
    assert after.count("agent.resumed") == 1
    assert after.count("policy.updated") == before.count("policy.updated") + 1
    about_ada = await mesh.events("agent.", agent="ada")
    assert {event.agent_id for event in about_ada} == {ada.id}


async def test_people_see_what_concerns_agents_they_may_view(mesh: RelayMesh) -> None:
    ada, bob, cid = await mesh.agent("ada"), await mesh.agent("bob"), await mesh.agent("cid")
    zoe = await mesh.person("zoe")
    await ada.send(bob)
    await bob.send(cid)
    await ada.send(cid)
    assert await _actions(mesh, zoe) == []
    await mesh.grant("zoe", 1, "bob")
    sent = audit_pb2.ListEventsRequest(action="message.sent")
    seen = (await zoe.audit.ListEvents(sent)).events
    # Who wrote to bob, and to whom bob wrote; in which session of cid's is not theirs to see.
    assert [(event.actor_id, event.agent_id) for event in seen] == [(ada.id, bob.id), (bob.id, cid.id)]
    assert [bool(event.session_id) for event in seen] == [True, False]
    assert (await refusal(_actions(mesh, zoe, agent="ada"))).reason == "not_found"


async def test_who_sees_one_agent_is_not_told_whether_a_name_that_it_was_refused_exists(
    mesh: RelayMesh,
) -> None:
    zoe, yan = await mesh.person("zoe"), await mesh.person("yan")
    ada = await mesh.agent("ada", owner_id=yan.id)
    await mesh.agent("hidden")
    await mesh.grant("zoe", 1, "ada")
    for name in ("hidden", "never"):
        await refusal(ada.send(name))
    await mesh.relay.refusals.drained()
    request = audit_pb2.ListEventsRequest(action="message.refused")
    for reader, told in ((zoe, [False, False]), (mesh.admin, [True, True])):
        found = (await reader.audit.ListEvents(request)).events
        assert ["reason" in event.details for event in found] == told


async def test_the_events_of_one_thread_are_listed_for_those_who_see_its_agents(mesh: RelayMesh) -> None:
    ada, bob, cid = await mesh.agent("ada"), await mesh.agent("bob"), await mesh.agent("cid")
    zoe = await mesh.person("zoe")
    await mesh.grant("zoe", 1, "bob")
    await ada.send(bob)
    asked = await ada.ask(bob)
    worker = await mesh.worker(bob)
    await worker.end(await worker.next(), "no")
    await worker.end(await worker.next(), "yes")
    other = await ada.send(cid)
    found = await mesh.events(thread_id=asked.thread_id)
    assert [event.action for event in found] == [
        "message.sent",
        "turn.started",
        "turn.ended",
        "message.sent",
    ]
    assert await _actions(mesh, zoe, thread_id=asked.thread_id) == [event.action for event in found]
    for hidden in (other.thread_id, "thr_never"):
        assert await _actions(mesh, zoe, thread_id=hidden) == []


@pytest.mark.parametrize("descending", [False, True])
async def test_a_page_looks_at_a_bounded_part_of_the_log_and_leads_on(
    mesh: RelayMesh, monkeypatch: pytest.MonkeyPatch, descending: bool
) -> None:
    monkeypatch.setattr(audit_store, "LOOKED_AT", 3)
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await mesh.pause(bob)
    await mesh.resume(bob)
    for _ in range(6):
        await ada.send(bob)
    await mesh.pause(bob)
    request = audit_pb2.ListEventsRequest(action="agent.paused", page_size=5, descending=descending)
    pages: list[list[int]] = []
    while not pages or request.page_token:
        page = await mesh.admin.audit.ListEvents(request)
        pages.append([event.seq for event in page.events])
        request.page_token = page.next_page_token
    whole = [event.seq for event in await mesh.events() if event.action == "agent.paused"]
    assert sorted(seq for page in pages for seq in page) == whole
    assert len(whole) == 2
    assert [] in pages
    agents = audit_pb2.ListEventsRequest(agent="bob", page_size=200, descending=descending)
    assert not (await mesh.admin.audit.ListEvents(agents)).next_page_token


async def test_a_list_that_was_broken_off_goes_on_after_its_last_event(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    for _ in range(3):
        await ada.send(bob)
    events = await mesh.events()
    assert await mesh.events(after_seq=events[4].seq) == events[5:]
    assert await mesh.events(after_seq=events[4].seq, descending=True) == events[:4:-1]


async def test_pages_and_times_and_prefixes_narrow_the_log(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    start = mesh.clock.now()
    for _ in range(5):
        await mesh.clock.advance(10)
        await ada.send(bob)
    request = audit_pb2.ListEventsRequest(action="message.", page_size=2, descending=True)
    newest = await mesh.admin.audit.ListEvents(request)
    request.page_token = newest.next_page_token
    older = await mesh.admin.audit.ListEvents(request)
    seqs = [event.seq for event in (*newest.events, *older.events)]
    assert seqs == sorted(seqs, reverse=True)
    assert len(set(seqs)) == 4
    span = audit_pb2.ListEventsRequest(action="message.sent", to=to_timestamp(start + 40))
    getattr(span, "from").CopyFrom(to_timestamp(start + 20))
    assert len((await mesh.admin.audit.ListEvents(span)).events) == 2


async def test_a_watcher_sees_events_as_they_are_committed(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await ada.send(bob)
    head = (await mesh.events())[-1].seq
    call = mesh.admin.audit.WatchEvents(audit_pb2.WatchEventsRequest(after_seq=head, action="message.sent"))
    reading = asyncio.ensure_future(call.read())
    sent = await ada.send(bob)
    response = await reading
    assert [event.message_id for event in response.events] == [sent.message_id]
    call.cancel()


async def test_each_hidden_recipient_of_a_fan_out_has_its_own_true_reason(mesh: RelayMesh) -> None:
    zoe = await mesh.person("zoe")
    ada, _ = await mesh.agent("ada", owner_id=zoe.id), await mesh.agent("bob", owner_id=zoe.id)
    await mesh.agent("theirs")
    await mesh.pause(await mesh.agent("paused", owner_id=zoe.id))
    for name in ("theirs", "paused", "never", "never"):
        await refusal(ada.send("bob", name))
    await mesh.relay.refusals.drained()
    found = [
        (event.details["message"], event.details["reason"], event.details["count"])
        for event in await mesh.events("message.refused")
    ]
    assert found == [
        ("there is no agent 'theirs'", "no_role", 1),
        ("there is no agent 'paused'", "paused", 1),
        ("there is no agent 'never'", "unknown", 2),
    ]


async def test_refusals_of_a_message_and_of_an_ask_do_not_share_a_row(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    await refusal(ada.send("nobody"))
    await refusal(ada.ask("nobody"))
    await mesh.relay.refusals.drained()
    kinds = [event.details["kind"] for event in await mesh.events("message.refused")]
    assert kinds == ["message", "ask"]


async def test_refused_looks_and_cancels_stand_in_the_log_with_their_true_reason(mesh: RelayMesh) -> None:
    ada, hidden = await mesh.agent("ada"), await mesh.agent("hidden")
    eve = await mesh.agent("eve", owner_id=(await mesh.person("zoe")).id)
    asked = await ada.ask(hidden)
    calls = (
        eve.turns.Cancel(delegation_pb2.CancelRequest(turn_id=asked.turn_id)),
        eve.sessions.ListSessions(session_pb2.ListSessionsRequest(agent=hidden.id)),
        eve.sessions.ListSessions(session_pb2.ListSessionsRequest(agent=hidden.id)),
        eve.sessions.GetSession(session_pb2.GetSessionRequest(session_id="ses_nothing")),
        eve.done("msg_nothing"),
    )
    for call in calls:
        await refusal(call)
    await mesh.relay.refusals.drained()
    events = await mesh.events("call.refused")
    assert {event.actor_name for event in events} == {"eve"}
    found = {event.details["method"]: MessageToDict(event.details) for event in events}
    assert set(found) == {"Cancel", "ListSessions", "GetSession", "Done"}
    assert found["ListSessions"]["reason"] == "no_role"
    assert found["ListSessions"]["count"] == 2
    assert {details["code"] for details in found.values()} == {"not_found"}


async def test_one_refusal_stands_in_the_log_once(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    await refusal(ada.send("nobody"))
    await refusal(ada.send("x" * 200))
    await mesh.relay.refusals.drained()
    assert len(await mesh.events("message.refused")) == 2
    assert await mesh.events("call.refused") == []


async def test_who_is_refused_for_name_after_name_fills_a_few_rows(mesh: RelayMesh) -> None:
    await mesh.policy(refusals="5/60s")
    ada = await mesh.agent("ada")
    for number in range(50):
        await refusal(ada.sessions.ListSessions(session_pb2.ListSessionsRequest(agent=f"name {number}")))
    await mesh.relay.refusals.drained()
    events = await mesh.events("call.refused")
    assert [event.details["code"] for event in events] == [*["not_found"] * 5, "overloaded"]
    assert [event.details["count"] for event in events] == [*[1] * 5, 45]
    await mesh.clock.advance(61)
    await refusal(ada.sessions.ListSessions(session_pb2.ListSessionsRequest(agent="another")))
    await mesh.relay.refusals.drained()
    assert (await mesh.events("call.refused"))[-1].details["code"] == "not_found"
