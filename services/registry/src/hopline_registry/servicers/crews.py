"""CrewService."""

# ruff: noqa: D102 - what each method does stands in the contract

from __future__ import annotations

from bisect import bisect_right
from typing import Any, Final

from hopline.registry.v1 import agent_pb2
from hopline.registry.v1 import crew_pb2 as pb
from hopline.registry.v1.crew_pb2_grpc import CrewServiceServicer
from hopline_directory.convert import agent_message, agent_record
from hopline_rpc.auth import current_principal
from hopline_rpc.errors import invalid
from hopline_rpc.paging import Pager, fit, page_size

from hopline_registry.crew_plans import Order, Plan
from hopline_registry.crews import CrewName, Crews
from hopline_registry.domain.agents import UPDATABLE, WHY_FIXED
from hopline_registry.domain.crews import Step, Wanted
from hopline_registry.servicers.agents import wish_of
from hopline_registry.servicers.masks import chosen, overlay

# Texts of a member, and of its agent.
_TEXTS: Final = ("name", "description", "soul", "instructions")
_UPDATABLE: Final = tuple(each for each in UPDATABLE if each not in ("owner_id", "key"))
_WHY_FIXED: Final = {
    **WHY_FIXED,
    "owner_id": "is the crew's",
    "key": "does not change: by it the member is known again",
}


class CrewServicer(CrewServiceServicer):
    """Serves crews."""

    def __init__(self, crews: Crews, pager: Pager) -> None:
        self._crews = crews
        self._pager = pager

    async def CreateMember(self, request: pb.CreateMemberRequest, context: Any) -> pb.CreateMemberResponse:
        caller = current_principal()
        wish = wish_of(caller.workspace_id, request.agent)
        if request.agent.wake.webhook_secret:
            raise invalid("agent.wake.webhook_secret", "is set by AgentService.UpdateAgent")
        agent, made = await self._crews.create_member(caller, _crew(request), wish)
        return pb.CreateMemberResponse(agent=agent_message(agent), was_created=made)

    async def ListMembers(self, request: pb.ListMembersRequest, context: Any) -> pb.ListMembersResponse:
        caller = current_principal()
        query = ["members", caller.workspace_id, caller.id, request.crew, request.owner]
        found = await self._crews.members(caller, _crew(request))
        (after,) = self._pager.position(query, request.page_token) or [""]
        start = bisect_right(found, str(after), key=lambda agent: agent.key)
        wanted = found[start : start + page_size(request.page_size)]
        page = fit(agent_message(agent) for agent in wanted)
        more = start + len(page) < len(found)
        return pb.ListMembersResponse(
            agents=page, next_page_token=self._pager.token(query, [page[-1].key]) if more else ""
        )

    async def UpdateMember(self, request: pb.UpdateMemberRequest, context: Any) -> pb.UpdateMemberResponse:
        caller = current_principal()
        paths = chosen(request.update_mask, _UPDATABLE, _WHY_FIXED)
        checked = overlay(agent_pb2.Agent(name="-"), request.agent, paths)
        if checked.wake.webhook_secret:
            raise invalid("agent.wake.webhook_secret", "is set by AgentService.UpdateAgent")
        names = [*paths, *(["webhook_url"] if "wake" in paths else [])]
        wish = wish_of(caller.workspace_id, checked)
        agent = await self._crews.update_member(caller, _crew(request), request.key, wish, names)
        return pb.UpdateMemberResponse(agent=agent_message(agent))

    async def DeleteMember(self, request: pb.DeleteMemberRequest, context: Any) -> pb.DeleteMemberResponse:
        await self._crews.delete_member(current_principal(), _crew(request), request.key)
        return pb.DeleteMemberResponse()

    async def ListCrews(self, request: pb.ListCrewsRequest, context: Any) -> pb.ListCrewsResponse:
        caller = current_principal()
        query = ["crews", caller.workspace_id, caller.id]
        found = await self._crews.list(caller)
        name, owner_id = self._pager.position(query, request.page_token) or ["", ""]
        start = bisect_right(found, (name, owner_id), key=lambda crew: (crew.name, crew.owner_id))
        page = found[start : start + page_size(request.page_size)]
        more = start + len(page) < len(found)
        token = self._pager.token(query, [page[-1].name, page[-1].owner_id]) if more else ""
        return pb.ListCrewsResponse(
            crews=[
                pb.Crew(
                    name=each.name,
                    owner_id=each.owner_id,
                    owner_name=each.owner_name,
                    member_count=len(each.members),
                    lead_agent_id=each.lead.id if each.lead is not None else "",
                    lead_slug=each.lead.slug if each.lead is not None else "",
                )
                for each in page
            ],
            next_page_token=token,
        )

    async def DeleteCrew(self, request: pb.DeleteCrewRequest, context: Any) -> pb.DeleteCrewResponse:
        gone = await self._crews.delete(current_principal(), _crew(request))
        return pb.DeleteCrewResponse(
            agents=[
                agent_pb2.Agent(id=each.id, slug=each.slug, name=each.name, key=each.key, crew=each.crew)
                for each in gone
            ]
        )

    async def ApplyCrew(self, request: pb.ApplyCrewRequest, context: Any) -> pb.ApplyCrewResponse:
        order = Order(
            [_wanted(number, each) for number, each in enumerate(request.members)],
            dry_run=request.dry_run,
            only_missing=request.only_missing,
            expected_plan_id=request.expected_plan_id,
        )
        plan = await self._crews.apply(current_principal(), _crew(request), order)
        return pb.ApplyCrewResponse(members=[_planned(plan, each) for each in plan.steps], plan_id=plan.id)


def _crew(request: Any) -> CrewName:
    return CrewName(request.crew, request.owner)


def _wanted(number: int, member: pb.CrewMember) -> Wanted:
    """Read a member; what is not set says nothing."""
    values: dict[str, Any] = {name: getattr(member, name) for name in _TEXTS if member.HasField(name)}
    # The words of an agent for these, whose unspecified value is no choice.
    said = agent_pb2.Agent(thinking_level=member.thinking_level, reply_mode=member.reply_mode)
    agent = agent_record("", said)
    for name in ("thinking_level", "reply_mode"):
        if member.HasField(name):
            if not getattr(member, name):
                raise invalid(f"members[{number}].{name}", "must be one of its values, or left out")
            values[name] = getattr(agent, name)
    if member.HasField("group_only"):
        values["is_group_only_callable"] = member.group_only
    models = tuple(member.models.patterns) if member.HasField("models") else None
    return Wanted(member.key, member.lead, values, models)


def _planned(plan: Plan, step: Step) -> pb.PlannedMember:
    would_be = plan.dry_run and step.action == "create"
    return pb.PlannedMember(
        action=pb.PlanAction.Value(f"PLAN_ACTION_{step.action.upper()}"),
        key=step.agent.key,
        agent_id="" if would_be else step.agent.id,
        slug=step.agent.slug,
        name=step.agent.name,
        lead=step.is_lead,
        changes=[
            pb.FieldChange(
                field=each.field,
                before=each.before,
                after=each.after,
                before_length=each.before_length,
                after_length=each.after_length,
            )
            for each in step.changes
        ],
        note=step.note,
    )
