"""Installed plugins as the view holds them, and between their records and the contract's messages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from hopline.registry.v1 import plugin_pb2 as pb
from hopline_rpc.clock import from_timestamp, to_timestamp
from hopline_rpc.errors import HoplineError

PluginState = Literal["awaiting_confirmation", "active", "update_waiting"]
FailMode = Literal["fail_open", "fail_closed"]

AGENTS_READ: Final = "agents.read"
AGENTS_WRITE: Final = "agents.write"
MODELS_READ: Final = "models.read"
SESSION: Final = "session"
TODO_READ: Final = "todo.read"
TODO_WRITE: Final = "todo.write"
NOTIFY_WRITE: Final = "notify.write"

_STATES: Final[dict[int, PluginState]] = {
    pb.PLUGIN_STATE_AWAITING_CONFIRMATION: "awaiting_confirmation",
    pb.PLUGIN_STATE_ACTIVE: "active",
    pb.PLUGIN_STATE_UPDATE_WAITING: "update_waiting",
}


@dataclass(frozen=True, slots=True)
class PluginAgentRecord:
    """An agent that a manifest declares."""

    key: str
    name: str


@dataclass(frozen=True, slots=True)
class PluginToolRecord:
    """A tool that a plugin offers to agents."""

    name: str
    description: str
    input_schema: Mapping[str, Any] = field(hash=False)


@dataclass(frozen=True, slots=True)
class PluginSkillRecord:
    """A text that agents load by name."""

    name: str
    description: str
    text: str


@dataclass(frozen=True, slots=True)
class PluginCommandRecord:
    """A word in a person's chat that goes to one of the plugin's agents."""

    name: str
    description: str
    agent_key: str


@dataclass(frozen=True, slots=True)
class PluginHookRecord:
    """What the mesh asks a plugin about."""

    kind: str
    order: int = 0
    fail_mode: FailMode = "fail_open"


@dataclass(frozen=True, slots=True)
class PluginRecord:
    """An installed plugin, by the manifest that is in force. Times are unix seconds."""

    id: str
    workspace_id: str
    key: str
    name: str
    version: str
    state: PluginState
    installed_by: str
    installed_at: float = 0.0
    revision: int = 1
    description: str = ""
    agents: tuple[PluginAgentRecord, ...] = ()
    permissions: frozenset[str] = frozenset()
    tools: tuple[PluginToolRecord, ...] = ()
    skills: tuple[PluginSkillRecord, ...] = ()
    commands: tuple[PluginCommandRecord, ...] = ()
    hooks: tuple[PluginHookRecord, ...] = ()
    # `host:port`; empty: it is never called. The secret that goes along is in no view: `GetPluginEndpoint`.
    endpoint: str = ""
    is_model_provider: bool = False

    @property
    def slug_prefix(self) -> str:
        """What the slugs of its agents begin with."""
        return f"{self.key}-"

    @property
    def is_confirmed(self) -> bool:
        """Whether it may do anything at all."""
        return self.state != "awaiting_confirmation"

    def require(self, permission: str) -> None:
        """Refuse what the manifest in force does not allow, to the plugin itself."""
        if not self.is_confirmed:
            raise HoplineError(
                "permission_denied",
                "the plugin's installation waits to be confirmed by its owner; it may do nothing before",
                details={"permission": permission, "state": self.state},
            )
        if permission not in self.permissions:
            raise HoplineError(
                "permission_denied",
                f"the plugin's manifest (version {self.version}) lacks the permission {permission}",
                details={"permission": permission},
            )


def plugin_record(workspace_id: str, plugin: pb.Plugin) -> PluginRecord:
    """Read a plugin; a state of a newer contract counts as not confirmed."""
    manifest = plugin.manifest
    return PluginRecord(
        id=plugin.id,
        workspace_id=workspace_id,
        key=manifest.key,
        name=manifest.name,
        version=manifest.version,
        state=_STATES.get(plugin.state, "awaiting_confirmation"),
        installed_by=plugin.installed_by,
        installed_at=from_timestamp(plugin.installed_at),
        revision=plugin.revision,
        description=manifest.description,
        agents=tuple(PluginAgentRecord(each.key, each.name) for each in manifest.agents),
        permissions=frozenset(manifest.permissions),
        tools=tuple(
            PluginToolRecord(each.name, each.description, json.loads(each.input_schema_json or "{}"))
            for each in manifest.tools
        ),
        skills=tuple(PluginSkillRecord(each.name, each.description, each.text) for each in manifest.skills),
        commands=tuple(
            PluginCommandRecord(each.name, each.description, each.agent_key) for each in manifest.commands
        ),
        hooks=tuple(
            PluginHookRecord(
                each.kind, each.order, "fail_closed" if each.fail_mode == "fail_closed" else "fail_open"
            )
            for each in manifest.hooks
        ),
        endpoint=manifest.endpoint,
        is_model_provider=manifest.model_provider,
    )


def plugin_message(plugin: PluginRecord) -> pb.Plugin:
    """Write a plugin as the feed has it: without what waits."""
    manifest = pb.PluginManifest(
        key=plugin.key,
        name=plugin.name,
        version=plugin.version,
        description=plugin.description,
        agents=[pb.PluginAgent(key=each.key, name=each.name) for each in plugin.agents],
        permissions=sorted(plugin.permissions),
        tools=[_tool_message(each) for each in plugin.tools],
        skills=[
            pb.PluginSkill(name=each.name, description=each.description, text=each.text)
            for each in plugin.skills
        ],
        commands=[
            pb.PluginCommand(name=each.name, description=each.description, agent_key=each.agent_key)
            for each in plugin.commands
        ],
        hooks=[
            pb.PluginHook(kind=each.kind, order=each.order, fail_mode=each.fail_mode) for each in plugin.hooks
        ],
        endpoint=plugin.endpoint,
        model_provider=plugin.is_model_provider,
    )
    return pb.Plugin(
        id=plugin.id,
        workspace_id=plugin.workspace_id,
        manifest=manifest,
        slug_prefix=plugin.slug_prefix,
        state=state_number(plugin.state),
        installed_by=plugin.installed_by,
        installed_at=to_timestamp(plugin.installed_at),
        revision=plugin.revision,
    )


def state_number(state: PluginState) -> pb.PluginState.ValueType:
    """Write a plugin's state."""
    return pb.PluginState.Value(f"PLUGIN_STATE_{state.upper()}")


def _tool_message(tool: PluginToolRecord) -> pb.PluginTool:
    schema = json.dumps(tool.input_schema, separators=(",", ":"), ensure_ascii=False)
    return pb.PluginTool(
        name=tool.name, description=tool.description, input_schema_json="" if schema == "{}" else schema
    )
