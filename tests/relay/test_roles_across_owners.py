"""Agents of two people: what one may start on the other's, what is on record of it, and for whom."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

import pytest
from hopline.registry.v1 import agent_pb2, identity_pb2
from hopline.relay.v1 import audit_pb2, session_pb2
from hopline.relay.v1 import message_pb2 as pb

from tests.support.relay_mesh import Caller, RelayMesh, refusal

OPERATOR = 2
SHOWN = "planner (for Alice)"


@dataclass
class Two:
    """Alice's planner and Bob's reviewer. Neither person holds a role on the workspace."""

    mesh: RelayMesh
    alice: Caller
    bob: Caller
    planner: Caller
    reviewer: Caller

    async def grant(self) -> None:
        """Let Alice's agents work with Bob's reviewer, as Bob does it."""
        request = identity_pb2.GrantRoleRequest(user="Alice", agent="reviewer", role=OPERATOR)  # type: ignore[arg-type]
        await self.bob.people.GrantRole(request)

    async def revoke(self) -> None:
        """Take that away again."""
        await self.bob.people.RevokeRole(identity_pb2.RevokeRoleRequest(user="Alice", agent="reviewer"))

    async def sent(self, reader: Caller, agent: str = "") -> list[audit_pb2.Event]:
        """Return the messages that stand in the audit log for a reader."""
        request = audit_pb2.ListEventsRequest(action="message.sent", agent=agent, page_size=200)
        return list((await reader.audit.ListEvents(request)).events)


@pytest.fixture
async def two(mesh: RelayMesh) -> Two:
    alice, bob = await mesh.person("Alice"), await mesh.person("Bob")
    planner = await mesh.agent("planner", owner_id=alice.id)
    reviewer = await mesh.agent("reviewer", owner_id=bob.id)
    return Two(mesh, alice, bob, planner, reviewer)


async def told(call: Awaitable[Any], name: str) -> tuple[str, str, dict[str, Any]]:
    """Return the whole answer to a refused call, but for the name that was asked for."""
    error = await refusal(call)
    details = {key: value for key, value in error.details.items() if value != name}
    return error.reason, error.message.replace(name, "NAME"), details


async def test_a_role_opens_one_way_and_only_while_it_is_held(two: Two) -> None:
    never = await told(two.planner.ask("nobody"), "nobody")
    assert never[0] == "not_found"
    assert await told(two.planner.ask("reviewer"), "reviewer") == never
    await two.grant()
    asked = await two.planner.ask("reviewer")
    assert asked.status == pb.TURN_STATUS_QUEUED
    assert await told(two.reviewer.ask("planner"), "planner") == never
    await two.revoke()
    assert await told(two.planner.ask("reviewer"), "reviewer") == never
    for ref in (two.reviewer.id, "agt_never"):
        assert (await told(two.planner.send(ref), ref))[:2] == never[:2]
    # Having dealt with each other opens no other way in: neither the thread nor the session does.
    assert (await refusal(two.planner.send("reviewer", thread_id=asked.thread_id))).reason == "not_found"
    assert (await refusal(two.planner.ask("reviewer", session_id=asked.session_id))).reason == "not_found"
    await two.grant()
    assert (await two.planner.ask("reviewer")).status == pb.TURN_STATUS_QUEUED


async def test_what_is_queued_when_the_role_goes_is_withdrawn_at_its_claim(two: Two) -> None:
    await two.grant()
    asked, sent = await two.planner.ask("reviewer"), await two.planner.send("reviewer")
    await two.revoke()
    worker = await two.mesh.worker(two.reviewer)
    for _ in range(2):  # they are one behind the other, in the same session
        assert await worker.claim() == []
    found = await two.planner.check(asked.turn_id)
    assert (found.status, found.error.code) == (pb.TURN_STATUS_CANCELED, "canceled")
    assert "withdrawn" in found.error.message
    [message] = [each for each in await two.mesh.thread(sent.thread_id) if each.id == sent.message_id]
    assert message.deliveries[0].state == pb.DELIVERY_STATE_WITHDRAWN


async def test_what_runs_when_the_role_goes_runs_on_and_its_answer_arrives(two: Two) -> None:
    await two.grant()
    asked = await two.planner.ask("reviewer")
    worker = await two.mesh.worker(two.reviewer)
    turn = await worker.next()
    await two.revoke()
    assert (await two.planner.check(asked.turn_id)).status == pb.TURN_STATUS_RUNNING
    assert await worker.end(turn, "yes")
    found = await two.planner.check(asked.turn_id)
    assert (found.status, found.reply) == (pb.TURN_STATUS_COMPLETED, "yes")


async def test_a_message_that_was_let_in_may_still_be_replied_to_once_the_role_is_gone(two: Two) -> None:
    await two.grant()
    sent = await two.planner.send("reviewer")
    assert (await two.reviewer.take()).messages[0].id == sent.message_id
    await two.revoke()
    assert (await two.reviewer.reply(sent.message_id, "so it is")).message_id
    assert (await two.planner.take()).messages[0].body == "so it is"


async def test_each_message_stands_in_the_log_of_the_targets_owner_under_the_senders_owner(two: Two) -> None:
    await two.grant()
    await two.planner.ask("reviewer", text="is it sound?")
    worker = await two.mesh.worker(two.reviewer)
    await worker.end(await worker.next(), "yes")
    await two.planner.send("reviewer")
    carol = await two.mesh.person("Carol")
    exchange = [SHOWN, "reviewer (for Bob)", SHOWN]
    for _ in range(2):  # as it is, and after a restart
        for reader in (two.bob, two.alice, two.mesh.admin):
            assert [event.actor_display for event in await two.sent(reader)] == exchange
        about = await two.sent(two.bob, "reviewer")
        assert [event.actor_display for event in about] == exchange
        assert [event.agent_id for event in about] == [two.reviewer.id, two.planner.id, two.reviewer.id]
        assert await two.sent(carol) == []
        await two.mesh.reopen()


async def test_the_log_keeps_the_owner_in_whose_name_it_was_said(two: Two) -> None:
    await two.grant()
    await two.planner.send("reviewer")
    carol = await two.mesh.person("Carol")
    await two.mesh.grant("Carol", OPERATOR, "reviewer")
    request = agent_pb2.UpdateAgentRequest(agent_ref="planner", agent=agent_pb2.Agent(owner_id=carol.id))
    request.update_mask.paths.append("owner_id")
    await two.mesh.admin.agents.UpdateAgent(request)
    await two.planner.send("reviewer")
    shown = [event.actor_display for event in await two.sent(two.bob)]
    assert shown == [SHOWN, "planner (for Carol)"]


async def test_the_targets_owner_sees_who_wrote_in_the_thread_the_session_and_the_transcript(
    two: Two,
) -> None:
    await two.grant()
    asked = await two.planner.ask("reviewer", text="is it sound?")
    [message] = await two.mesh.thread(asked.thread_id, two.bob)
    assert getattr(message, "from").display == SHOWN
    [session] = (await two.bob.sessions.ListSessions(session_pb2.ListSessionsRequest())).sessions
    assert (session.title, session.opened_by.name) == ("From planner", "planner")
    assert session.opened_by.id == two.planner.id
    read = session_pb2.ReadSessionRequest(session_id=session.id)
    [entry] = (await two.bob.sessions.ReadSession(read)).entries
    assert getattr(entry, "from").display == SHOWN


async def test_who_wrote_to_somebody_elses_agent_too_is_not_shown_whom_else_a_message_went_to(
    two: Two,
) -> None:
    await two.grant()
    await two.mesh.agent("cid", owner_id=two.alice.id)
    sent = await two.planner.send("reviewer", "cid")
    [message] = await two.mesh.thread(sent.thread_id, two.bob)
    assert [party.name for party in message.to] == ["reviewer", "another agent"]
    [event] = await two.sent(two.bob)
    assert event.agent_id == two.reviewer.id


async def test_a_refused_look_at_an_agent_is_not_told_to_its_owner_by_name(two: Two) -> None:
    await refusal(two.planner.send(two.reviewer.id))
    await two.mesh.relay.refusals.drained()
    request = audit_pb2.ListEventsRequest(action="message.refused")
    for event in (await two.bob.audit.ListEvents(request)).events:
        assert (event.actor_id, event.actor_display) == ("", "another agent")
    [event] = (await two.alice.audit.ListEvents(request)).events
    assert event.actor_display == SHOWN
