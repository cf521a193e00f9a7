"""A whole mesh from a file: the agents that it names, and how one calls the other by a name of its own."""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hopline_client import HoplineError, Mesh, Turn
from mcp.shared.exceptions import MCPError

from tests.support.mesh_process import ROOT, Agent, MeshProcess, Processes, Space, until

FILE = ROOT / "deploy/examples/mesh.yaml"
# What a harness does: starts the server that the mesh gave it, and calls a tool of it.
COMMAND = """
import asyncio, json, os, sys
from pathlib import Path
from mcp import Client, StdioServerParameters, stdio_client

async def main():
    given = json.loads(Path(os.environ["HOPLINE_MCP_CONFIG"]).read_text())["mcpServers"]["hopline"]
    env = {**os.environ, **given["env"]}
    server = StdioServerParameters(command=given["command"], args=given["args"], env=env)
    async with Client(stdio_client(server)) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        found = (await client.call_tool("weather__ask", {"message": sys.stdin.read()})).structured_content
        follow_up = {"message": "tomorrow?", "sessionId": found["sessionId"]}
        more = await client.call_tool("weather__ask", follow_up)
        print([name for name in names if "__" in name], found["reply"], more.structured_content["reply"])

asyncio.run(main())
"""


@pytest.fixture
def mesh(started: Processes) -> Iterator[MeshProcess]:
    found = MeshProcess(started, options=("--config", str(FILE)))
    found.start()
    yield found
    assert found.complaints() == []


@pytest.fixture
async def space(mesh: MeshProcess) -> AsyncIterator[Space]:
    """The workspace that the file is for."""
    async with Space(mesh, "default") as found:
        yield found


async def agent(space: Space, slug: str) -> Agent:
    """Return an agent of the file with a token, made as a user would."""
    file = space.mesh.processes.folder / f"{slug}.token"
    shown = await space.mesh.cli("agent", "show", slug)
    done = space.mesh.hopline("token", "create", "--agent", slug, "--token-file", str(file))
    assert done.returncode == 0, done.stderr
    return Agent(shown["id"], shown["name"], file.read_text().strip(), file)


async def forecast(turn: Turn) -> str:
    return f"{turn.text.strip()} sunny at depth {turn.depth} on channel {turn.channel}"


async def test_a_command_finds_its_peers_tools_in_the_server_it_was_handed(
    space: Space, tmp_path: Path
) -> None:
    concierge, weather = await agent(space, "concierge"), await agent(space, "weather-agent")
    await space.work(weather, forecast)
    script = tmp_path / "command.py"
    script.write_text(COMMAND)
    daemon = space.mesh.processes.start(
        "attach",
        *(str(Path(sys.executable).with_name("hopline")), "attach", "--agent", "concierge"),
        *("--data", str(space.mesh.data), "--prompt", "raw", "--", sys.executable, str(script)),
    )
    await space.attached(concierge, daemon)
    said = await space.mesh.cli("chat", "concierge", "Oslo?")
    assert said["reply"].split("] ") == [
        "['weather__ask', 'weather__check'",
        "Oslo? sunny at depth 1 on channel mcp tomorrow? sunny at depth 1 on channel mcp",
    ]


async def test_a_peers_server_tools_are_called_through_the_connection(space: Space) -> None:
    """By an MCP client and by code, with neither model in between; the peer's worker brings the tool."""
    concierge, weather = await agent(space, "concierge"), await agent(space, "weather-agent")

    def temperature(city: str) -> dict[str, int]:
        """Tell how warm it is."""
        return {city: 7}

    await space.work(weather, forecast, tools=[temperature])
    async with space.mcp_over_http(concierge) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert "- temperature(city: string)" in (tools["weather__call_tool"].description or "")
        arguments = {"name": "temperature", "arguments": {"city": "Oslo"}}
        found = (await client.call_tool("weather__call_tool", arguments)).structured_content
        assert (found["status"], found["result"]) == ("completed", {"Oslo": 7})
        wrong = {"name": "temperature", "arguments": {"town": "Oslo"}}
        refused = (await client.call_tool("weather__call_tool", wrong)).structured_content
        assert refused["error"]["code"] == "invalid_argument"
    by_code = await space.client(concierge).connection("weather").call("call_tool", arguments)
    assert (by_code["status"], by_code["result"]) == ("completed", {"Oslo": 7})


