"""How a request gets to an MCP server and back.

The body within its limits, then one of two session managers over the same server. Answers are plain JSON,
except where a tool waits and the client asked for progress: those come as an event stream, which costs twice
as much.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.types import ErrorData, JSONRPCError
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from hopline_gateway.body import BadBody, Body, check_is_json, read_body, replay
from hopline_gateway.direct import DirectCalls, recognised
from hopline_gateway.limits import LIMITS
from hopline_gateway.server import HAD_SURROGATES, ToolServer
from hopline_gateway.toolkit import Tool

Answer = TypeVar("Answer")


class McpEndpoint:
    """One MCP server over streamable HTTP."""

    def __init__(self, tools: ToolServer, body_seconds: float) -> None:
        self._body_seconds = body_seconds
        self._direct = DirectCalls(tools)
        self._toolbox = tools.toolbox
        server = tools.mcp
        # Host and Origin are checked in front of all paths, the body's size before it is parsed here.
        self._json = StreamableHTTPSessionManager(server, json_response=True, stateless=True)
        self._events = StreamableHTTPSessionManager(server, json_response=False, stateless=True)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Run both session managers."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._json.run())
            await stack.enter_async_context(self._events.run())
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        try:
            _check_kinds(Headers(scope=scope))
            body = await read_body(scope, receive, self._body_seconds)
        except BadBody as bad:
            await _protocol_error(bad)(scope, receive, send)
            return
        except ClientDisconnect:
            return
        if body.had_surrogates:
            scope[HAD_SURROGATES] = True
            scope["headers"] = _with_length(scope["headers"], len(body.raw))
        tool = self._toolbox.find(scope, body.tool) if body.tool else None
        waits = tool is not None and tool.waits
        if waits and body.wants_progress and _takes_events(scope):
            await self._events.handle_request(scope, replay(body.raw, receive), send)
        elif waits:
            await until_disconnect(self._serve(body, tool, scope, receive, send), receive)
        else:
            await self._serve(body, tool, scope, receive, send)

    async def _serve(self, body: Body, tool: Tool | None, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with JSON."""
        request = None if tool is None else recognised(scope, body)
        if tool is not None and request is not None:
            response = await self._direct.serve(tool, request)
            await response(scope, receive, send)
        else:
            await self._json.handle_request(scope, replay(body.raw, receive), _with_limits(scope, send))


def _with_limits(scope: Scope, send: Send) -> Send:
    """Return a `send` that adds the headers of the refusal that the answer carries, if it carries one."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start" and LIMITS in scope:
            added = [(name.lower().encode(), value.encode()) for name, value in scope[LIMITS].items()]
            message = {**message, "headers": [*message["headers"], *added]}
        await send(message)

    return sending


def _check_kinds(headers: Headers) -> None:
    """Refuse a body that is said to be no JSON, and a client that takes none."""
    check_is_json(headers)
    accepted = {each.partition(";")[0].strip() for each in headers.get("accept", "").lower().split(",")}
    if not accepted & {"application/json", "application/*", "*/*"}:
        raise BadBody(406, "Accept must include application/json")


def _protocol_error(bad: BadBody) -> Response:
    error = JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=bad.code, message=bad.message))
    return Response(
        error.model_dump_json(by_alias=True, exclude_unset=True), bad.status, media_type="application/json"
    )


def _with_length(headers: list[tuple[bytes, bytes]], length: int) -> list[tuple[bytes, bytes]]:
    kept = [(name, value) for name, value in headers if name != b"content-length"]
    return [*kept, (b"content-length", str(length).encode())]


def _takes_events(scope: Scope) -> bool:
    accept = Headers(scope=scope).get("accept", "")
    return "text/event-stream" in accept or "*/*" in accept or "text/*" in accept


async def until_disconnect(serving: Awaitable[Answer], receive: Receive) -> Answer | None:
    """Serve until that is done or the client is gone; then the wait alone ends, and None is left.

    The request's body has been read.
    """
    work = asyncio.ensure_future(serving)
    gone = asyncio.ensure_future(_disconnected(receive))
    both: set[asyncio.Future[Any]] = {work, gone}
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        return work.result() if work.done() else None
    finally:
        for task in both:
            task.cancel()
        await asyncio.gather(*both, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
