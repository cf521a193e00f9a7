"""What plugins contribute to agents: their tools as `plugin__tool`, and `use_skill` where there are skills.

By the live view of the registry, for every active standard agent of the workspace; an agent's own `tools`
setting leaves out what it does not name. What a plugin writes, and returns, is other people's words: a
description says whose it is, and a result stands inside a fence.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any, Final

import jsonschema
from hopline.relay.v1 import plugin_tool_pb2 as pb
from hopline_directory import Directory, PluginRecord, PluginToolRecord
from hopline_rpc.principals import Principal
from jsonschema.validators import validator_for

from hopline_gateway import shapes
from hopline_gateway.server_tools import written
from hopline_gateway.texts import Foreign, Skill
from hopline_gateway.toolkit import MAX_WAIT, Call, Json, Result, Tool
from hopline_gateway.tools import fields

SEPARATOR: Final = "__"
USE_SKILL: Final = "use_skill"
_OUTPUT: Final = {
    "status": {"enum": ["completed", "failed"]},
    "result": fields.ANYTHING,
    "error": fields.OBJECT,
}
_HEADLINES: Final = {
    "completed": "Done.",
    "failed": "The tool did not give a result; the error says why. Your own call worked.",
}


class Contributions:
    """Finds what plugins add to the tools of an agent."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    def tools(self, principal: Principal) -> list[Tool]:
        """Return the tools that plugins add for a caller."""
        if principal.kind != "agent":
            return []
        plugins = self._directory.plugins(principal.workspace_id)
        found = [_tool(plugin, tool) for plugin in plugins if plugin.endpoint for tool in plugin.tools]
        skills = list(_skills(plugins))
        return [*found, _use_skill(skills)] if skills else found

    def find(self, principal: Principal, name: str) -> Tool | None:
        """Return the tool of that name; None where no plugin adds it for this caller."""
        if principal.kind != "agent" or (SEPARATOR not in name and name != USE_SKILL):
            return None
        plugins = self._directory.plugins(principal.workspace_id)
        if name == USE_SKILL:
            skills = list(_skills(plugins))
            return _use_skill(skills) if skills else None
        key, _, own = name.partition(SEPARATOR)
        for plugin in plugins:
            if plugin.key == key and plugin.endpoint:
                for tool in plugin.tools:
                    if tool.name == own:
                        return _tool(plugin, tool)
        return None


def _skills(plugins: tuple[PluginRecord, ...]) -> Iterator[tuple[str, str]]:
    """Yield every skill with when to use it."""
    for plugin in plugins:
        for skill in plugin.skills:
            yield f"{plugin.key}{SEPARATOR}{skill.name}", skill.description


def _tool(plugin: PluginRecord, tool: PluginToolRecord) -> Tool:
    name = f"{plugin.key}{SEPARATOR}{tool.name}"
    return Tool(
        name=name,
        description=f"Of the plugin {json.dumps(plugin.name, ensure_ascii=False)}: {tool.description}",
        run=partial(_call, name),
        schema=_arguments(tool),
        output=_OUTPUT,
        waits=True,
    )


@lru_cache(maxsize=1024)
def _arguments(tool: PluginToolRecord) -> Json:
    """Return the schema that agents are shown; of one that clients would trip over, that it is an object.

    For a client one tool that it cannot read takes all others with it, the mesh's own too.
    """
    shown: Json = {"type": "object", **tool.input_schema}
    if shown["type"] != "object" or not isinstance(shown.get("$schema", ""), str):
        return {"type": "object"}
    try:
        validator_for(shown, default=jsonschema.Draft202012Validator).check_schema(shown)
    except (jsonschema.SchemaError, RecursionError):
        return {"type": "object"}
    readable = all(isinstance(each, dict) for each in shown.get("properties", {}).values())
    return shown if readable else {"type": "object"}


async def _call(name: str, call: Call) -> Result:
    """Run a tool of a plugin, and wait for its result."""
    request = pb.CallPluginToolRequest(
        tool=name,
        arguments_json=written(call.arguments),
        timeout_seconds=MAX_WAIT,
        caller_session_id=call.caller.session_id,
    )
    what = f"waiting for {name}"
    answered = await call.wait_rpc(call.mesh.plugin_tools.CallPluginTool, request, MAX_WAIT, what)
    found: Json = {"status": "completed"}
    if answered.WhichOneof("outcome") == "failure":
        found = {"status": "failed", "error": {"code": "tool_failed", "message": Foreign(answered.failure)}}
    else:
        found["result"] = shapes.payload(answered.result_json)
    return Result(found, _HEADLINES[found["status"]])


def _use_skill(skills: list[tuple[str, str]]) -> Tool:
    lines = [f"- {name}: {json.dumps(about, ensure_ascii=False)}" for name, about in skills]
    named: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": 200}
    return Tool(
        name=USE_SKILL,
        description="\n".join(
            ["Load a method that a plugin brings, in full, when you are about to need it. There are:", *lines]
        ),
        run=_load,
        properties={"name": {**named, "description": "Which one"}},
        required=("name",),
        output={"skill": fields.STRING, "plugin": fields.STRING, "text": fields.STRING},
        reads=True,
    )


async def _load(call: Call) -> Result:
    """Return the text of a skill."""
    request = pb.UseSkillRequest(skill=call.text("name"))
    found = await call.rpc(call.mesh.plugin_tools.UseSkill, request)
    return Result({"skill": found.skill, "plugin": found.plugin, "text": Skill(found.text)})
