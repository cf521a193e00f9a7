"""Manifests, and plugins installed from them."""

from __future__ import annotations

from typing import Any, NamedTuple

from hopline.registry.v1 import plugin_pb2 as pb
from hopline.registry.v1.agent_pb2 import Agent, ListAgentsRequest

from tests.registry.builders import Caller, Rig

CREW = ("oracle", "librarian", "scout")


def manifest(*agents: str, **fields: Any) -> pb.PluginManifest:
    """Write a manifest that declares agents by key; an agent's name is its key with a capital."""
    declared = [pb.PluginAgent(key=key, name=key.capitalize()) for key in agents]
    values = {"key": "omo", "name": "Oh My", "version": "1", "agents": declared, **fields}
    return pb.PluginManifest(**values)


class Plugin(NamedTuple):
    """An installed plugin, and itself as a caller."""

    answer: pb.InstallPluginResponse
    caller: Caller

    @property
    def id(self) -> str:
        return self.answer.plugin.id


async def install(
    rig: Rig, *agents: str, by: Caller | None = None, confirm: bool = True, **fields: Any
) -> Plugin:
    """Install a plugin, by the admin unless somebody else is named."""
    request = pb.InstallPluginRequest(manifest=manifest(*agents, **fields), confirm=confirm)
    answer = await (by or rig.admin).plugins.InstallPlugin(request)
    return Plugin(answer, rig.caller(answer.token))


async def agents(rig: Rig) -> dict[str, Agent]:
    """Return all agents of the workspace by slug."""
    found = await rig.admin.agents.ListAgents(ListAgentsRequest(page_size=200))
    return {agent.slug: agent for agent in found.agents}


async def update(caller: Caller, new: pb.PluginManifest, *, confirm: bool = False) -> pb.UpdatePluginResponse:
    ref = "" if caller.token.startswith("hpl_p_") else new.key
    return await caller.plugins.UpdatePlugin(
        pb.UpdatePluginRequest(plugin=ref, manifest=new, confirm=confirm)
    )


async def confirm(caller: Caller, revision: int = 0) -> pb.Plugin:
    answer = await caller.plugins.ConfirmPlugin(pb.ConfirmPluginRequest(plugin="omo", revision=revision))
    return answer.plugin


async def uninstall(caller: Caller, ref: str = "omo") -> int:
    answer = await caller.plugins.UninstallPlugin(pb.UninstallPluginRequest(plugin=ref))
    return int(answer.removed_agents)


async def own(plugin: Plugin) -> dict[str, Agent]:
    """Return the plugin's own agents by key, as it sees them."""
    found = await plugin.caller.plugins.ListPluginAgents(pb.ListPluginAgentsRequest())
    return {agent.key: agent for agent in found.agents}
