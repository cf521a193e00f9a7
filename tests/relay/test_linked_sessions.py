"""Sessions that opened each other, seen from both ends, each as far as its reader may know the other."""

from __future__ import annotations

import pytest
from hopline.registry.v1 import identity_pb2
from hopline.relay.v1 import session_pb2 as pb

from tests.support.relay_mesh import Caller, RelayMesh

pytestmark = pytest.mark.both_stores


async def _session(reader: Caller, session_id: str) -> pb.Session:
    found: pb.GetSessionResponse = await reader.sessions.GetSession(
        pb.GetSessionRequest(session_id=session_id)
    )
    return found.session


async def _listed(reader: Caller, session_id: str) -> pb.Session:
    found: pb.ListSessionsResponse = await reader.sessions.ListSessions(pb.ListSessionsRequest())
    return next(each for each in found.sessions if each.id == session_id)


async def _linked(mesh: RelayMesh) -> tuple[Caller, Caller, str, str]:
    """Have ada ask bob from a session of hers; returns both, and the session at each end."""
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(ada)
    await mesh.admin.sessions.Prompt(pb.PromptRequest(agent="ada", text="go", wait_seconds=0))
    turn = await worker.next()
    asked = await worker.ask(turn, bob)
    return ada, bob, turn.session_id, asked.session_id


async def test_both_ends_name_each_other(mesh: RelayMesh) -> None:
    ada, bob, here, there = await _linked(mesh)
    for reader in (mesh.admin, ada):
        for look in (_session, _listed):
            opened = (await look(reader, here)).opened
            assert [(each.id, each.agent.id, each.title) for each in opened] == [(there, bob.id, "From ada")]
    for reader in (mesh.admin, bob):
        for look in (_session, _listed):
            opener = (await look(reader, there)).opened_by
            assert (opener.kind, opener.id, opener.session_id) == ("agent", ada.id, here)


async def test_a_session_that_opened_none_has_none(mesh: RelayMesh) -> None:
    _, _, _, there = await _linked(mesh)
    found = await _session(mesh.admin, there)
    assert (len(found.opened), found.opened_count) == (0, 0)


async def test_who_may_not_look_at_the_other_agent_learns_which_it_is_and_nothing_of_its_session(
    mesh: RelayMesh,
) -> None:
    ada, bob, here, there = await _linked(mesh)
    of_ada = await mesh.person("only-ada")
    await mesh.grant("only-ada", identity_pb2.ROLE_VIEWER, "ada")
    (linked,) = (await _session(of_ada, here)).opened
    assert (linked.agent.name, linked.agent.id) == ("bob", bob.id)
    assert (linked.id, linked.title, linked.state) == ("", "", "")
    of_bob = await mesh.person("only-bob")
    await mesh.grant("only-bob", identity_pb2.ROLE_VIEWER, "bob")
    found = await _session(of_bob, there)
    assert found.title == "From ada"
    assert (found.opened_by.name, found.opened_by.id, found.opened_by.session_id) == ("ada", ada.id, "")


async def test_at_most_20_are_shown_and_all_are_counted(mesh: RelayMesh) -> None:
    await mesh.policy(agents=40, pair_budget="0")
    ada = await mesh.agent("ada")
    worker = await mesh.worker(ada)
    await mesh.admin.sessions.Prompt(pb.PromptRequest(agent="ada", text="go", wait_seconds=0))
    turn = await worker.next()
    peers = [await mesh.agent(f"peer-{number}") for number in range(22)]
    for peer in peers:
        await worker.send(turn, peer)
    found = await _session(mesh.admin, turn.session_id)
    assert found.opened_count == 22
    assert [each.agent.id for each in found.opened] == [each.id for each in reversed(peers)][:20]
