"""What may stand in a plugin's manifest, what it asks for, and who may agree to that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hopline_directory import PluginRecord

# What touches nobody but the plugin's own agents.
_HARMLESS: Final = frozenset({"agents.read", "agents.write", "models.read"})
# All that a plugin may do that provides models: it sees everybody's prompts as it is.
_OF_PROVIDERS: Final = frozenset({"agents.read", "models.read"})
_MAX_PORT: Final = 65535


def manifest_problem(plugin: PluginRecord) -> tuple[str, str] | None:
    """Say which field of a manifest is wrong, and how; None when nothing is."""
    forbidden = sorted(plugin.permissions - _OF_PROVIDERS)
    if plugin.is_model_provider and forbidden:
        return "permissions", f"a model provider may not have {', '.join(forbidden)}"
    if plugin.is_model_provider and plugin.agents:
        return "agents", "a model provider has no agents"
    if plugin.endpoint and int(plugin.endpoint.rpartition(":")[2]) > _MAX_PORT:
        return "endpoint", f"the port must be from 1 to {_MAX_PORT}"
    for field, given in (("tools", plugin.tools), ("hooks", plugin.hooks)):
        if given and not plugin.endpoint:
            return field, "need an endpoint at which the plugin is called; name one"
    keys = {agent.key for agent in plugin.agents}
    for number, command in enumerate(plugin.commands):
        if command.agent_key not in keys:
            text = f"{command.agent_key!r} is the key of no agent in the manifest"
            return f"commands[{number}].agent_key", text
    return None


def arguments_problem(schema: Mapping[str, Any]) -> str | None:
    """Say why agents' clients could not read a schema as one of a tool's arguments; None where they can."""
    if schema.get("type", "object") != "object":
        return "must be of type object: a tool's arguments have names"
    properties = schema.get("properties", {})
    if not isinstance(properties, dict) or not all(isinstance(each, dict) for each in properties.values()):
        return "properties: must be an object that holds a schema for each argument"
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(each, str) for each in required):
        return "required: must be a list of names"
    if not isinstance(schema.get("$schema", ""), str):
        return "$schema: must be text"
    return None


def needs_admin(plugin: PluginRecord) -> bool:
    """Tell whether a manifest reaches further than the agents of whoever installs it."""
    contributes = plugin.tools or plugin.skills or plugin.commands or plugin.hooks or plugin.endpoint
    return bool(contributes) or plugin.is_model_provider or not plugin.permissions <= _HARMLESS


def asks(new: PluginRecord, old: PluginRecord | None = None) -> list[str]:
    """Return in words what a manifest asks for beyond an older one; beyond nothing without one."""
    found = _added("agent", _keys(new), _keys(old))
    found += _added("permission", new.permissions, old.permissions if old else ())
    if new.endpoint and new.endpoint != (old.endpoint if old else ""):
        found.append(f"endpoint {new.endpoint}")
    known = set(old.hooks) if old else set()
    found += [f"hook {each.kind} ({each.fail_mode})" for each in new.hooks if each not in known]
    for word, now, then in (
        ("tool", new.tools, old.tools if old else ()),
        ("skill", new.skills, old.skills if old else ()),
        ("command", new.commands, old.commands if old else ()),
    ):
        found += _added(word, [each.name for each in now], [each.name for each in then])
    if new.is_model_provider and not (old and old.is_model_provider):
        found.append("model provider")
    return found


def added_keys(new: PluginRecord, old: PluginRecord | None = None) -> list[str]:
    """Return the keys of agents that a manifest declares and an older one does not."""
    before = set(_keys(old))
    return [key for key in _keys(new) if key not in before]


def _keys(plugin: PluginRecord | None) -> list[str]:
    return [each.key for each in plugin.agents] if plugin else []


def _added(word: str, now: Iterable[str], then: Iterable[str]) -> list[str]:
    before = set(then)
    return [f"{word} {each}" for each in sorted(now) if each not in before]
