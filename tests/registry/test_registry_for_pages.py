"""What pages for people need to know: their own role, who reaches whom, and names beside ids."""

from __future__ import annotations

from typing import Any

import pytest
from hopline.registry.v1 import agent_pb2 as pb
from hopline.registry.v1.agent_pb2 import GetAgentRequest, ListReachRequest, PauseAgentRequest
from hopline.registry.v1.identity_pb2 import (
    CreateTokenRequest,
    GrantRoleRequest,
    ListRolesRequest,
    ListTokensRequest,
)
from hopline.registry.v1.visibility_pb2 import GetSelfRequest
from hopline.registry.v1.workspace_pb2 import ApplyPresetRequest, GetPresetsRequest
from hopline_directory import ADMIN, NO_ROLE, OPERATOR, VIEWER

from tests.registry.builders import Caller, Rig, refusal


async def _reach(caller: Caller, agent: str, direction: str, size: int = 0) -> list[str]:
    """Return the slugs of all pages."""
    request = ListReachRequest(
        agent=agent, direction=pb.ReachDirection.Value(f"REACH_DIRECTION_{direction}"), page_size=size
    )
    found: list[str] = []
    while True:
        page = await caller.agents.ListReach(request)
        found += [each.slug for each in page.agents]
        if not page.next_page_token:
            return found
        request.page_token = page.next_page_token


async def test_a_person_is_told_their_role_on_the_workspace_and_an_agent_has_none(rig: Rig) -> None:
    for name, role in (("vera", VIEWER), ("olga", OPERATOR), ("anna", ADMIN), ("nora", NO_ROLE)):
        caller = await rig.user(name, role)
        assert (await caller.visibility.GetSelf(GetSelfRequest())).workspace_role == role
    _, planner = await rig.agent("planner")
    assert (await planner.visibility.GetSelf(GetSelfRequest())).workspace_role == NO_ROLE


async def test_a_person_is_told_the_highest_role_that_they_hold_on_an_agent(rig: Rig) -> None:
    olga = await rig.user("olga", OPERATOR)
    await rig.agent("own", olga)
    await rig.agent("other")
    await rig.admin.identity.GrantRole(GrantRoleRequest(user="olga", agent="other", role=VIEWER))  # type: ignore[arg-type]
    roles = [(await olga.agents.GetAgent(GetAgentRequest(agent=each))).role for each in ("own", "other")]
    assert roles == [ADMIN, OPERATOR]


async def test_who_reaches_an_agent_are_those_that_may_start_something_on_it_now(rig: Rig) -> None:
    await rig.agent("lead")
    await rig.agent("sub", is_subagent=True, parent_agent_id="lead", is_group_only_callable=True)
    await rig.agent("sibling", is_subagent=True, parent_agent_id="lead")
    await rig.agent("outside")
    await rig.agent("bound", reach=["outside"])
    await rig.agent("mute", kind=pb.AGENT_KIND_RECEIVE_ONLY)
    await rig.agent("resting")
    await rig.admin.agents.PauseAgent(PauseAgentRequest(agent="resting"))
    assert await _reach(rig.admin, "sub", "CALLERS") == ["lead", "sibling"]
    assert await _reach(rig.admin, "outside", "CALLERS", size=1) == ["bound", "lead", "sibling", "sub"]
    assert await _reach(rig.admin, "lead", "CALLERS") == ["outside", "sibling", "sub"]
    assert await _reach(rig.admin, "bound", "PEERS") == ["outside"]
    assert await _reach(rig.admin, "mute", "PEERS") == []
    assert await _reach(rig.admin, "resting", "CALLERS") == []
    assert await _reach(rig.admin, "lead", "PEERS") == ["bound", "mute", "outside", "sibling", "sub"]


async def test_who_reaches_an_agent_leaves_out_whom_the_reader_may_not_see(rig: Rig) -> None:
    await rig.agent("planner")
    await rig.agent("seen")
    await rig.agent("hidden")
    zoe = await rig.user("zoe")
    for each in ("planner", "seen"):
        await rig.admin.identity.GrantRole(GrantRoleRequest(user="zoe", agent=each, role=VIEWER))  # type: ignore[arg-type]
    assert await _reach(zoe, "planner", "CALLERS") == ["seen"]
    hidden, missing = await refusal(_reach(zoe, "hidden", "PEERS")), await refusal(_reach(zoe, "x", "PEERS"))
    assert hidden.message.replace("hidden", "x") == missing.message


async def test_roles_are_listed_of_one_agent_or_one_person_with_names(rig: Rig) -> None:
    for name in ("vera", "olga"):
        await rig.user(name, VIEWER)
    await rig.agent("planner")
    for name in ("vera", "olga"):
        await rig.admin.identity.GrantRole(GrantRoleRequest(user=name, agent="planner", role=OPERATOR))  # type: ignore[arg-type]

    async def listed(**only: Any) -> set[tuple[str, str, int]]:
        found = (await rig.admin.identity.ListRoles(ListRolesRequest(**only))).grants
        return {(each.user_name, each.agent_slug, each.role) for each in found}

    assert await listed(agent="planner") == {("vera", "planner", OPERATOR), ("olga", "planner", OPERATOR)}
    assert await listed(user="vera") == {("vera", "", VIEWER), ("vera", "planner", OPERATOR)}
    assert await listed(user="olga", agent="planner") == {("olga", "planner", OPERATOR)}


async def test_roles_on_an_agent_that_is_hidden_are_refused_like_those_of_one_that_never_existed(
    rig: Rig,
) -> None:
    await rig.agent("planner")
    zoe = await rig.user("zoe")
    hidden = await refusal(zoe.identity.ListRoles(ListRolesRequest(agent="planner")))
    missing = await refusal(zoe.identity.ListRoles(ListRolesRequest(agent="x")))
    assert hidden.message.replace("planner", "x") == missing.message


async def test_tokens_are_listed_with_the_names_of_whose_they_are(rig: Rig) -> None:
    vera = await rig.user("vera", VIEWER)
    await rig.agent("Planner")
    await rig.admin.identity.CreateToken(CreateTokenRequest(service="relay"))
    found = (await rig.admin.identity.ListTokens(ListTokensRequest())).tokens
    assert {each.subject_name for each in found} >= {"vera", "planner", "relay", "admin"}
    made = (await vera.identity.CreateToken(CreateTokenRequest(user="vera"))).info
    assert made.subject_name == "vera"


@pytest.mark.parametrize("name", ["default", "strict", "free", "solo", "entrepreneur"])
async def test_a_preset_is_listed_as_what_applying_it_makes(rig: Rig, name: str) -> None:
    presets = (await rig.admin.workspaces.GetPresets(GetPresetsRequest())).presets
    (listed,) = [each for each in presets if each.preset == name]
    assert (await rig.admin.workspaces.ApplyPreset(ApplyPresetRequest(preset=name))).policy == listed
