"""What the registry says of who sees and reaches whom, over its own RPCs."""

from __future__ import annotations

import logging

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from hopline.registry.v1 import agent_pb2 as pb
from hopline.registry.v1.agent_pb2 import (
    Agent,
    DeleteAgentRequest,
    PauseAgentRequest,
    ResumeAgentRequest,
    UpdateAgentRequest,
)
from hopline.registry.v1.identity_pb2 import GrantRoleRequest, RevokeRoleRequest
from hopline.registry.v1.visibility_pb2 import (
    RELATION_LEAD,
    RELATION_PEER,
    RELATION_SIBLING,
    RELATION_SUBAGENT,
    GetSelfRequest,
    ListPeersRequest,
    ResolveRequest,
)
from hopline_directory import OPERATOR, VIEWER
from hopline_rpc.errors import to_status

from tests.registry.builders import Caller, Rig, refusal


async def peers(caller: Caller) -> dict[str, int]:
    """Return slugs and relations."""
    found = await caller.visibility.ListPeers(ListPeersRequest(page_size=200))
    return {peer.slug: peer.relation for peer in found.peers}


async def resolve(caller: Caller, ref: str) -> str:
    return (await caller.visibility.Resolve(ResolveRequest(agent=ref))).peer.slug


async def test_peers_come_with_their_relation_in_order_of_slug(rig: Rig) -> None:
    _, lead = await rig.agent("Lead")
    _, child = await rig.agent("Child", parent_agent_id="lead")
    await rig.agent("Another", parent_agent_id="lead", is_group_only_callable=True)
    _, stranger = await rig.agent("Stranger")
    assert await peers(lead) == {
        "another": RELATION_SUBAGENT,
        "child": RELATION_SUBAGENT,
        "stranger": RELATION_PEER,
    }
    assert await peers(child) == {
        "another": RELATION_SIBLING,
        "lead": RELATION_LEAD,
        "stranger": RELATION_PEER,
    }
    assert await peers(stranger) == {"child": RELATION_PEER, "lead": RELATION_PEER}


async def test_a_person_lists_what_they_operate(rig: Rig) -> None:
    await rig.agent("Planner")
    alice = await rig.user("Alice")
    assert await peers(alice) == {}
    await rig.admin.identity.GrantRole(GrantRoleRequest(user="Alice", agent="planner", role=VIEWER))  # type: ignore[arg-type]
    assert await peers(alice) == {}
    await rig.admin.identity.GrantRole(GrantRoleRequest(user="Alice", agent="planner", role=OPERATOR))  # type: ignore[arg-type]
    assert await peers(alice) == {"planner": RELATION_PEER}
    assert await resolve(alice, "Planner") == "planner"


async def test_peers_page_and_a_token_is_bound_to_its_caller(rig: Rig) -> None:
    _, one = await rig.agent("One")
    _, two = await rig.agent("Two")
    for number in range(5):
        await rig.agent(f"Peer {number}")
    found: list[str] = []
    token = ""
    while True:
        page = await one.visibility.ListPeers(ListPeersRequest(page_size=2, page_token=token))
        found += [peer.slug for peer in page.peers]
        if page.next_page_token:
            error = await refusal(two.visibility.ListPeers(ListPeersRequest(page_token=page.next_page_token)))
            assert error.reason == "invalid_argument"
        token = page.next_page_token
        if not token:
            break
    assert found == [*(f"peer-{number}" for number in range(5)), "two"]


@pytest.mark.parametrize(
    "why", ["never there", "no role", "paused", "group only", "out of reach", "abroad", "deleted"]
)
async def test_every_miss_is_the_same_to_the_byte(rig: Rig, why: str) -> None:
    alice = await rig.user("Alice", OPERATOR)
    other = await rig.workspace("other")
    await rig.agent("Known", alice)
    _, caller = await rig.agent("Caller", alice, reach=["known"] if why == "out of reach" else [])
    if why == "no role":
        await rig.admin.identity.RevokeRole(RevokeRoleRequest(user="Alice"))
    if why != "never there":
        owner = {"abroad": other, "no role": rig.admin}.get(why, alice)
        await rig.agent("Hidden", owner, is_group_only_callable=why == "group only")
    if why == "paused":
        await rig.admin.agents.PauseAgent(PauseAgentRequest(agent="hidden"))
    if why == "deleted":
        await rig.admin.agents.DeleteAgent(DeleteAgentRequest(agent="hidden"))
    for ref in ("hidden", "Hidden"):
        missed = to_status(await refusal(resolve(caller, ref)))
        never = await refusal(resolve(caller, "zzz"))
        never.details["agent"], never.message = ref, never.message.replace("zzz", ref)
        assert missed == to_status(never)
    assert "hidden" not in await peers(caller)


