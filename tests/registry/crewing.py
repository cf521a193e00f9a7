"""Crews as the tests apply them."""

from __future__ import annotations

from typing import Any

from google.protobuf.field_mask_pb2 import FieldMask
from hopline.registry.v1 import crew_pb2
from hopline.registry.v1.agent_pb2 import (
    Agent,
    UpdateAgentRequest,
)
from hopline.registry.v1.crew_pb2 import (
    ApplyCrewRequest,
    ApplyCrewResponse,
    CrewMember,
    ListMembersRequest,
)
from hopline.registry.v1.workspace_pb2 import Policy, UpdatePolicyRequest

from tests.registry.builders import Caller, Rig

LEAD = CrewMember(key="lead", name="Lead", lead=True, soul="calm")
READER = CrewMember(key="reader", name="Reader")
CRITIC = CrewMember(key="critic", group_only=True)
TRIO = (LEAD, READER, CRITIC)


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


def changed(applied: ApplyCrewResponse, key: str) -> dict[str, tuple[str, str]]:
    member = next(each for each in applied.members if each.key == key)
    return {each.field: (each.before, each.after) for each in member.changes}


async def crew(caller: Caller, name: str = "research", **more: Any) -> dict[str, Agent]:
    found = await caller.crews.ListMembers(ListMembersRequest(crew=name, page_size=200, **more))
    return {each.key: each for each in found.agents}


async def set_agent(caller: Caller, ref: str, **fields: Any) -> Agent:
    request = UpdateAgentRequest(
        agent_ref=ref, agent=Agent(**fields), update_mask=FieldMask(paths=list(fields))
    )
    return (await caller.agents.UpdateAgent(request)).agent


async def set_room(rig: Rig, agents: int) -> None:
    request = UpdatePolicyRequest(policy=Policy(agents=agents), update_mask=FieldMask(paths=["agents"]))
    await rig.admin.workspaces.UpdatePolicy(request)


def but(member: CrewMember, **fields: Any) -> CrewMember:
    """Return a member with some fields of it otherwise."""
    made = CrewMember()
    made.CopyFrom(member)
    made.MergeFrom(CrewMember(**fields))
    return made
