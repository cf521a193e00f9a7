"""What comes in through an agent's own endpoint: sessions of channel `mcp`, bound to who opened them."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from typing import Any

import pytest
from hopline.registry.v1.identity_pb2 import ROLE_OPERATOR, ROLE_VIEWER
from hopline.relay.v1 import message_pb2 as pb
from hopline.relay.v1 import session_pb2

from tests.support.relay_mesh import Caller, RelayMesh, Worker, refusal


@pytest.fixture
async def bob(mesh: RelayMesh) -> Caller:
    return await mesh.agent("bob")


@pytest.fixture
async def worker(mesh: RelayMesh, bob: Caller) -> Worker:
    return await mesh.worker(bob)


async def _prompt(person: Caller, text: str = "well?", **more: Any) -> pb.TurnView:
    request = session_pb2.PromptRequest(
        agent="bob", text=text, wait_seconds=0, **{"own_endpoint": True, **more}
    )
    answer: session_pb2.PromptResponse = await person.sessions.Prompt(request)
    return answer.turn


async def _start(caller: Caller, text: str = "well?", **more: Any) -> pb.TurnView:
    """Come in through bob's endpoint as an agent, or as a person."""
    if caller.id.startswith("agt_"):
        return await caller.ask("bob", text, own_endpoint=True, **more)
    return await _prompt(caller, text, **more)


async def _session(reader: Caller, session_id: str) -> session_pb2.Session:
    request = session_pb2.GetSessionRequest(session_id=session_id)
    found: session_pb2.GetSessionResponse = await reader.sessions.GetSession(request)
    return found.session


async def _people(mesh: RelayMesh) -> tuple[Caller, Caller, Caller]:
    """Return an agent and two people who may all start something on bob."""
    return (
        await mesh.agent("ada"),
        await mesh.person("yan", ROLE_OPERATOR),
        await mesh.person("zoe", ROLE_OPERATOR),
    )


async def test_every_start_opens_a_fresh_session_of_channel_mcp_titled_by_its_words(
    mesh: RelayMesh, worker: Worker
) -> None:
    ada, yan, _ = await _people(mesh)
    for caller, kind in ((ada, "agent"), (yan, "user")):
        seen = set()
        for _ in range(2):
            view = await _start(caller, "what   is\nup?")
            await worker.end(await worker.next(), "not much")
            seen.add(view.session_id)
            session = await _session(mesh.admin, view.session_id)
            assert (session.title, session.channel, session.state) == ("what is up?", "mcp", "idle")
            assert (session.opened_by.kind, session.opened_by.id) == (kind, caller.id)
        assert len(seen) == 2
    # The conversation that messages have stays what it was.
    assert (await _session(mesh.admin, (await ada.ask("bob")).session_id)).title == "From ada"


async def test_an_agents_start_is_a_delegation_and_a_persons_is_none(mesh: RelayMesh, worker: Worker) -> None:
    ada, yan, _ = await _people(mesh)
    await ada.ask("bob", own_endpoint=True)
    assert (await worker.next()).depth == 1
    await _prompt(yan)
    assert (await worker.next()).depth == 0


async def test_a_follow_up_goes_on_in_its_session_one_turn_after_the_other(
    mesh: RelayMesh, worker: Worker
) -> None:
    for caller in (await _people(mesh))[:2]:
        first = await _start(caller, "one")
        views = [await _start(caller, text, session_id=first.session_id) for text in ("two", "three")]
        assert {view.session_id for view in views} == {first.session_id}
        for text in ("one", "two", "three"):
            turn = await worker.next()
            assert [message.body for message in turn.messages] == [text]
            assert await worker.claim() == []  # as long as it runs
            await worker.end(turn, f"{text}!")
        request = pb.CheckRequest(session_id=first.session_id, wait_seconds=0, endpoint_of=worker.agent.id)
        assert (await caller.messages.Check(request)).turn.reply == "three!"


async def test_fifty_starts_at_once_get_fifty_fresh_sessions(mesh: RelayMesh, worker: Worker) -> None:
    ada, yan, _ = await _people(mesh)
    await mesh.policy(pair_budget="0", concurrent_runs=100)
    for caller in (ada, yan):
        texts = [f"number {number}" for number in range(50)]
        views = await asyncio.gather(*(_start(caller, text) for text in texts))
        assert len({view.session_id for view in views}) == 50
        turns = {turn.turn_id: turn for turn in await worker.claim(100)}
        found = {view.turn_id: turns[view.turn_id] for view in views}
        assert [found[view.turn_id].messages[0].body for view in views] == texts
        assert Counter(turn.session_id for turn in turns.values()).most_common(1)[0][1] == 1
        await asyncio.gather(*(worker.end(turn, "") for turn in turns.values()))