async def test_the_reason_of_a_miss_is_for_the_log_alone(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    _, caller = await rig.agent("Caller")
    await rig.agent("Hidden")
    await rig.admin.agents.PauseAgent(PauseAgentRequest(agent="hidden"))
    seq = rig.registry.directory.seq
    with caplog.at_level(logging.DEBUG, logger="hopline.registry"):
        await refusal(resolve(caller, "hidden"))
        await rig.clock.settle()
    assert "paused" in caplog.text
    assert rig.registry.directory.seq == seq


async def test_two_peers_of_one_name_are_ambiguous_with_their_ids(rig: Rig) -> None:
    _, caller = await rig.agent("Caller")
    twins = [(await rig.agent("Twin"))[0].id for _ in range(2)]
    # The first has the slug `twin`; the name is written as people write it.
    error = await refusal(resolve(caller, "Twin"))
    assert (error.reason, error.details["ids"]) == ("ambiguous", sorted(twins))
    assert await resolve(caller, "twin") == "twin"
    assert await resolve(caller, twins[1]) == "twin-2"


@pytest.mark.parametrize("how", ["id", "slug", "name"])
async def test_an_agent_that_asks_for_itself_is_told_so(rig: Rig, how: str) -> None:
    agent, caller = await rig.agent("Caller")
    error = await refusal(resolve(caller, getattr(agent, how)))
    assert error.reason == "invalid_argument"
    assert "itself" in error.message


async def test_a_paused_agent_lists_nobody_and_is_told_that_it_is_paused(rig: Rig) -> None:
    _, caller = await rig.agent("Caller")
    _, peer = await rig.agent("Peer")
    await rig.admin.agents.PauseAgent(PauseAgentRequest(agent="caller"))
    assert await peers(caller) == {}
    assert await peers(peer) == {}
    assert (await refusal(resolve(caller, "peer"))).reason == "agent_paused"
    assert (await caller.visibility.GetSelf(GetSelfRequest())).agent.state == pb.AGENT_STATE_PAUSED
    await rig.admin.agents.ResumeAgent(ResumeAgentRequest(agent="caller"))
    assert await peers(caller) == {"peer": RELATION_PEER}


async def test_a_receive_only_agent_lists_nobody_and_is_told_why(rig: Rig) -> None:
    _, caller = await rig.agent("Caller", kind=pb.AGENT_KIND_RECEIVE_ONLY)
    _, peer = await rig.agent("Peer")
    assert await peers(caller) == {}
    assert (await refusal(resolve(caller, "peer"))).reason == "receive_only"
    assert await peers(peer) == {"caller": RELATION_PEER}


async def test_a_renamed_agent_is_found_by_its_new_name_and_its_old_slug(rig: Rig) -> None:
    _, caller = await rig.agent("Caller")
    agent, renamed = await rig.agent("Old name")
    request = UpdateAgentRequest(
        agent_ref="old-name", agent=Agent(name="New name"), update_mask=FieldMask(paths=["name"])
    )
    await rig.admin.agents.UpdateAgent(request)
    for ref in ("New name", "old-name", agent.id):
        assert await resolve(caller, ref) == "old-name"
    assert (await refusal(resolve(caller, "Old name"))).reason == "not_found"
    assert (await renamed.visibility.GetSelf(GetSelfRequest())).agent.name == "New name"


async def test_a_lowered_role_holds_for_the_owners_agents_when_the_call_returns(rig: Rig) -> None:
    alice = await rig.user("Alice", OPERATOR)
    _, mine = await rig.agent("Mine", alice)
    await rig.agent("Theirs")
    assert await peers(mine) == {"theirs": RELATION_PEER}
    await rig.admin.identity.GrantRole(GrantRoleRequest(user="Alice", role=VIEWER))  # type: ignore[arg-type]
    assert await peers(mine) == {}
    assert (await refusal(resolve(mine, "theirs"))).reason == "not_found"
