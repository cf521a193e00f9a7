"""`call_tool` at agents' own endpoints: a server tool, run in a worker without a turn of its model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import mcp.types as t
from hopline.relay.v1 import tool_pb2
from hopline_rpc.errors import HoplineError, invalid

from hopline_gateway import mesh, shapes
from hopline_gateway.mesh import Caller, Mesh
from hopline_gateway.offers import definition
from hopline_gateway.prompting import of_endpoint, told
from hopline_gateway.toolkit import MAX_PAGE, MAX_WAIT, Call, Result, Tool, with_retry_hint
from hopline_gateway.tools import cycles, fields

MAX_ARGUMENTS: Final = 65_536
# What every tool costs a client's model in its context, at most.
_MAX_LISTED: Final = 6_000
_PLAIN: Final = re.compile(r"[\w./:-]+", re.ASCII)
_KINDS: Final = ("string", "integer", "number", "boolean", "array", "object", "null")
# More than the workers of an agent can offer; large schemas make pages short.
_MAX_PAGES: Final = 20
# Who may start nothing has no use for tools, and is told so where it calls one.
_NONE_FOR: Final = frozenset({"agent_paused", "receive_only", "not_found"})
_HEADLINES: Final = {
    "completed": "Done.",
    "failed": "The tool did not give a result; the error says why. Your own call worked.",
    "canceled": "The call was canceled; it may have had effects.",
}


async def call_tool(call: Call) -> Result:
    """Run a tool of the agent, and wait for its result."""
    agent, request_id = of_endpoint(call), call.request_id()
    request = tool_pb2.CallToolRequest(
        agent=agent.id,
        name=call.text("name"),
        arguments_json=written(call.arguments.get("arguments", {})),
        timeout_seconds=MAX_WAIT,
        request_id=request_id,
        caller_session_id=call.caller.session_id,
    )
    what = f"waiting for {agent.name} to run {call.text('name')}"
    try:
        answered = await call.wait_rpc(call.mesh.tools.CallTool, request, MAX_WAIT, what)
    except HoplineError as error:
        if error.reason == "deadline_exceeded" and "turn_id" in error.details:
            raise  # it ran, and was stopped: repeating it would tell the same
        raise with_retry_hint(error, request_id) from error
    found = told(answered.turn)
    found.pop("sessionId", None)  # that of its tools, where nobody can follow up
    if answered.result_json:
        found["result"] = shapes.payload(answered.result_json)
    return cycles.warned(Result(found, _HEADLINES[found["status"]]), answered.cycle)


def written(arguments: Any) -> str:
    """Return arguments of a tool as JSON text."""
    try:
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        raise invalid("arguments", "holds a number too large for JSON") from None
    size = len(text.encode())
    if size > MAX_ARGUMENTS:
        raise invalid("arguments", f"{size} bytes of JSON; the limit is {MAX_ARGUMENTS} (64 KiB)")
    return text


TOOL: Final = Tool(
    name="call_tool",
    description="Run one of this agent's own tools, without its model.",
    run=call_tool,
    properties={
        "name": {"type": "string", "minLength": 1, "maxLength": 64, "description": "Which of its tools"},
        "arguments": {"type": "object", "description": "The tool's own arguments, up to 64 KiB of JSON"},
        "request_id": fields.REQUEST_ID,
    },
    required=("name",),
    output={
        "status": fields.STRING,
        "turnId": fields.STRING,
        "result": fields.ANYTHING,
        "error": fields.OBJECT,
    },
    waits=True,
)


async def tools_of(of: Mesh, caller: Caller, agent_id: str) -> Sequence[tool_pb2.ServerTool]:
    """Return what an agent offers; nothing to a caller that may start nothing, who is told so at a call."""
    request = tool_pb2.ListServerToolsRequest(agent=agent_id, page_size=MAX_PAGE)
    found: list[tool_pb2.ServerTool] = []
    try:
        for _ in range(_MAX_PAGES):
            page = await mesh.call(of.tools.ListServerTools, request, caller)
            found.extend(page.tools)
            request.page_token = page.next_page_token
            if not page.next_page_token:
                break
    except HoplineError as error:
        if error.reason in _NONE_FOR:
            return ()
        raise
    return found


def defined(tools: Sequence[tool_pb2.ServerTool]) -> t.Tool:
    """Return `call_tool` as clients are shown it, with what there is to call."""
    return definition(offering(tools))


def offering(
    tools: Sequence[tool_pb2.ServerTool], does: str = TOOL.description, room: int = _MAX_LISTED
) -> Tool:
    """Return `call_tool` with what there is to call, described in so many characters at most."""
    named = {**TOOL.properties["name"], "enum": [tool.name for tool in tools]}
    text = "\n".join([does, *_described(tools, room)])
    return replace(TOOL, description=text, properties={**TOOL.properties, "name": named})


def _described(tools: Sequence[tool_pb2.ServerTool], room: int) -> Iterator[str]:
    """Yield a line for each tool, as far as there is room: its arguments, and its owner's words for it."""
    for index, tool in enumerate(tools):
        words = json.dumps(tool.description, ensure_ascii=False)
        line = f"- {_shown(tool.name)}({', '.join(_arguments(tool.input_schema_json))}): {words}"
        room -= len(line)
        if room < 0:
            yield f"- and {len(tools) - index} more, which name lists"
            return
        yield line + ("" if tool.available else " (no worker that runs it is attached just now)")


def _arguments(schema_json: str) -> Iterator[str]:
    """Yield the arguments: what is required in its order, then the others by name; a schema has no order."""
    schema = json.loads(schema_json) if schema_json else {}
    properties, required = schema.get("properties"), schema.get("required")
    known = properties if isinstance(properties, dict) else {}
    first = (
        [each for each in required if isinstance(each, str) and each in known]
        if isinstance(required, list)
        else []
    )
    for name in [*first, *sorted(known.keys() - set(first))]:
        field = known[name]
        kind = field.get("type") if isinstance(field, dict) else None
        shown = f"{_shown(name)}{'' if name in first else '?'}"
        yield f"{shown}: {kind}" if kind in _KINDS else shown


def _shown(name: str) -> str:
    """Return a name that a tool's author chose: none may look like a line of ours."""
    return name if _PLAIN.fullmatch(name) else json.dumps(name)
