"""Crews applied as a whole: what is made, changed and deleted, and that a dry run says exactly that."""

from __future__ import annotations

from typing import Any

from hopline.registry.v1 import crew_pb2
from hopline.registry.v1.agent_pb2 import Agent
from hopline.registry.v1.crew_pb2 import (
    ApplyCrewRequest,
    ApplyCrewResponse,
    CrewMember,
    ListMembersRequest,
)

from tests.registry.builders import Caller, Rig

LEAD = CrewMember(key="lead", name="Lead", lead=True, soul="calm")
TRIO = (LEAD, CrewMember(key="reader", name="Reader"), CrewMember(key="critic", group_only=True))


async def apply(
    caller: Caller, *members: CrewMember, crew: str = "research", **more: Any
) -> ApplyCrewResponse:
    return await caller.crews.ApplyCrew(ApplyCrewRequest(crew=crew, members=members, **more))


def actions(applied: ApplyCrewResponse) -> dict[str, str]:
    """Return what becomes of whom, in the order of the answer."""
    return {
        each.key: crew_pb2.PlanAction.Name(each.action).removeprefix("PLAN_ACTION_").lower()
        for each in applied.members
    }


async def crew(caller: Caller, name: str = "research") -> dict[str, Agent]:
    found = await caller.crews.ListMembers(ListMembersRequest(crew=name, page_size=200))
    return {each.key: each for each in found.agents}


async def test_a_crew_is_made_with_the_lead_first_and_everyone_else_under_it(rig: Rig) -> None:
    applied = await apply(rig.admin, TRIO[1], TRIO[0], TRIO[2])
    assert list(actions(applied).items()) == [("lead", "create"), ("reader", "create"), ("critic", "create")]
    found = await crew(rig.admin)
    lead = found["lead"]
    assert (lead.is_subagent, lead.parent_agent_id, lead.soul) == (False, "", "calm")
    for key in ("reader", "critic"):
        assert (found[key].is_subagent, found[key].parent_agent_id) == (True, lead.id)
    assert (found["critic"].name, found["critic"].is_group_only_callable) == ("critic", True)
    assert {each.crew for each in found.values()} == {"research"}
    assert [each.agent_id for each in applied.members] == [found[key].id for key in actions(applied)]


async def test_a_second_run_changes_nothing(rig: Rig) -> None:
    await apply(rig.admin, *TRIO)
    seq = rig.registry.directory.seq
    again = await apply(rig.admin, *TRIO)
    assert set(actions(again).values()) == {"unchanged"}
    assert rig.registry.directory.seq == seq