async def test_only_who_opened_a_session_may_prompt_in_it_at_any_door(
    mesh: RelayMesh, worker: Worker
) -> None:
    ada, yan, zoe = await _people(mesh)
    eve = await mesh.agent("eve")
    of_ada, of_yan = await _start(ada), await _start(yan)
    for session in (of_ada, of_yan):
        for stranger in (eve, zoe, mesh.admin):
            opened = {"session_id": session.session_id}
            person = stranger is not eve
            for through in (True, False):
                call = _prompt(stranger, **opened, own_endpoint=through) if person else None
                ask = stranger.ask("bob", session_id=session.session_id, own_endpoint=through)
                reasons = {(await refusal(each)).reason for each in (call, ask) if each is not None}
                assert reasons == {"permission_denied" if person else "not_found"}
    never = await refusal(eve.ask("bob", session_id="ses_never", own_endpoint=True))
    hidden = await refusal(eve.ask("bob", session_id=of_ada.session_id, own_endpoint=True))
    assert never.message.replace("ses_never", of_ada.session_id) == hidden.message
    # Who opened it may, by its own endpoint or not.
    assert (await ada.ask("bob", session_id=of_ada.session_id)).session_id == of_ada.session_id
    assert (await _start(ada, session_id=of_ada.session_id)).session_id == of_ada.session_id
    again = await _prompt(yan, session_id=of_yan.session_id, own_endpoint=False)
    assert again.session_id == of_yan.session_id
    bodies = [message.body for turn in await worker.claim(100) for message in turn.messages]
    assert bodies == ["well?"] * 2  # nothing of the strangers'


async def test_a_check_through_the_endpoint_is_for_who_opened_the_session_alone(
    mesh: RelayMesh, bob: Caller
) -> None:
    ada, yan, zoe = await _people(mesh)
    eve, cid = await mesh.agent("eve"), await mesh.agent("cid")
    of_ada, of_yan = await _start(ada), await _start(yan)

    def check(caller: Caller, view: pb.TurnView, of: Caller = bob) -> Any:
        request = pb.CheckRequest(session_id=view.session_id, wait_seconds=0, endpoint_of=of.id)
        return caller.messages.Check(request)

    assert (await check(ada, of_ada)).turn.turn_id == of_ada.turn_id
    assert (await check(yan, of_yan)).turn.turn_id == of_yan.turn_id
    human = (await _prompt(yan, own_endpoint=False)).session_id
    plain = (await ada.ask("bob")).session_id
    for caller, view, of in (
        (eve, of_ada, bob),
        (bob, of_ada, bob),
        (zoe, of_yan, bob),
        (mesh.admin, of_ada, bob),
        (ada, of_ada, cid),
        (yan, pb.TurnView(session_id=human), bob),
        (ada, pb.TurnView(session_id=plain), bob),
        (ada, pb.TurnView(session_id="ses_never"), bob),
    ):
        refused = await refusal(check(caller, view, of))
        assert (refused.reason, refused.message) == ("not_found", f"there is no session {view.session_id!r}")
    # By the platform's own door people look at what their agents do, and agents at what they asked.
    by_session = pb.CheckRequest(session_id=of_ada.session_id, wait_seconds=0)
    assert (await zoe.messages.Check(by_session)).turn.turn_id == of_ada.turn_id
    assert (await refusal(eve.messages.Check(by_session))).reason == "not_found"
    assert (await refusal(check(ada, pb.TurnView()))).reason == "invalid_argument"


async def test_through_the_endpoint_only_sessions_of_its_own_channel_are_found(
    mesh: RelayMesh, worker: Worker
) -> None:
    ada, yan, _ = await _people(mesh)
    plain = await ada.ask("bob")
    await worker.end(await worker.next(), "")
    assert (await refusal(_start(ada, session_id=plain.session_id))).reason == "not_found"
    human = await _prompt(yan, own_endpoint=False)
    assert (await refusal(_start(yan, session_id=human.session_id))).reason == "permission_denied"
    await mesh.agent("cid")
    of_bob = await _start(ada)
    other = ada.ask("cid", session_id=of_bob.session_id, own_endpoint=True)
    assert (await refusal(other)).reason == "not_found"


async def test_viewers_see_such_a_session_in_lists_and_read_it(mesh: RelayMesh, worker: Worker) -> None:
    ada, _, _ = await _people(mesh)
    eve, viewer = await mesh.agent("eve"), await mesh.person("vic", ROLE_VIEWER)
    view = await _start(ada, "what?")
    await worker.end(await worker.next(), "that")
    for reader, sees in ((viewer, True), (ada, True), (worker.agent, True), (eve, False)):
        listed = await reader.sessions.ListSessions(session_pb2.ListSessionsRequest())
        assert (view.session_id in {session.id for session in listed.sessions}) is sees
        reading = reader.sessions.ReadSession(session_pb2.ReadSessionRequest(session_id=view.session_id))
        if sees:
            assert [entry.text for entry in (await reading).entries] == ["what?", "that"]
        else:
            assert (await refusal(reading)).reason == "not_found"
    assert (await refusal(_prompt(viewer, session_id=view.session_id))).reason == "permission_denied"


async def test_a_late_answer_wakes_the_agent_that_asked(mesh: RelayMesh, worker: Worker) -> None:
    ada, _, _ = await _people(mesh)
    await _start(ada)
    await worker.end(await worker.next(), "at last")
    assert [message.body for message in (await ada.take()).messages] == ["at last"]


async def test_a_repeated_request_opens_one_session_and_is_told_from_another_door(
    mesh: RelayMesh, bob: Caller
) -> None:
    for caller in (await _people(mesh))[:2]:
        request_id = str(uuid.uuid4())
        views = await asyncio.gather(*(_start(caller, request_id=request_id) for _ in range(5)))
        assert len({(view.session_id, view.turn_id) for view in views}) == 1
        if caller.id.startswith("agt_"):
            again = caller.ask("bob", request_id=request_id)
        else:
            again = _prompt(caller, own_endpoint=False, request_id=request_id)
        assert (await refusal(again)).reason == "request_id_conflict"
