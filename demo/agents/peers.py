"""How the demo's scripted agents talk: the official MCP client on the server that Hopline hands them.

A real agent (Claude Code, OpenCode, …) does the same with the file that `HOPLINE_MCP_CONFIG` names.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters, stdio_client


def server() -> StdioServerParameters:
    """Return how to start the MCP server that the mesh gave this turn."""
    config = json.loads(Path(os.environ["HOPLINE_MCP_CONFIG"]).read_text())
    given = config["mcpServers"]["hopline"]
    env = {**os.environ, **given.get("env", {})}
    return StdioServerParameters(command=given["command"], args=given.get("args", []), env=env)


async def call(tool: str, **arguments: Any) -> tuple[bool, dict[str, Any]]:
    """Call one tool of the mesh; return whether it was refused, and the structured result."""
    parameters = server()
    async with Client(stdio_client(parameters)) as client:
        result = await client.call_tool(tool, arguments)
        return bool(result.is_error), dict(result.structured_content or {})


async def ask(agent: str, text: str) -> tuple[bool, dict[str, Any]]:
    """Ask another agent, and check for its answer for as long as it is at work."""
    refused, result = await call("ask", agent=agent, text=text)
    while not refused and result["status"] in ("queued", "running", "waiting_for_owner"):
        refused, result = await call("check", turn_id=result["turn_id"])
    return refused, result


def message() -> dict[str, Any]:
    """Return the message this turn is about, as the mesh delivered it."""
    found: dict[str, Any] = json.loads(Path(os.environ["HOPLINE_MESSAGE_FILE"]).read_text())
    return found


def run(answer: Callable[[dict[str, Any]], Awaitable[str]]) -> None:
    """Work on one turn: an ask is answered on standard output, a plain message by `reply`."""

    async def turn() -> None:
        received = message()
        text = await answer(received)
        if received.get("reply_expected"):
            sys.stdout.write(text)
        elif not received.get("in_reply_to"):
            await call("reply", message_id=received["id"], text=text)

    asyncio.run(turn())