async def test_code_calls_a_peer_in_a_turn_and_outside_of_one(space: Space) -> None:
    concierge, weather = await agent(space, "concierge"), await agent(space, "weather-agent")
    await space.work(weather, forecast)

    async def pass_on(turn: Turn) -> str:
        answer = await turn.mesh.connection("weather").call("ask", {"message": turn.text})
        return f"they say: {answer['reply']}"

    await space.work(concierge, pass_on)
    said = await space.mesh.cli("chat", "concierge", "Oslo?")
    assert said["reply"] == "they say: Oslo? sunny at depth 1 on channel mcp"
    script: Mesh = space.client(concierge)
    answer = await script.connection("weather").call("ask", {"message": "Bergen?"})
    assert answer["reply"].startswith("Bergen? sunny")
    looked = await script.connection("weather").check(answer["sessionId"], wait_seconds=0)
    assert looked.text == answer["reply"]
    with pytest.raises(HoplineError, match="there is no connection 'wether'; there are: weather"):
        await script.connection("wether").call("ask", {"message": "x"})


async def test_what_the_owner_changes_counts_at_the_next_call(space: Space) -> None:
    concierge, weather = await agent(space, "concierge"), await agent(space, "weather-agent")
    await space.work(weather, forecast)
    script = space.client(concierge)
    async with space.mcp_over_http(concierge) as client:

        async def offered(*expected: str) -> None:
            async def seen() -> bool:
                found = [tool.name for tool in (await client.list_tools()).tools]
                return [name for name in found if "__" in name] == list(expected)

            # A client may keep a list for a second.
            await until(seen, f"the list {expected}")

        await space.mesh.cli("agent", "set", "concierge", "--reach", "concierge")
        with pytest.raises(MCPError, match="Unknown tool"):
            await client.call_tool("weather__ask", {"message": "x"})
        with pytest.raises(HoplineError, match="there is no connection 'weather'"):
            await script.connection("weather").ask("x")
        await space.mesh.cli("agent", "set", "concierge", "--reach", "", "--connect", "sky=weather-agent")
        await offered("sky__ask", "sky__check", "weather__ask", "weather__check")
        assert (await script.connection("sky").ask("Rome?")).text.startswith("Rome? sunny")
        await space.mesh.cli("agent", "set", "concierge", "--disconnect", "weather")
        await offered("sky__ask", "sky__check")


async def test_a_second_start_changes_nothing_and_says_nothing_of_agents(space: Space) -> None:
    before = {each.seq for each in await space.events() if each.action.startswith("agent.")}
    first = space.mesh.up.said
    space.mesh.up.terminate()
    assert await space.mesh.up.ended() == 0
    await space.mesh.restart()
    after = {each.seq for each in await space.events() if each.action.startswith("agent.")}
    assert after == before
    assert "agents made: concierge, weather-agent" in first
    assert not re.search(r"hpl_[a-z]_", first)
    assert "agents made" not in space.mesh.up.said
    assert "agents changed" not in space.mesh.up.said


def test_the_file_in_the_page_starts_as_it_stands(started: Processes) -> None:
    page = (ROOT / "docs/connections.md").read_text()
    (block,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    file = started.folder / "mesh.yaml"
    file.write_text(textwrap.dedent(block))
    mesh = MeshProcess(started, options=("--config", str(file)))
    mesh.start()
    assert "agents made: concierge, weather-agent" in mesh.up.said
    for command in re.findall(r"^hopline agent (?:set|show) .*$", page, re.MULTILINE):
        done = started.run("sh", "-c", f"{command} --data {mesh.data}")
        assert done.returncode == 0, done.stderr
    assert "connections: weather" not in mesh.hopline("agent", "show", "concierge").stdout
