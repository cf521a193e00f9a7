"""The chain of agents behind a delegation: kept by the mesh, shown as far as its reader may see."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from hopline.registry.v1 import identity_pb2
from hopline.relay.v1 import delegation_pb2, message_pb2, session_pb2

from tests.support.relay_mesh import Caller, RelayMesh, refusal

CONTEXT = session_pb2.GetContextRequest()


def names(parties: Any) -> list[str]:
    return [party.name for party in parties]


async def three(mesh: RelayMesh) -> tuple[Caller, Caller, Caller]:
    """Two agents of the admin's, and one of a person who knows the second alone."""
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    olga = await mesh.person("olga", identity_pb2.ROLE_VIEWER)
    cid = await mesh.agent("cid", owner_id=olga.id)
    await mesh.admin.people.RevokeRole(identity_pb2.RevokeRoleRequest(user="olga"))
    await mesh.grant("olga", identity_pb2.ROLE_OPERATOR, bob.id)
    return ada, bob, cid


async def in_a_row(mesh: RelayMesh, *agents: Caller) -> None:
    """Have each of these agents send to the next, in a turn that it pulled."""
    for sender, recipient in pairwise(agents):
        await sender.send(recipient)
        taken = await recipient.take()
        assert len(taken.messages) == 1


async def test_a_chain_is_shown_where_work_is_taken_without_the_names_its_reader_may_not_see(
    mesh: RelayMesh,
) -> None:
    ada, bob, cid = await three(mesh)
    await ada.send(bob)
    (message,) = (await bob.take()).messages
    assert names(message.chain) == ["ada", "bob"]
    await bob.send(cid)
    taken = await cid.take()
    assert names(taken.messages[0].chain) == ["another agent", "bob", "cid"]
    assert not taken.messages[0].chain[0].id
    assert names((await cid.sessions.GetContext(CONTEXT)).chain) == ["another agent", "bob", "cid"]
    assert names((await bob.sessions.GetContext(CONTEXT)).chain) == ["ada", "bob"]
    turn_id = taken.turn_id
    for reader, expected in ((mesh.admin, "ada"), (cid, "another agent")):
        turn = (await reader.turns.GetTurn(delegation_pb2.GetTurnRequest(turn_id=turn_id))).turn
        assert names(turn.chain) == [expected, "bob", "cid"]


