"""Plugins with hooks that a test writes as functions: no endpoint is called."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from hopline.hooks.v1 import hook_pb2 as pb
from hopline_directory import PluginHookRecord, PluginRecord

from tests.support.relay_mesh import RelayMesh

Decide = Callable[[Any], Any]
"""Gets the request, and returns the response or raises; may be async."""


def rewrite(text: str, **more: str) -> pb.InterAgentMessageResponse:
    """Return the answer that gives a message other words."""
    return pb.InterAgentMessageResponse(rewrite=pb.HookRewrite(text=text, **more))


def veto(reason: str = "not so") -> pb.InterAgentMessageResponse:
    """Return the answer that keeps a message back."""
    return pb.InterAgentMessageResponse(veto=pb.HookVeto(reason=reason))


def passes(request: Any = None) -> pb.InterAgentMessageResponse:
    """Return the answer that lets a message pass."""
    return pb.InterAgentMessageResponse()


async def never(request: Any) -> Any:
    """Never answer."""
    await asyncio.Event().wait()


@dataclass
class HookRig:
    """The plugins of a mesh."""

    mesh: RelayMesh
    plugins: list[PluginRecord] = field(default_factory=list)
    decide: dict[tuple[str, str], Decide] = field(default_factory=dict)
    asked: list[tuple[str, Any]] = field(default_factory=list)

    @property
    def admin_id(self) -> str:
        """Who has installed them: the owner of the agents."""
        agents = list(self.mesh.relay.directory.agents(self.mesh.workspace_id))
        return agents[0].owner_id if agents else ""

    def __post_init__(self) -> None:
        hooks = self.mesh.relay.hooks
        hooks.plugins = lambda workspace_id: [
            each for each in self.plugins if each.workspace_id == workspace_id
        ]
        hooks.call = self.call

    def add(
        self,
        key: str,
        decide: Decide,
        kind: str = "inter_agent_message",
        *,
        order: int = 0,
        closed: bool = False,
        permissions: tuple[str, ...] = ("session",),
    ) -> PluginRecord:
        """Install a plugin with one hook."""
        plugin = PluginRecord(
            id=f"plg_{key}",
            workspace_id=self.mesh.workspace_id,
            key=key,
            name=key.title(),
            version="1",
            state="active",
            installed_by=self.admin_id,
            permissions=frozenset(permissions),
            hooks=(PluginHookRecord(kind, order, "fail_closed" if closed else "fail_open"),),
            endpoint="127.0.0.1:1",
        )
        self.plugins.append(plugin)
        method = {
            "inter_agent_message": "InterAgentMessage",
            "todo_added": "TodoAdded",
            "notify_scheduled": "NotifyScheduled",
            "notify_delivered": "NotifyDelivered",
            "system_prompt": "SystemPrompt",
        }[kind]
        self.decide[plugin.id, method] = decide
        self.mesh.relay.hooks.look([self.mesh.workspace_id])
        return plugin

    async def call(self, plugin: PluginRecord, method: str, request: Any, seconds: float) -> Any:
        """Ask a plugin."""
        self.asked.append((plugin.key, request))
        answer = self.decide[plugin.id, method](request)
        return await answer if isinstance(answer, Awaitable) else answer

    def texts(self, key: str) -> list[str]:
        """Return the texts that a plugin was asked about."""
        return [request.text for who, request in self.asked if who == key]
