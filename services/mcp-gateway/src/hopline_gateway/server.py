"""The MCP server over one toolbox: one for every caller and every protocol revision.

Nothing in it holds state between requests. Refusals are results (`isError`); JSON-RPC errors are for
faults of the protocol alone. No exception leaves a handler as it is: the SDK would show its text.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from time import perf_counter
from typing import Any, Final, TypeVar

import mcp.types as t
from hopline_directory import Follower
from hopline_rpc import telemetry
from hopline_rpc.errors import HoplineError, internal
from mcp.server import CacheHint, Server, ServerRequestContext
from mcp.server.context import CallNext, HandlerResult
from mcp.shared.exceptions import MCPError

from hopline_gateway.arguments import Checker
from hopline_gateway.limits import LIMITS, headers
from hopline_gateway.mesh import Caller, Mesh
from hopline_gateway.results import refusal, success
from hopline_gateway.stats import OTHER, McpStats
from hopline_gateway.toolkit import AGENT, CALLER, Call, Json, Result, Scope, Tool, Toolbox
from hopline_gateway.waits import Report, Waits

log = logging.getLogger("hopline.gateway")

Context = ServerRequestContext[Any, Any]
Answer = TypeVar("Answer")

# Where the HTTP layer leaves what it knows of a request, in the ASGI scope.
TRACEPARENT: Final = "hopline.traceparent"
HAD_SURROGATES: Final = "hopline.had_surrogates"
_CALL: Final = "tools/call"

# Ids by which a trace is found again, where a result holds them, and what they are called in a span.
_TRACED: Final[Mapping[str, str]] = {
    "message_id": "hopline.message.id",
    "thread_id": "hopline.thread.id",
    "turn_id": "hopline.turn.id",
    "session_id": "hopline.session.id",
    "turnId": "hopline.turn.id",
    "sessionId": "hopline.session.id",
}


@dataclass(frozen=True, slots=True)
class Arrived:
    """A JSON-RPC request as it came in, through the SDK or past it."""

    method: str
    params: Mapping[str, Any]
    request_id: int | str | None
    revision: str
    scope: Scope


class ToolServer:
    """Serves a toolbox out of the mesh."""

    def __init__(
        self, toolbox: Toolbox, mesh: Mesh, follower: Follower, waits: Waits, stats: McpStats | None = None
    ) -> None:
        self.toolbox = toolbox
        self._stats = stats or McpStats()
        self._mesh = mesh
        self._follower = follower
        self._waits = waits
        self._checkers = {name: Checker(tool) for name, tool in toolbox.tools.items()}
        self.mcp: Server[Any] = Server(
            "hopline",
            version=version("hopline-gateway"),
            instructions=toolbox.instructions,
            on_list_tools=self._list_tools,
            # No argument of ours travels as an `Mcp-Param-*` header, so there is nothing to compare; but
            # without this every call of a modern client would list the tools first.
            get_tool_input_schema=lambda name: None,
            # A list may be kept as long as any change takes to hold.
            cache_hints={"tools/list": CacheHint(ttl_ms=1000, scope="private")},
        )
        self.mcp.add_request_handler(_CALL, t.CallToolRequestParams, self._call_tool)
        # Ours in place of the SDK's: its spans would go to a provider that this process does not use.
        self.mcp.middleware[:] = [self._span]

    async def _list_tools(self, ctx: Context, params: t.PaginatedRequestParams | None) -> t.ListToolsResult:
        try:
            await self._follower.ensure_fresh()
            return t.ListToolsResult(tools=await self.toolbox.listed(_scope(ctx)))
        except HoplineError as error:
            raise MCPError(t.INTERNAL_ERROR, error.message, {"error": error.to_dict()}) from None
        except Exception as error:
            raise MCPError(t.INTERNAL_ERROR, internal(error, log).message) from None

    async def _call_tool(self, ctx: Context, params: t.CallToolRequestParams) -> Json:
        tool = self.toolbox.find(_scope(ctx), params.name)
        if tool is None:
            known = ", ".join([*self.toolbox.tools, *(each.name for each in self.toolbox.own(_scope(ctx)))])
            raise MCPError(t.INVALID_PARAMS, f"Unknown tool {params.name[:64]!r}; there are: {known}")
        report = ctx.session.report_progress if _wants_progress(ctx) else None
        return await self._answer(tool, params.arguments or {}, _scope(ctx), report)

    async def call(self, tool: Tool, request: Arrived) -> Json:
        """Answer a `tools/call` that is known to be well-formed."""
        arguments = request.params.get("arguments") or {}
        return await self._spanned(request, tool, lambda: self._answer(tool, arguments, request.scope, None))

    async def _answer(
        self, tool: Tool, arguments: dict[str, Any], scope: Scope, report: Report | None
    ) -> Json:
        try:
            return success(await self._run(tool, arguments, scope, report))
        except HoplineError as error:
            # For the answer that carries it, where its headers have not been sent yet.
            scope[LIMITS] = headers(error)
            return refusal(error)
        except Exception as error:
            return refusal(internal(error, log))

    async def _run(
        self, tool: Tool, arguments: dict[str, Any], scope: Scope, report: Report | None
    ) -> Result:
        caller: Caller = scope[CALLER]
        await self._follower.ensure_fresh()
        self.toolbox.check(scope, tool)
        # What a caller alone has is checked by a checker of its own, which costs less than keeping it.
        checker = self._checkers.get(tool.name) or Checker(tool)
        checker.check(arguments, had_surrogates=HAD_SURROGATES in scope)
        names = self.toolbox.names
        return await tool.run(
            Call(caller, self._mesh, arguments, self._waits, report, scope.get(AGENT), names)
        )

    async def _span(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Wrap what the SDK serves in a span."""
        request = Arrived(ctx.method, ctx.params or {}, ctx.request_id, ctx.protocol_version, _scope(ctx))
        name = request.params.get("name") if request.method == _CALL else None
        # Only names of ours: whatever else a client makes up does not belong into a span's name.
        tool = self.toolbox.find(request.scope, name) if isinstance(name, str) else None
        return await self._spanned(request, tool, lambda: call_next(ctx))

    async def _spanned(
        self, request: Arrived, tool: Tool | None, serve: Callable[[], Awaitable[Answer]]
    ) -> Answer:
        """Wrap a request in a span under the context that came with it; `_meta` wins over the header."""
        started = perf_counter()
        span = _begin(request, tool)
        failure: str | None = "cancelled"
        try:
            with span.current():
                result = await serve()
            failure = _outcome(span, result)
        except MCPError as error:
            failure = str(error.error.code)
            raise
        except Exception:
            failure = "internal"
            raise
        else:
            return result
        finally:
            span.end(failure)
            # A tool that is not of ours is named by an agent: no series for each of those.
            name = "" if tool is None else tool.name if tool.name in self._checkers else OTHER
            self._stats.record(request.method, name, perf_counter() - started, failure)


