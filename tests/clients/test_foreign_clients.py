"""Clients that others have written, each in a process of its own: they list the tools and call them.

Over `/mcp` and over an agent's own endpoint, in the old and the new revisions of the protocol.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hopline.registry.v1 import agent_pb2

from tests.support import node
from tests.support.mesh_process import Agent, Space, shout

OLD, NEW = "legacy", "2026-07-28"
FASTMCP = str(Path(__file__).with_name("fastmcp_client.py"))


@dataclass(frozen=True)
class Told:
    """What a client got: the definitions of the tools, and the result of a call."""

    tools: list[dict[str, Any]]
    result: dict[str, Any]


@dataclass(frozen=True)
class Door:
    """A place at which tools are served, and what its `ask` is given."""

    path: str
    arguments: Mapping[str, str]


DOORS = (
    Door("/mcp", {"agent": "bob", "text": "tea?"}),
    Door("/bob/v1/mcp", {"message": "tea?"}),
)


def run(words: list[str], token: str) -> subprocess.CompletedProcess[str]:
    """Run a client to its end."""
    env: Mapping[str, str] = {"TOKEN": token, "PATH": "/usr/bin:/bin", "MCP_STORAGE_DIR": "/nowhere"}
    return subprocess.run(
        words, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False
    )


def printed(words: list[str], token: str) -> Any:
    """Run a client that has to succeed, and return the JSON that it prints."""
    done = run(words, token)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def inspector(url: str, revision: str, token: str, name: str, arguments: dict[str, Any]) -> Told:
    """Use the MCP Inspector; it finds nothing wrong with a schema, also where it is strict."""
    era = "modern" if revision == NEW else revision
    base = [*node.inspector(), url, "--transport", "http", "--header", f"Authorization: Bearer {token}"]
    base += ["--protocol-era", era, "--format", "json", "--stored-auth-only"]
    listing = run([*base, "--method", "tools/list", "--strict"], token)
    assert (listing.returncode, listing.stderr) == (0, ""), listing.stdout + listing.stderr
    words = ["--method", "tools/call", "--tool-name", name, "--tool-args-json", json.dumps(arguments)]
    called = printed([*base, *words], token)
    return Told(json.loads(listing.stdout)["result"]["tools"], called["result"])


def typescript(url: str, revision: str, token: str, name: str, arguments: dict[str, Any]) -> Told:
    """Use the official TypeScript client."""
    found = printed([*node.script("client.mjs"), url, revision, name, json.dumps(arguments)], token)
    assert (found["revision"] == NEW) == (revision == NEW)
    return Told(found["tools"], found["result"])


def fastmcp(url: str, revision: str, token: str, name: str, arguments: dict[str, Any]) -> Told:
    """Use the client of fastmcp."""
    words = [sys.executable, FASTMCP, url, revision, name, json.dumps(arguments)]
    found = printed(words, token)
    return Told(found["tools"], found["result"])


Foreign = Callable[[str, str, str, str, dict[str, Any]], Told]
CLIENTS: tuple[Foreign, ...] = (inspector, typescript, fastmcp)


@pytest.fixture
async def ada(space: Space) -> Agent:
    """An agent beside one that answers and has a server tool; it is connected to it."""
    bob = await space.agent("bob")
    connection = agent_pb2.Connection(name="peer", agent=bob.id)
    ada = await space.agent("ada", connections=[connection])

    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    await space.work(bob, shout, tools=[add])
    return ada


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.path)
@pytest.mark.parametrize("revision", [OLD, NEW])
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
async def test_a_foreign_client_lists_the_tools_and_is_answered(
    space: Space, ada: Agent, client: Foreign, revision: str, door: Door
) -> None:
    url = space.mesh.endpoints["gateway"] + door.path
    told = await asyncio.to_thread(client, url, revision, ada.token, "ask", dict(door.arguments))
    names = {tool["name"] for tool in told.tools}
    assert {"ask", "check"} <= names
    assert not told.result.get("isError")
    assert told.result["structuredContent"]["status"] == "completed"
    assert told.result["structuredContent"]["reply"] == "TEA?"
    assert "TEA?" in told.result["content"][0]["text"]


@pytest.mark.parametrize(("path", "tool"), [("/bob/v1/mcp", "call_tool"), ("/mcp", "peer__call_tool")])
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
async def test_a_foreign_client_calls_a_server_tool_of_an_agent(
    space: Space, ada: Agent, client: Foreign, path: str, tool: str
) -> None:
    url = space.mesh.endpoints["gateway"] + path
    arguments = {"name": "add", "arguments": {"a": 2, "b": 3}}
    told = await asyncio.to_thread(client, url, NEW, ada.token, tool, arguments)
    assert tool in {each["name"] for each in told.tools}
    assert told.result["structuredContent"]["result"] == 5


@pytest.mark.parametrize("client", [typescript, fastmcp], ids=lambda client: client.__name__)
async def test_a_refusal_reaches_a_foreign_client_as_a_result_with_its_code(
    space: Space, ada: Agent, client: Foreign
) -> None:
    url = space.mesh.endpoints["gateway"] + "/mcp"
    arguments = {"agent": "nobody", "text": "tea?"}
    told = await asyncio.to_thread(client, url, NEW, ada.token, "ask", arguments)
    assert told.result["isError"]
    assert told.result["structuredContent"]["error"]["code"] == "not_found"
