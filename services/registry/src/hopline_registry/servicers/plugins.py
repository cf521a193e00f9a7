"""PluginService."""

# ruff: noqa: D102 - what each method does stands in the contract

from __future__ import annotations

from typing import Any

from hopline.registry.v1 import plugin_pb2 as pb
from hopline.registry.v1.agent_pb2 import Agent
from hopline.registry.v1.plugin_pb2_grpc import PluginServiceServicer
from hopline_directory import AgentRecord
from hopline_directory.convert import agent_message, agent_record
from hopline_rpc.auth import current_principal
from hopline_rpc.errors import invalid
from hopline_rpc.paging import Pager, fit, page_size

from hopline_registry.domain.agents import UPDATABLE, WHY_FIXED
from hopline_registry.plugin_agents import PLUGIN_UPDATABLE, PluginAgents
from hopline_registry.plugin_rows import told
from hopline_registry.plugins import Plugins
from hopline_registry.servicers.masks import chosen, overlay

# A plugin says of its agents what they are, not what they may do and where they run.
_WHY_FIXED = {
    **WHY_FIXED,
    **dict.fromkeys(set(UPDATABLE) - set(PLUGIN_UPDATABLE), "is said by the agent's owner"),
    "key": "does not change: by it the agent is known again",
}


class PluginServicer(PluginServiceServicer):
    """Serves plugins to people, and their own agents to plugins."""

    def __init__(self, plugins: Plugins, agents: PluginAgents, pager: Pager) -> None:
        self._plugins = plugins
        self._agents = agents
        self._pager = pager

    async def InstallPlugin(self, request: pb.InstallPluginRequest, context: Any) -> pb.InstallPluginResponse:
        found = await self._plugins.install(current_principal(), request)
        return pb.InstallPluginResponse(
            plugin=told(found.row),
            token=found.token,
            endpoint_secret=found.secret,
            was_created=found.was_created,
            adds_agents=found.adds_agents,
        )

    async def ConfirmPlugin(self, request: pb.ConfirmPluginRequest, context: Any) -> pb.ConfirmPluginResponse:
        row = await self._plugins.confirm(current_principal(), request.plugin, request.revision)
        return pb.ConfirmPluginResponse(plugin=told(row))

    async def UpdatePlugin(self, request: pb.UpdatePluginRequest, context: Any) -> pb.UpdatePluginResponse:
        found = await self._plugins.update(current_principal(), request)
        return pb.UpdatePluginResponse(
            plugin=told(found.row),
            adds_agents=found.adds_agents,
            retired_agent_ids=[agent.id for agent in found.retired],
        )

    async def DeclinePluginUpdate(
        self, request: pb.DeclinePluginUpdateRequest, context: Any
    ) -> pb.DeclinePluginUpdateResponse:
        row = await self._plugins.decline(current_principal(), request.plugin)
        return pb.DeclinePluginUpdateResponse(plugin=told(row))

    async def UninstallPlugin(
        self, request: pb.UninstallPluginRequest, context: Any
    ) -> pb.UninstallPluginResponse:
        removed = await self._plugins.uninstall(current_principal(), request.plugin)
        return pb.UninstallPluginResponse(removed_agents=removed)

    async def GetPlugin(self, request: pb.GetPluginRequest, context: Any) -> pb.GetPluginResponse:
        row = await self._plugins.get(current_principal(), request.plugin)
        return pb.GetPluginResponse(plugin=told(row))

    async def ListPlugins(self, request: pb.ListPluginsRequest, context: Any) -> pb.ListPluginsResponse:
        caller = current_principal()
        query = ["plugins", caller.workspace_id, caller.id]
        (after,) = self._pager.position(query, request.page_token) or [""]
        found, more = await self._plugins.list(caller, str(after), page_size(request.page_size))
        page = fit(told(row) for row in found)
        more = more or len(page) < len(found)
        return pb.ListPluginsResponse(
            plugins=page,
            next_page_token=self._pager.token(query, [page[-1].manifest.key]) if more else "",
        )

    async def RotatePluginSecret(
        self, request: pb.RotatePluginSecretRequest, context: Any
    ) -> pb.RotatePluginSecretResponse:
        secret = await self._plugins.rotate_secret(current_principal(), request.plugin)
        return pb.RotatePluginSecretResponse(endpoint_secret=secret)

    async def GetPluginEndpoint(
        self, request: pb.GetPluginEndpointRequest, context: Any
    ) -> pb.GetPluginEndpointResponse:
        endpoint, secret = await self._plugins.endpoint(request)
        return pb.GetPluginEndpointResponse(endpoint=endpoint, secret=secret)

    # -- for plugins themselves ---------------------------------------------------------------------

    async def ListPluginAgents(
        self, request: pb.ListPluginAgentsRequest, context: Any
    ) -> pb.ListPluginAgentsResponse:
        caller = current_principal()
        query = ["plugin agents", caller.workspace_id, caller.id]
        (after,) = self._pager.position(query, request.page_token) or [""]
        found, more = await self._agents.list(caller, str(after), page_size(request.page_size))
        page = fit(agent_message(agent) for agent in found)
        more = more or len(page) < len(found)
        return pb.ListPluginAgentsResponse(
            agents=page, next_page_token=self._pager.token(query, [page[-1].slug]) if more else ""
        )

    async def CreatePluginAgent(
        self, request: pb.CreatePluginAgentRequest, context: Any
    ) -> pb.CreatePluginAgentResponse:
        caller = current_principal()
        for field, _ in request.agent.ListFields():
            if field.name not in ("key", *PLUGIN_UPDATABLE):
                raise invalid(f"agent.{field.name}", _WHY_FIXED.get(field.name, "is not for plugins to say"))
        wish = _wish(caller.workspace_id, request.agent)
        agent, was_created = await self._agents.create(caller, wish)
        return pb.CreatePluginAgentResponse(agent=agent_message(agent), was_created=was_created)

    async def UpdatePluginAgent(
        self, request: pb.UpdatePluginAgentRequest, context: Any
    ) -> pb.UpdatePluginAgentResponse:
        caller = current_principal()
        enabled = request.enabled if request.HasField("enabled") else None
        # A mask that names nothing says something only together with `enabled`.
        asked = request.update_mask.paths or enabled is None
        paths = chosen(request.update_mask, PLUGIN_UPDATABLE, _WHY_FIXED) if asked else []
        wish = _wish(caller.workspace_id, overlay(Agent(name="-"), request.agent, paths))
        agent = await self._agents.update(caller, request.agent_ref, wish, paths, enabled)
        return pb.UpdatePluginAgentResponse(agent=agent_message(agent))

    async def DeletePluginAgent(
        self, request: pb.DeletePluginAgentRequest, context: Any
    ) -> pb.DeletePluginAgentResponse:
        await self._agents.delete(current_principal(), request.agent)
        return pb.DeletePluginAgentResponse()


def _wish(workspace_id: str, agent: Agent) -> AgentRecord:
    """Read what a plugin wishes; tools of the agent's own, which may not be read, are not among it."""
    return agent_record(workspace_id, agent)