def _scope(ctx: Context) -> Scope:
    """Return the ASGI scope of the request that a call came with: there is no other way in."""
    if ctx.request is None:
        raise RuntimeError("the gateway serves MCP over HTTP only")
    scope: Scope = ctx.request.scope
    return scope


def _wants_progress(ctx: Context) -> bool:
    return ctx.meta is not None and ctx.meta.get("progress_token") is not None


def _begin(request: Arrived, tool: Tool | None) -> telemetry.OpenSpan:
    method = request.method
    attributes: dict[str, str] = {"mcp.method.name": method, "mcp.protocol.version": request.revision}
    name = method
    if (agent := request.scope.get(AGENT)) is not None:
        attributes["gen_ai.agent.id"] = agent.id
    if request.request_id is not None:
        attributes["jsonrpc.request.id"] = str(request.request_id)
    if method == _CALL:
        if tool is not None:
            name = f"{method} {tool.name}"
            attributes["gen_ai.tool.name"] = tool.name
        attributes["gen_ai.operation.name"] = "execute_tool"
    return telemetry.span_from(_traceparent(request), name, "server", attributes, service="gateway")


def _traceparent(request: Arrived) -> str:
    meta = request.params.get("_meta")
    given = meta.get("traceparent") if isinstance(meta, Mapping) else None
    if isinstance(given, str) and telemetry.normal(given):
        return given
    carried: str = request.scope[TRACEPARENT]
    return carried


def _outcome(span: telemetry.OpenSpan, result: object) -> str | None:
    """Note the ids in a tool's result, and return the code of a refusal."""
    if not isinstance(result, dict):
        return None
    facts = result.get("structuredContent")
    if not isinstance(facts, dict):
        return None
    if result.get("isError"):
        return str(facts["error"]["code"])
    span.set({name: facts[key] for key, name in _TRACED.items() if isinstance(facts.get(key), str)})
    return None
