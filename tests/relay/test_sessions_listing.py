"""Sessions: who sees which, what stands in a transcript, who is there."""

from __future__ import annotations

import pytest
from hopline.registry.v1.agent_pb2 import AGENT_KIND_RECEIVE_ONLY
from hopline.relay.v1 import session_pb2 as pb

from tests.support.relay_mesh import Caller, RelayMesh, refusal

pytestmark = pytest.mark.both_stores


async def _sessions(caller: Caller, **more: object) -> list[pb.Session]:
    request = pb.ListSessionsRequest(**more)  # type: ignore[arg-type]
    return list((await caller.sessions.ListSessions(request)).sessions)


async def _transcript(caller: Caller, session_id: str) -> list[tuple[str, str]]:
    entries = []
    token = ""
    while True:
        request = pb.ReadSessionRequest(session_id=session_id, page_size=2, page_token=token)
        page = await caller.sessions.ReadSession(request)
        entries += [(entry.kind, entry.text) for entry in page.entries]
        token = page.next_page_token
        if not token:
            return entries


async def test_both_ends_of_an_exchange_link_to_each_other(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    asked = await ada.ask(bob, "what?")
    worker = await mesh.worker(bob)
    await worker.end(await worker.next(), "that")
    session = (await bob.sessions.GetSession(pb.GetSessionRequest(session_id=asked.session_id))).session
    assert (session.title, session.channel, session.state) == ("From ada", "relay", "idle")
    assert (session.opened_by.kind, session.opened_by.id) == ("agent", ada.id)
    inbox = session.opened_by.session_id
    assert await _transcript(bob, asked.session_id) == [("prompt", "what?"), ("answer", "that")]
    assert await _transcript(ada, inbox) == [("message_out", "what?"), ("message_in", "that")]


async def test_lines_of_a_transcript_are_numbered_from_1_whatever_else_the_workspace_does(
    mesh: RelayMesh,
) -> None:
    ada, bob, eve = await mesh.agent("ada"), await mesh.agent("bob"), await mesh.agent("eve")
    first = await ada.send(bob)
    for _ in range(4):
        await eve.send(bob)
        await ada.send(bob)
    request = pb.ReadSessionRequest(session_id=first.deliveries[0].session_id, page_size=2)
    numbers = []
    while True:
        page = await bob.sessions.ReadSession(request)
        numbers += [entry.seq for entry in page.entries]
        request.page_token = page.next_page_token
        if not request.page_token:
            break
    assert numbers == [1, 2, 3, 4, 5]


async def test_a_transcript_is_read_from_its_end_page_by_page_with_the_same_numbers(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    first = await ada.send(bob, text="0")
    session_id = first.deliveries[0].session_id
    for number in range(1, 5):
        await ada.send(bob, text=str(number))
    request = pb.ReadSessionRequest(session_id=session_id, page_size=2, from_end=True)
    pages = []
    while True:
        page = await mesh.admin.sessions.ReadSession(request)
        pages.append([(entry.seq, entry.text) for entry in page.entries])
        request.page_token = page.next_page_token
        if not request.page_token:
            break
        # What comes meanwhile stands behind what was read, and moves nothing.
        await ada.send(bob, text="later")
    assert pages == [[(4, "3"), (5, "4")], [(2, "1"), (3, "2")], [(1, "0")]]
    newest = pb.ReadSessionRequest(session_id=session_id, page_size=1, from_end=True)
    entries = (await mesh.admin.sessions.ReadSession(newest)).entries
    assert [(entry.seq, entry.text) for entry in entries] == [(7, "later")]
    forth = await mesh.admin.sessions.ReadSession(pb.ReadSessionRequest(session_id=session_id, page_size=1))
    wrong = pb.ReadSessionRequest(session_id=session_id, from_end=True, page_token=forth.next_page_token)
    assert (await refusal(mesh.admin.sessions.ReadSession(wrong))).reason == "invalid_argument"


async def test_sessions_are_listed_by_channel_and_an_unknown_channel_is_refused(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    asked = await ada.ask(bob, "what?")
    prompted = await mesh.admin.sessions.Prompt(pb.PromptRequest(agent=bob.id, text="go", wait_seconds=0))
    for channel, found in (("relay", [asked.session_id]), ("human", [prompted.turn.session_id]), ("mcp", [])):
        assert [each.id for each in await _sessions(mesh.admin, agent=bob.id, channel=channel)] == found
    listed = mesh.admin.sessions.ListSessions(pb.ListSessionsRequest(channel="telegram"))
    assert (await refusal(listed)).reason == "invalid_argument"


async def test_a_session_is_busy_while_a_turn_runs_in_it(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await ada.send(bob)
    worker = await mesh.worker(bob)
    turn = await worker.next()
    assert (await _sessions(bob))[0].state == "busy"
    await worker.end(turn, "")
    assert (await _sessions(bob))[0].state == "idle"


async def test_an_agent_sees_what_it_runs_opened_or_leads(mesh: RelayMesh) -> None:
    lead = await mesh.agent("lead")
    sub = await mesh.agent("sub", is_subagent=True, parent_agent_id=lead.id)
    sibling = await mesh.agent("sibling", is_subagent=True, parent_agent_id=lead.id)
    ada, eve = await mesh.agent("ada"), await mesh.agent("eve")
    # What a subagent runs for its crew its lead sees, what it runs for others their own people.
    for sender, led in ((ada, False), (sibling, True)):
        sent = await sender.send(sub)
        session_id = sent.deliveries[0].session_id
        seers = ((sender, True), (sub, True), (lead, led), (eve, False), (mesh.admin, True))
        for caller, sees in seers:
            for ref in ("", sub.id):
                listed = [session.id for session in await _sessions(caller, agent=ref)]
                assert (session_id in listed) is sees
            call = caller.sessions.GetSession(pb.GetSessionRequest(session_id=session_id))
            if sees:
                assert (await call).session.id == session_id
            else:
                assert (await refusal(call)).reason == "not_found"


async def test_sessions_are_listed_newest_first_page_by_page(mesh: RelayMesh) -> None:
    bob = await mesh.agent("bob")
    expected: list[str] = []
    for number in range(5):
        peer = await mesh.agent(f"peer{number}")
        expected.insert(0, (await peer.send(bob)).deliveries[0].session_id)
    found: list[str] = []
    token = ""
    while True:
        page = await bob.sessions.ListSessions(pb.ListSessionsRequest(page_size=2, page_token=token))
        found += [session.id for session in page.sessions]
        token = page.next_page_token
        if not token:
            break
    assert found == expected


async def test_presence_says_who_works_pulls_or_is_away(mesh: RelayMesh) -> None:
    yan = await mesh.person("yan")
    ada, bob, cid = await mesh.agent("ada"), await mesh.agent("bob"), await mesh.agent("cid")
    hidden = await mesh.agent("hidden", owner_id=yan.id)
    dan = await mesh.agent("dan", owner_id=yan.id)
    await bob.take()
    mesh.relay.turns.presence_source = lambda workspace, agent: "busy" if agent == cid.id else None
    asked = pb.GetPresenceRequest(agents=[ada.id, bob.id, cid.id, "agt_nothing"])
    presence = dict((await mesh.admin.sessions.GetPresence(asked)).presence)
    assert presence == {ada.id: "offline", bob.id: "inbox_only", cid.id: "busy"}
    seen = await hidden.sessions.GetPresence(pb.GetPresenceRequest(agents=[ada.id, dan.id]))
    assert dict(seen.presence) == {dan.id: "offline"}


async def test_who_may_start_nothing_still_reads_its_own_sessions_by_any_of_its_names(
    mesh: RelayMesh,
) -> None:
    ada, ear = await mesh.agent("ada"), await mesh.agent("ear", kind=AGENT_KIND_RECEIVE_ONLY)
    await ada.send(ear)
    for reader, ref in ((ear, "ear"), (ear, ear.id), (ada, "ear")):
        assert [session.agent.name for session in await _sessions(reader, agent=ref)] == ["ear"]
    assert await _sessions(ear, agent="ada") == []
