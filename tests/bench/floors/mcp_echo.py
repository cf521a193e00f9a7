"""The floor under `mcp_send`: an echo tool on the bare SDK, stateless, JSON, behind uvicorn."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp.types as t
import uvicorn
from mcp.server import Server, ServerRequestContext
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.routing import Mount

from tests.bench.load.serve import idle, run, serve

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
Context = ServerRequestContext[Any, Any]


async def list_tools(context: Context, params: t.PaginatedRequestParams | None) -> t.ListToolsResult:
    return t.ListToolsResult(tools=[t.Tool(name="echo", input_schema=SCHEMA)])


async def call_tool(context: Context, params: t.CallToolRequestParams) -> t.CallToolResult:
    text = (params.arguments or {})["text"]
    return t.CallToolResult(
        content=[t.TextContent(type="text", text=text)], structured_content={"text": text}
    )


async def main() -> None:
    server: Server[Any] = Server(
        "echo", on_list_tools=list_tools, on_call_tool=call_tool, get_tool_input_schema=lambda name: SCHEMA
    )
    manager = StreamableHTTPSessionManager(server, json_response=True, stateless=True)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    app = Starlette(routes=[Mount("/mcp", manager.handle_request)], lifespan=lifespan)
    listener = socket.create_server(("127.0.0.1", 0))
    web = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, http="httptools"))
    serving = asyncio.create_task(web.serve([listener]))
    await serve(idle, {"url": f"http://127.0.0.1:{listener.getsockname()[1]}/mcp/"})
    web.should_exit = True
    await serving


if __name__ == "__main__":
    run(main)
