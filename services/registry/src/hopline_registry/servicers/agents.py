"""AgentService."""

# ruff: noqa: D102 - what each method does stands in the contract

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from hopline.registry.v1 import agent_pb2 as pb
from hopline.registry.v1.agent_pb2_grpc import AgentServiceServicer
from hopline_directory import AgentRecord
from hopline_directory.convert import agent_message, agent_record, role_number
from hopline_rpc.auth import current_principal
from hopline_rpc.errors import invalid
from hopline_rpc.paging import Pager, fit, page_size

from hopline_registry.agents import Agents
from hopline_registry.domain.agents import UPDATABLE, WHY_FIXED
from hopline_registry.servicers.masks import chosen, overlay
from hopline_registry.webhooks import Webhooks


class AgentServicer(AgentServiceServicer):
    """Serves agents and their definitions."""

    def __init__(self, agents: Agents, webhooks: Webhooks, pager: Pager) -> None:
        self._agents = agents
        self._webhooks = webhooks
        self._pager = pager

    async def CreateAgent(self, request: pb.CreateAgentRequest, context: Any) -> pb.CreateAgentResponse:
        caller = current_principal()
        wish = wish_of(caller.workspace_id, request.agent)
        agent, token = await self._agents.create(caller, request, wish)
        return pb.CreateAgentResponse(agent=self._shown(agent), token=token)

    async def GetAgent(self, request: pb.GetAgentRequest, context: Any) -> pb.GetAgentResponse:
        caller = current_principal()
        agent = self._agents.get(caller, request.agent)
        role = role_number(self._agents.role_on(caller, agent))
        return pb.GetAgentResponse(agent=self._shown(agent), role=role)

    async def ListAgents(self, request: pb.ListAgentsRequest, context: Any) -> pb.ListAgentsResponse:
        caller = current_principal()
        query = ["agents", caller.workspace_id, caller.id]
        visible = self._agents.visible(caller).ordered
        (after,) = self._pager.position(query, request.page_token) or [""]
        start = bisect_right(visible, str(after), key=lambda agent: agent.slug)
        wanted = visible[start : start + page_size(request.page_size)]
        page = fit(self._shown(agent) for agent in wanted)
        more = start + len(page) < len(visible)
        return pb.ListAgentsResponse(
            agents=page, next_page_token=self._pager.token(query, [page[-1].slug]) if more else ""
        )

    async def ListReach(self, request: pb.ListReachRequest, context: Any) -> pb.ListReachResponse:
        caller = current_principal()
        query = ["reach", caller.workspace_id, caller.id, request.agent, int(request.direction)]
        (after,) = self._pager.position(query, request.page_token) or [""]
        size = page_size(request.page_size)
        callers = request.direction == pb.REACH_DIRECTION_CALLERS
        page, more = self._agents.reach(caller, request.agent, str(after), size, callers=callers)
        return pb.ListReachResponse(
            agents=[pb.ReachAgent(id=each.id, slug=each.slug, name=each.name) for each in page],
            next_page_token=self._pager.token(query, [page[-1].slug]) if more else "",
        )

    async def UpdateAgent(self, request: pb.UpdateAgentRequest, context: Any) -> pb.UpdateAgentResponse:
        caller = current_principal()
        paths = chosen(request.update_mask, UPDATABLE, WHY_FIXED)
        checked = overlay(pb.Agent(name="-"), request.agent, paths)
        wish = wish_of(caller.workspace_id, checked)
        names = [*paths, *(["webhook_url"] if "wake" in paths else [])]
        secret = checked.wake.webhook_secret
        expected = wish_of(caller.workspace_id, request.expected) if request.HasField("expected") else None
        agent = await self._agents.update(caller, request.agent_ref, wish, names, secret, expected)
        return pb.UpdateAgentResponse(agent=self._shown(agent))

    async def GetWakeWebhook(
        self, request: pb.GetWakeWebhookRequest, context: Any
    ) -> pb.GetWakeWebhookResponse:
        found = await self._webhooks.of_agent(request)
        return pb.GetWakeWebhookResponse(url=found.url, secret=found.secret)

    async def PauseAgent(self, request: pb.PauseAgentRequest, context: Any) -> pb.PauseAgentResponse:
        agent = await self._agents.pause(current_principal(), request.agent)
        return pb.PauseAgentResponse(agent=self._shown(agent))

    async def ResumeAgent(self, request: pb.ResumeAgentRequest, context: Any) -> pb.ResumeAgentResponse:
        agent = await self._agents.resume(current_principal(), request.agent)
        return pb.ResumeAgentResponse(agent=self._shown(agent))

    async def DeleteAgent(self, request: pb.DeleteAgentRequest, context: Any) -> pb.DeleteAgentResponse:
        await self._agents.delete(current_principal(), request.agent)
        return pb.DeleteAgentResponse()

    def _shown(self, agent: AgentRecord) -> pb.Agent:
        """Write an agent as people see it: with the badge of its plugin."""
        message = agent_message(agent)
        message.plugin_name = self._agents.plugin_name(agent)
        return message


def wish_of(workspace_id: str, agent: pb.Agent) -> AgentRecord:
    """Read the definition that a caller wishes for."""
    try:
        return agent_record(workspace_id, agent)
    except ValueError:
        raise invalid("agent.server_tools", "a schema holds a number that JSON does not have") from None
