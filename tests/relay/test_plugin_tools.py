"""Tools and skills that plugins contribute: for whom, what is checked, what the plugin gets, how it ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from hopline.hooks.v1 import extension_pb2 as hooks_pb
from hopline.registry.v1 import agent_pb2, plugin_pb2
from hopline.relay.v1 import plugin_tool_pb2 as pb
from hopline.relay.v1 import session_pb2
from hopline_relay.plugins import calling
from hopline_rpc.errors import HoplineError

from tests.support.extension_server import ExtensionServer, RefusalError, extension_server
from tests.support.plugins import Plugin, install, tool_service, uninstall
from tests.support.relay_mesh import Caller, RelayMesh

SCHEMA = {
    "type": "object",
    "properties": {"item": {"type": "string", "maxLength": 10}},
    "required": ["item"],
    "additionalProperties": False,
}
STOCK = plugin_pb2.PluginTool(
    name="stock", description="How many there are.", input_schema_json=json.dumps(SCHEMA)
)


@pytest.fixture
async def server() -> AsyncIterator[ExtensionServer]:
    async with extension_server() as found:
        yield found


@pytest.fixture
async def plugin(mesh: RelayMesh, server: ExtensionServer) -> Plugin:
    return await install(mesh, server=server, tools=[STOCK])


async def call(caller: Caller, tool: str = "shop__stock", arguments: Any = None, **more: Any) -> Any:
    given = json.dumps({"item": "pear"} if arguments is None else arguments)
    request = pb.CallPluginToolRequest(tool=tool, arguments_json=given, **more)
    return await tool_service(caller).CallPluginTool(request)


async def refused(caller: Caller, reason: str, **more: Any) -> HoplineError:
    with pytest.raises(HoplineError) as caught:
        await call(caller, **more)
    assert caught.value.reason == reason, caught.value
    return caught.value


async def test_a_tool_runs_for_any_standard_agent_with_its_arguments_as_they_are(
    mesh: RelayMesh, server: ExtensionServer, plugin: Plugin
) -> None:
    async def answer(request: hooks_pb.CallToolRequest) -> hooks_pb.CallToolResponse:
        return hooks_pb.CallToolResponse(result_json='{"count": 3}')

    server.on_call = answer
    ada = await mesh.agent("ada")
    found = await call(ada)
    assert (found.WhichOneof("outcome"), found.result_json, found.plugin) == (
        "result_json",
        '{"count": 3}',
        "Shop",
    )
    (seen,) = server.calls
    assert (seen.name, json.loads(seen.arguments_json)) == ("stock", {"item": "pear"})
    assert (seen.plugin_id, seen.workspace_id) == (plugin.id, mesh.workspace_id)
    (event,) = await mesh.events("plugin.tool_called")
    assert dict(event.details)["tool"] == "stock"


async def test_it_is_no_delegation_no_turn_nothing_charged(
    mesh: RelayMesh, server: ExtensionServer, plugin: Plugin
) -> None:
    ada = await mesh.agent("ada")
    before = await mesh.usage(ada)
    await call(ada)
    assert await mesh.usage(ada) == before
    assert not (await mesh.events("message.sent"))


async def test_a_call_in_a_turn_hands_over_its_session_where_it_stands(
    mesh: RelayMesh, server: ExtensionServer, plugin: Plugin
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await ada.send(bob)
    worker = await mesh.worker(bob)
    turn = await worker.next()
    await call(bob, caller_session_id=turn.session_id)
    (seen,) = server.calls
    assert (seen.session.session_id, seen.session.agent_id, seen.turn_id) == (
        turn.session_id,
        bob.id,
        turn.turn_id,
    )
    assert (seen.session.depth, seen.session.hook_generation, seen.session.channel) == (1, 0, "relay")
    principal = await mesh.relay.authenticator.principal(plugin.token)
    mesh.relay.grants.require(principal, turn.session_id)
    standing = mesh.relay.grants.standing(principal)
    assert (standing.depth, standing.roots) == (1, (turn.root_id,))


async def test_a_call_outside_any_turn_counts_at_the_deepest_that_ended_within_the_window(
    mesh: RelayMesh, server: ExtensionServer, plugin: Plugin
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await ada.send(bob)
    taken = await bob.take()
    await bob.done(taken.messages[0].id)
    await call(bob)
    assert server.calls[0].session.depth == 1


async def test_another_agents_session_is_not_found(
    mesh: RelayMesh, server: ExtensionServer, plugin: Plugin
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    prompted = await mesh.admin.sessions.Prompt(
        session_pb2.PromptRequest(agent=bob.id, text="hello", wait_seconds=0)
    )
    await refused(ada, "not_found", caller_session_id=prompted.turn.session_id)
    await refused(ada, "not_found", caller_session_id="ses_nothing")
    assert not server.calls


async def test_a_plugin_without_session_permissions_is_handed_none(
    mesh: RelayMesh, server: ExtensionServer
) -> None:
    await install(mesh, server=server, tools=[STOCK], permissions=[])
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await ada.send(bob)
    turn = await (await mesh.worker(bob)).next()
    await call(bob, caller_session_id=turn.session_id)
    assert not server.calls[0].HasField("session")
    assert server.calls[0].turn_id == ""


@pytest.mark.parametrize(
    ("arguments", "field"),
    [({}, "item"), ({"item": 3}, "item"), ({"item": "x" * 11}, "item"), ({"item": "a", "b": 1}, "b")],
)
async def test_arguments_that_do_not_fit_are_refused_here_by_name(
    mesh: RelayMesh, server: ExtensionServer, plugin: Plugin, arguments: Any, field: str
) -> None:
    error = await refused(await mesh.agent("ada"), "invalid_argument", arguments=arguments)
    assert field in error.message
    assert not server.calls


@pytest.mark.parametrize("text", ["[1]", "nonsense", "NaN", '{"a": 1e999}'])
async def test_what_is_no_object_of_json_is_refused(
    mesh: RelayMesh, server: ExtensionServer, plugin: Plugin, text: str
) -> None:
    request = pb.CallPluginToolRequest(tool="shop__stock", arguments_json=text)
    with pytest.raises(HoplineError) as caught:
        await tool_service(await mesh.agent("ada")).CallPluginTool(request)
    assert caught.value.reason == "invalid_argument"
    assert not server.calls


async def test_a_refusal_by_the_plugin_is_one_of_the_call_and_a_failure_is_data(
    mesh: RelayMesh, server: ExtensionServer, plugin: Plugin
) -> None:
    answers = iter(
        [
            hooks_pb.CallToolResponse(refusal="item: no such fruit"),
            hooks_pb.CallToolResponse(failure="sold out"),
            hooks_pb.CallToolResponse(result_json="nonsense"),
            hooks_pb.CallToolResponse(result_json=json.dumps("x" * 300_000)),
            hooks_pb.CallToolResponse(),
        ]
    )

    async def answer(request: hooks_pb.CallToolRequest) -> hooks_pb.CallToolResponse:
        return next(answers)

    server.on_call = answer
    ada = await mesh.agent("ada")
    assert "no such fruit" in (await refused(ada, "invalid_argument")).message
    assert (await call(ada)).failure == "sold out"
    assert "is not JSON" in (await call(ada)).failure
    assert "256 KiB" in (await call(ada)).failure
    assert (await call(ada)).failure


async def test_a_plugin_that_is_away_is_unavailable_and_one_that_breaks_has_failed(
    mesh: RelayMesh, server: ExtensionServer, plugin: Plugin
) -> None:
    ada = await mesh.agent("ada")
    codes = iter([grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INTERNAL])

    async def refuse(request: hooks_pb.CallToolRequest) -> hooks_pb.CallToolResponse:
        raise RefusalError(next(codes), "inside")

    server.on_call = refuse
    assert (await refused(ada, "unavailable")).details["may_have_run"] is True
    await refused(ada, "failed_precondition")
    assert "the plugin failed" in (await call(ada)).failure
    server.secret = "another"
    assert (await refused(ada, "unavailable")).details["may_have_run"] is False


async def test_a_call_ends_with_its_time_and_with_its_caller(
    mesh: RelayMesh, server: ExtensionServer, plugin: Plugin
) -> None:
    async def hang(request: hooks_pb.CallToolRequest) -> hooks_pb.CallToolResponse:
        await asyncio.Event().wait()
        raise AssertionError

    server.on_call = hang
    ada = await mesh.agent("ada")
    await refused(ada, "deadline_exceeded", timeout_seconds=1)
    running = asyncio.create_task(call(ada))
    await server.called(2)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    async with asyncio.timeout(20):
        while server.canceled < 2:
            await mesh.clock.advance(0.0)
            await asyncio.sleep(0.01)  # the endpoint is a real one, and in real time


async def test_more_calls_than_a_plugin_runs_wait_and_run_then(
    mesh: RelayMesh, server: ExtensionServer, plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calling, "LANES", {**calling.LANES, "tools": 2})
    go = asyncio.Event()

    async def wait(request: hooks_pb.CallToolRequest) -> hooks_pb.CallToolResponse:
        await go.wait()
        return hooks_pb.CallToolResponse(result_json="1")

    server.on_call = wait
    ada = await mesh.agent("ada")
    running = [asyncio.create_task(call(ada)) for _ in range(5)]
    await server.called(2)
    go.set()
    assert [each.result_json for each in await asyncio.gather(*running)] == ["1"] * 5


async def test_it_is_for_standard_agents_that_are_active_and_whose_setting_has_it(
    mesh: RelayMesh, server: ExtensionServer, plugin: Plugin
) -> None:
    receiver = await mesh.agent("box", kind=agent_pb2.AGENT_KIND_RECEIVE_ONLY)
    await refused(receiver, "receive_only")
    narrow = await mesh.agent("narrow", tools=["whoami"])
    await refused(narrow, "permission_denied")
    wide = await mesh.agent("wide", tools=["shop__stock"])
    await call(wide)
    ada = await mesh.agent("ada")
    await mesh.pause(ada)
    await refused(ada, "agent_paused")
    with pytest.raises(HoplineError) as caught:
        await call(mesh.admin)
    assert caught.value.reason == "permission_denied"
    assert len(server.calls) == 1


async def test_what_another_workspace_has_installed_is_as_if_it_had_never_been(
    mesh: RelayMesh, server: ExtensionServer, plugin: Plugin
) -> None:
    stranger = await mesh.foreign_agent("stranger")
    there = await refused(stranger, "not_found")
    never = await refused(stranger, "not_found", tool="what__never")
    assert there.message.replace("shop__stock", "X") == never.message.replace("what__never", "X")
    assert not server.calls


async def test_an_uninstalled_plugins_tool_is_gone_and_its_calls_end(
    mesh: RelayMesh, server: ExtensionServer, plugin: Plugin
) -> None:
    ada = await mesh.agent("ada")
    await call(ada)
    await uninstall(mesh)
    error = await refused(ada, "not_found")
    assert "there are none" in error.message


# -- skills ------------------------------------------------------------------------------------------


async def skill(caller: Caller, name: str) -> Any:
    return await tool_service(caller).UseSkill(pb.UseSkillRequest(skill=name))


async def test_a_skill_is_given_out_by_its_full_name_and_its_own_where_only_one_plugin_has_it(
    mesh: RelayMesh,
) -> None:
    selling = plugin_pb2.PluginSkill(name="selling", description="Before you sell.", text="Smile.")
    buying = plugin_pb2.PluginSkill(name="buying", description="Before you buy.", text="Haggle.")
    await install(mesh, "shop", skills=[selling, buying])
    await install(mesh, "market", skills=[selling])
    ada = await mesh.agent("ada")
    found = await skill(ada, "shop__selling")
    assert (found.text, found.skill, found.plugin) == ("Smile.", "shop__selling", "Shop")
    assert (await skill(ada, "buying")).skill == "shop__buying"
    with pytest.raises(HoplineError) as caught:
        await skill(ada, "selling")
    assert caught.value.reason == "ambiguous"
    assert "market__selling" in caught.value.message
    with pytest.raises(HoplineError) as caught:
        await skill(ada, "stealing")
    assert caught.value.reason == "not_found"
    assert "shop__buying" in caught.value.message
    with pytest.raises(HoplineError) as caught:
        await skill(await mesh.agent("narrow", tools=["whoami"]), "buying")
    assert caught.value.reason == "permission_denied"