async def test_a_worker_is_told_the_chain_with_its_message(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await ada.ask(bob)
    turn = await (await mesh.worker(bob)).next()
    assert names(turn.messages[0].chain) == ["ada", "bob"]


async def test_a_refused_cycle_names_the_chain_as_the_sender_may_see_it(mesh: RelayMesh) -> None:
    ada, bob, cid = await three(mesh)
    await mesh.policy(refuse_cycles="on")
    await in_a_row(mesh, ada, bob, cid)
    error = await refusal(cid.send(bob))
    assert error.reason == "cycle_refused"
    assert error.details == {
        "rail": "refuse_cycles",
        "chain": ["another agent", "bob", "cid"],
        "agent": "bob",
    }
    assert "bob already takes part in this chain of delegations (another agent → bob → cid)" in error.message
    assert ada.id not in str(error.to_dict())
    # It cost nothing.
    assert (await mesh.usage(cid)).sent_today == 0


@pytest.mark.parametrize("policy", ["on", "warn"])
async def test_answers_close_no_cycle(mesh: RelayMesh, policy: str) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await mesh.policy(refuse_cycles=policy)
    sent = await ada.send(bob)
    await bob.take()
    await bob.reply(sent.message_id)
    assert len((await ada.take()).messages) == 1


async def test_a_cycle_that_is_warned_of_passes_and_is_said_to_the_sender_and_in_the_log(
    mesh: RelayMesh,
) -> None:
    ada, bob, cid = await three(mesh)
    await mesh.policy(refuse_cycles="warn")
    await in_a_row(mesh, ada, bob, cid)
    sent = await cid.send(bob)
    assert names(sent.cycle) == ["another agent", "bob", "cid"]
    (event,) = [each for each in await mesh.events("message.sent") if each.message_id == sent.message_id]
    assert MessageToDict(event.details)["cycle"] == [ada.id, bob.id, cid.id]
    assert not (await ada.send(bob)).cycle
    await mesh.policy(refuse_cycles="off")
    assert not (await cid.send(bob)).cycle


async def test_an_ask_that_closes_a_cycle_says_so_with_its_answer(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await mesh.policy(refuse_cycles="warn")
    await in_a_row(mesh, ada, bob)
    asked = await bob.messages.Ask(message_pb2.AskRequest(agent=ada.id, text="?", wait_seconds=0))
    assert names(asked.cycle) == ["ada", "bob"]


async def test_every_rail_is_shown_before_it_is_hit(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await mesh.policy(
        root_turns=7, pair_budget="2/60s", refusals="2/30s", agents=10, sent_per_day=5, credits="1"
    )
    await mesh.deposit("9")
    await ada.send(bob)
    (taken,) = (await bob.take()).messages
    await refusal(bob.send("nobody"))
    found, where = await mesh.usage(bob), await bob.sessions.GetContext(CONTEXT)
    assert (found.sent_today, found.received_today, found.inbox) == (0, 1, 0)
    assert (found.root_turns, found.root_limit) == (1, 7)
    root = await mesh.admin.turns.GetRoot(delegation_pb2.GetRootRequest(root_id=found.root_id))
    assert root.root.agent.name == "ada"
    assert (found.workspace_sent_today, found.workspace_sent_limit) == (1, 50)
    assert [(pair.name, pair.used, pair.HasField("frees_at")) for pair in found.pairs] == [("ada", 1, False)]
    assert (found.credits.balance, found.credits.price) == ("8", "1")
    assert (where.refusals, where.HasField("refusals_free_at")) == (1, False)
    assert (where.depth, names(where.chain)) == (1, ["ada", "bob"])
    await bob.reply(taken.id)
    await bob.send(ada)
    (pair,) = (await mesh.usage(bob)).pairs
    error = await refusal(bob.send(ada))
    assert error.reason == "pair_budget_exceeded"
    assert (pair.used, pair.frees_at.ToJsonString()) == (2, error.details["resets_at"])
    assert {key: error.details[key] for key in ("rail", "limit", "used", "window_seconds")} == {
        "rail": "pair_budget",
        "limit": 2,
        "used": 2,
        "window_seconds": 60,
    }
    error = await refusal(bob.send(ada))
    assert error.reason == "overloaded"
    shown = (await bob.sessions.GetContext(CONTEXT)).refusals_free_at.ToJsonString()
    assert (error.details["rail"], error.details["limit"], error.details["resets_at"]) == (
        "refusals",
        2,
        shown,
    )


async def test_people_see_where_their_agents_stand_and_nobody_elses(mesh: RelayMesh) -> None:
    ada, bob, cid = await three(mesh)
    await in_a_row(mesh, ada, bob)
    viewer = await mesh.person("vera")
    await mesh.grant("vera", identity_pb2.ROLE_VIEWER, bob.id)
    asked = session_pb2.GetContextRequest(agent=bob.id)
    assert names((await viewer.sessions.GetContext(asked)).chain) == ["another agent", "bob"]
    hidden = await refusal(viewer.sessions.GetContext(session_pb2.GetContextRequest(agent="ada")))
    nobody = await refusal(viewer.sessions.GetContext(session_pb2.GetContextRequest(agent="xyz")))
    assert hidden.reason == nobody.reason == "not_found"
    assert hidden.message.replace("ada", "xyz") == nobody.message
    assert (await refusal(cid.sessions.GetContext(asked))).reason == "not_found"
    own = session_pb2.GetContextRequest(agent=cid.id)
    assert not (await cid.sessions.GetContext(own)).chain


async def test_a_hidden_agent_in_a_pair_has_no_name(mesh: RelayMesh) -> None:
    ada, _, cid = await three(mesh)
    await ada.send(cid)
    (pair,) = (await mesh.usage(cid)).pairs
    assert (pair.agent_id, pair.name, pair.used) == ("", "another agent", 1)
    (pair,) = (await mesh.usage(ada)).pairs
    assert (pair.agent_id, pair.name) == (cid.id, "cid")
