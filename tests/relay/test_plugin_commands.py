"""Commands of plugins in people's chats: where they go, who may use them, and what is no command."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hopline.registry.v1 import plugin_pb2
from hopline.registry.v1.plugin_pb2_grpc import PluginServiceStub
from hopline.relay.v1 import session_pb2
from hopline_directory import OPERATOR
from hopline_rpc.errors import HoplineError

from tests.support.plugins import Plugin, install, uninstall
from tests.support.relay_mesh import Caller, RelayMesh

RESEARCH = plugin_pb2.PluginCommand(name="research", description="Look it up.", agent_key="librarian")
LIBRARIAN = plugin_pb2.PluginAgent(key="librarian", name="Librarian")


async def library(mesh: RelayMesh, key: str = "shop", **fields: Any) -> Plugin:
    """Install a plugin with a librarian and a command for it."""
    given = {"agents": [LIBRARIAN], "commands": [RESEARCH], "permissions": ["agents.read", "agents.write"]}
    return await install(mesh, key, **{**given, **fields})


def librarian(mesh: RelayMesh, plugin: Plugin) -> Caller:
    (agent,) = [
        each for each in mesh.relay.directory.agents(mesh.workspace_id) if each.plugin_id == plugin.id
    ]
    return Caller(mesh, agent.id, "")


async def prompt(
    mesh: RelayMesh, agent: Caller | str, text: str, who: Caller | None = None, **more: Any
) -> Any:
    name = agent if isinstance(agent, str) else agent.id
    request = session_pb2.PromptRequest(agent=name, text=text, wait_seconds=0, **more)
    return (await (who or mesh.admin).sessions.Prompt(request)).turn


async def test_a_command_goes_to_the_plugins_agent_with_the_rest_of_the_text(mesh: RelayMesh) -> None:
    plugin, lead = await library(mesh), await mesh.agent("lead")
    turn = await prompt(mesh, lead, "/research  quantum\ncomputing ")
    there = librarian(mesh, plugin)
    assert turn.agent.id == there.id
    worker = await mesh.worker(there)
    claimed = await worker.next()
    assert (claimed.messages[0].body, claimed.messages[0].subject) == ("quantum\ncomputing", "/research")
    assert (claimed.depth, claimed.channel, claimed.sender_kind) == (0, "human", "user")
    await worker.end(claimed, "it is hard")
    assert (await mesh.admin.check(turn.turn_id)).reply == "it is hard"


async def test_a_subagent_is_reached_by_its_command_and_further_on_in_that_session_and_not_else(
    mesh: RelayMesh,
) -> None:
    plugin, lead = await library(mesh), await mesh.agent("lead")
    there = librarian(mesh, plugin)
    stub = PluginServiceStub(plugin._channel("registry"))
    request = plugin_pb2.UpdatePluginAgentRequest(agent_ref=there.id)
    request.agent.is_subagent = True
    request.update_mask.paths.append("is_subagent")
    await stub.UpdatePluginAgent(request)
    turn = await prompt(mesh, lead, "/research quantum")
    assert turn.agent.id == there.id
    await prompt(mesh, there, "and further", session_id=turn.session_id)
    with pytest.raises(HoplineError) as caught:
        await prompt(mesh, there, "hello")
    assert caught.value.reason == "failed_precondition"


async def test_a_follow_up_by_the_command_goes_on_in_its_session_and_from_another_chat_afresh(
    mesh: RelayMesh,
) -> None:
    await library(mesh)
    lead = await mesh.agent("lead")
    chat = await prompt(mesh, lead, "hello")
    first = await prompt(mesh, lead, "/research quantum", session_id=chat.session_id)
    assert first.session_id != chat.session_id
    again = await prompt(mesh, lead, "/research more", session_id=first.session_id)
    assert again.session_id == first.session_id


@pytest.mark.parametrize(
    "text",
    [
        "/reserch quantum",
        "/etc/hosts is odd",
        "/research/more please",
        "//research quantum",
        " /research quantum",
        "please /research quantum",
        "/Research quantum",
        "/other__research quantum",
        "/",
    ],
)
async def test_what_is_no_command_is_a_plain_text(mesh: RelayMesh, text: str) -> None:
    await library(mesh)
    lead = await mesh.agent("lead")
    turn = await prompt(mesh, lead, text)
    assert turn.agent.id == lead.id
    claimed = await (await mesh.worker(lead)).next()
    assert claimed.messages[0].body == text


async def test_without_plugins_a_slash_is_a_slash(mesh: RelayMesh) -> None:
    lead = await mesh.agent("lead")
    assert (await prompt(mesh, lead, "/research quantum")).agent.id == lead.id


async def test_a_command_without_a_text_says_so(mesh: RelayMesh) -> None:
    await library(mesh)
    lead = await mesh.agent("lead")
    for text in ("/research", "/research  \n"):
        with pytest.raises(HoplineError) as caught:
            await prompt(mesh, lead, text)
        assert caught.value.reason == "invalid_argument"
        assert "wants a text" in caught.value.message


async def test_of_two_plugins_with_a_command_of_one_name_the_full_name_says_which(mesh: RelayMesh) -> None:
    await library(mesh)
    other = await library(mesh, "market")
    lead = await mesh.agent("lead")
    with pytest.raises(HoplineError) as caught:
        await prompt(mesh, lead, "/research quantum")
    assert caught.value.reason == "ambiguous"
    assert "/market__research" in caught.value.message
    turn = await prompt(mesh, lead, "/market__research quantum")
    assert turn.agent.id == librarian(mesh, other).id


async def test_it_is_for_who_operates_both_the_chats_agent_and_the_commands(mesh: RelayMesh) -> None:
    plugin, lead = await library(mesh), await mesh.agent("lead")
    bob = await mesh.person("bob")
    with pytest.raises(HoplineError) as caught:
        await prompt(mesh, lead, "/research quantum", bob)
    assert caught.value.reason == "not_found"
    await mesh.grant("bob", OPERATOR, "lead")
    turn = await prompt(mesh, lead, "/research quantum", bob)
    assert turn.agent.id == lead.id, "for whoever may not use it, it is a plain text"
    await mesh.grant("bob", OPERATOR, librarian(mesh, plugin).id)
    assert (await prompt(mesh, lead, "/research quantum", bob)).agent.id == librarian(mesh, plugin).id


async def test_an_agents_own_endpoint_takes_no_commands(mesh: RelayMesh) -> None:
    await library(mesh)
    lead = await mesh.agent("lead")
    turn = await prompt(mesh, lead, "/research quantum", own_endpoint=True)
    assert turn.agent.id == lead.id


async def test_a_command_of_a_paused_agent_or_an_uninstalled_plugin_is_a_plain_text(mesh: RelayMesh) -> None:
    plugin, lead = await library(mesh), await mesh.agent("lead")
    there = librarian(mesh, plugin)
    await mesh.pause(there)
    assert (await prompt(mesh, lead, "/research quantum")).agent.id == lead.id
    await mesh.resume(there)
    assert (await prompt(mesh, lead, "/research quantum")).agent.id == there.id
    await uninstall(mesh)
    assert (await prompt(mesh, lead, "/research quantum")).agent.id == lead.id


async def test_the_same_request_is_the_first_one_again(mesh: RelayMesh) -> None:
    await library(mesh)
    lead = await mesh.agent("lead")
    request_id = str(uuid.uuid4())
    one = await prompt(mesh, lead, "/research quantum", request_id=request_id)
    other = await prompt(mesh, lead, "/research quantum", request_id=request_id)
    assert one.turn_id == other.turn_id
    await uninstall(mesh)
    again = await prompt(mesh, lead, "/research quantum", request_id=request_id)
    assert again.turn_id == one.turn_id
    with pytest.raises(HoplineError) as caught:
        await prompt(mesh, lead, "/research physics", request_id=request_id)
    assert caught.value.reason == "request_id_conflict"
