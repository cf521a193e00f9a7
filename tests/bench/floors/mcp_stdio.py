"""The floor under `mcp_stdio_start`: a server on the bare SDK that has one tool and nothing else."""

from __future__ import annotations

import asyncio
from typing import Any

import mcp.types as t
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server


async def list_tools(
    context: ServerRequestContext[Any, Any], params: t.PaginatedRequestParams | None
) -> t.ListToolsResult:
    return t.ListToolsResult(tools=[])


async def main() -> None:
    server: Server[Any] = Server("empty", on_list_tools=list_tools)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main())
