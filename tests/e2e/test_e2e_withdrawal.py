"""What is taken away is gone when the command that takes it away returns."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from hopline.registry.v1.plugin_pb2 import ListPluginAgentsRequest
from hopline.relay.v1.message_pb2 import ListMessagesRequest
from hopline.relay.v1.session_pb2 import GetSessionRequest, ListSessionsRequest
from hopline_client import HoplineError
from hopline_client import Mesh as Client

from tests.support.mesh_process import (
    HOPLINE,
    Agent,
    Held,
    MeshProcess,
    Space,
    call,
    ended,
    refused,
    shout,
    until,
)


async def post(mesh: MeshProcess, token: str) -> int:
    """List the tools over HTTP; returns the status."""
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{mesh.endpoints['gateway']}/mcp", json=body, headers=headers) as answer,
    ):
        return answer.status


async def test_a_revoked_token_opens_nothing_any_more(space: Space, mesh: MeshProcess) -> None:
    ada, bob = await space.agents("ada", "bob")
    handler = Held()
    await space.work(bob, handler)
    words = ("--workspace", space.name)
    other = await mesh.cli("token", "create", "--agent", "ada", *words)
    file = mesh.processes.folder / "other.token"
    file.touch(mode=0o600)
    file.write_text(other["token"])
    options = ("--agent", "ada", "--token-file", str(file), "--data", str(mesh.data))
    daemon = mesh.processes.start("attach", HOPLINE, "attach", *options, "--", "cat")
    await space.attached(ada, daemon)
    async with Client(mesh.data, token=other["token"]) as client, Client(mesh.data, token=ada.token) as kept:
        waiting = asyncio.create_task(client.ask("bob", "take your time"))
        await handler.begun()
        assert await post(mesh, other["token"]) == 200
        await mesh.cli("token", "revoke", other["id"], *words)
        assert await post(mesh, other["token"]) == 401
        with pytest.raises(HoplineError) as refusal:
            await client.whoami()
        assert refusal.value.reason == "unauthenticated"
        with pytest.raises(HoplineError) as refusal:
            await waiting
        assert refusal.value.reason == "unauthenticated"
        assert await daemon.ended() == 1
        last = daemon.said.strip().splitlines()[-1]
        assert "a valid credential is needed" in last
        assert "hopline token create" in last
        assert (await kept.whoami()).name == "ada"
    assert await post(mesh, ada.token) == 200


async def test_pausing_an_agent_ends_its_command_and_closes_every_door_to_it(
    space: Space, mesh: MeshProcess
) -> None:
    ada, bob = await space.agents("ada", "bob")
    marker = mesh.processes.folder / "pid"
    script = f"echo $$ > {marker}.new; mv {marker}.new {marker}; exec sleep 1000"
    daemon = await space.attach(bob, "sh", "-c", script)
    words = ("bob", "--workspace", space.name)
    asker, paused = space.client(ada), space.client(bob)
    asked = await asker.ask("bob", "take your time", wait_seconds=0)
    await until(marker.exists, "the command")
    await mesh.cli("agent", "pause", *words)
    found = await asker.check(turn_id=asked.turn_id, wait_seconds=0)
    assert (found.status, found.code) == ("canceled", "agent_paused")
    async with space.mcp_over_http(ada) as over_mcp, space.mcp_over_http(bob) as paused_over_mcp:
        assert (await refused(over_mcp, "ask", agent="bob", text="well?"))[0]["code"] == "not_found"
        assert (await refused(paused_over_mcp, "ask", agent="ada", text="well?"))[0]["code"] == "agent_paused"
        assert (await call(paused_over_mcp, "whoami"))["agent"]["state"] == "paused"
    for attempt, reason in ((asker.send("bob", "x"), "not_found"), (paused.send("ada", "x"), "agent_paused")):
        with pytest.raises(HoplineError) as refusal:
            await attempt
        assert refusal.value.reason == reason
    await until(lambda: ended(int(marker.read_text())), "the end of the command")
    assert daemon.is_running
    marker.unlink()
    await mesh.cli("agent", "resume", *words)
    asked = await asker.ask("bob", "again", wait_seconds=0)
    await until(marker.exists, "the command after the agent was resumed")
    assert await asker.cancel(turn_id=asked.turn_id) == "canceled"


async def test_without_the_role_there_is_no_reach_from_the_moment_it_is_revoked(
    space: Space, mesh: MeshProcess
) -> None:
    ada = await space.agent("ada")
    await space.work(ada, shout)
    await space.person("carol")
    words = ("carol", "--agent", "ada", "--workspace", space.name)
    eve = await space.agent("eve", owner_id="carol")
    await mesh.cli("role", "grant", words[0], "operator", *words[1:])
    client = space.client(eve)
    assert (await client.ask("ada", "tea?")).text == "TEA?"
    async with space.mcp_over_http(eve) as over_mcp:
        assert [each["name"] for each in (await call(over_mcp, "list_agents"))["agents"]] == ["ada"]
        await mesh.cli("role", "revoke", *words)
        assert (await refused(over_mcp, "ask", agent="ada", text="tea?"))[0]["code"] == "not_found"
        assert (await call(over_mcp, "list_agents"))["agents"] == []
    with pytest.raises(HoplineError) as refusal:
        await client.ask("ada", "tea?")
    assert refusal.value.reason == "not_found"


async def test_with_a_plugin_go_its_token_its_agents_their_workers_and_their_sessions(
    space: Space, mesh: MeshProcess
) -> None:
    (ada,) = await space.agents("ada")
    manifest = mesh.processes.folder / "plugin.yaml"
    manifest.write_text(
        "{key: omo, name: Oh My, version: '1', permissions: [agents.read], agents: [{key: seer, name: Seer}]}"
    )
    words = ("--workspace", space.name)
    made = await mesh.cli("plugin", "install", str(manifest), "--yes", *words)
    plugin = space.stubs(made["token"])
    (own,) = (await plugin.plugins.ListPluginAgents(ListPluginAgentsRequest())).agents
    minted = await mesh.cli("token", "create", "--agent", own.slug, *words)
    seer = Agent(own.id, own.name, minted["token"], mesh.processes.folder / "none")
    marker = mesh.processes.folder / "pid of seer"
    script = f"echo $$ > '{marker}.new'; mv '{marker}.new' '{marker}'; exec sleep 1000"
    daemon = await space.attach(seer, "sh", "-c", script)
    asker = space.client(ada)
    waiting = asyncio.create_task(asker.ask(own.slug, "take your time"))
    await until(marker.exists, "the command")
    (shown,) = (await space.admin.sessions.ListSessions(ListSessionsRequest(agent=own.slug))).sessions
    ended_with = await mesh.cli("plugin", "uninstall", "omo", *words)
    assert ended_with["removed_agents"] == 1
    with pytest.raises(HoplineError) as refusal:
        await plugin.plugins.ListPluginAgents(ListPluginAgentsRequest())
    assert refusal.value.reason == "unauthenticated"
    assert await post(mesh, seer.token) == 401
    found = await waiting
    assert (found.status, found.code) == ("canceled", "canceled")
    assert await daemon.ended() == 1
    await until(lambda: ended(int(marker.read_text())), "the end of the command")

    async def is_gone() -> bool:
        try:
            await space.admin.sessions.GetSession(GetSessionRequest(session_id=shown.id))
        except HoplineError as error:
            return error.reason == "not_found"
        return False

    await until(is_gone, "the end of its sessions")
    thread = await space.admin.messages.ListMessages(ListMessagesRequest(thread_id=found.thread_id))
    assert thread.messages[0].body == "take your time"
