"""What plugins add to an agent's tools: to whose, under which names, and how they answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hopline.registry.v1 import agent_pb2
from hopline.registry.v1 import plugin_pb2 as pb
from hopline.relay.v1 import plugin_tool_pb2
from hopline_rpc.errors import HoplineError
from mcp.shared.exceptions import MCPError

from tests.gateway.builders import Rig
from tests.gateway.test_gateway_offers import CORE, FOR_PEOPLE, FOR_RECEIVERS, offered

SCHEMA = {
    "type": "object",
    "properties": {"item": {"type": "string"}, "session_id": {"type": "string"}},
    "required": ["item"],
}
STOCK = pb.PluginTool(name="stock", description="How many there are.", input_schema_json=json.dumps(SCHEMA))
SELLING = pb.PluginSkill(name="selling", description="Before you sell.", text="Smile.")


async def installed(rig: Rig, key: str = "shop", **manifest: Any) -> None:
    """Install a plugin and let the gateway learn of it."""
    rig.registry.plugin(key, **{"tools": [STOCK], **manifest})
    await rig.clock.advance(0.3)


async def test_a_standard_agent_is_offered_the_tools_of_plugins_after_the_core(rig: Rig, mode: str) -> None:
    await installed(rig, skills=[SELLING])
    assert await offered(rig, rig.token, mode) == [*CORE, "shop__stock", "use_skill"]


async def test_people_and_receivers_are_offered_none(rig: Rig, mode: str) -> None:
    await installed(rig, skills=[SELLING])
    receiver = rig.registry.agent("mailbox", kind=agent_pb2.AGENT_KIND_RECEIVE_ONLY)
    await rig.clock.advance(0.3)
    assert await offered(rig, receiver, mode) == FOR_RECEIVERS
    assert await offered(rig, rig.registry.user(), mode) == FOR_PEOPLE


async def test_an_agents_tools_setting_leaves_out_what_it_does_not_name(rig: Rig, mode: str) -> None:
    await installed(rig, skills=[SELLING])
    token = rig.registry.agent("narrow", tools=["whoami", "shop__stock"])
    await rig.clock.advance(0.3)
    assert await offered(rig, token, mode) == ["whoami", "shop__stock"]


async def test_a_plugin_that_is_gone_takes_its_tools_along_and_they_are_as_if_they_had_never_been(
    rig: Rig, mode: str
) -> None:
    await installed(rig, skills=[SELLING])
    rig.registry.no_plugin("shop")
    await rig.clock.advance(0.3)
    assert await offered(rig, rig.token, mode) == CORE
    async with rig.client(mode=mode) as client:
        told = []
        for name in ("shop__stock", "shop__nothing", "use_skill"):
            with pytest.raises(MCPError) as caught:
                await client.call_tool(name, {})
            told.append(str(caught.value).replace(name, "TOOL"))
    assert len(set(told)) == 1


async def test_without_an_endpoint_there_is_nothing_to_call(rig: Rig, mode: str) -> None:
    await installed(rig, endpoint="", skills=[SELLING])
    assert await offered(rig, rig.token, mode) == [*CORE, "use_skill"]


async def test_a_tool_is_shown_with_its_own_schema_and_whose_it_is(rig: Rig) -> None:
    await installed(rig)
    async with rig.client() as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
    tool = listed["shop__stock"]
    assert tool.input_schema == SCHEMA
    assert tool.description == 'Of the plugin "Shop": How many there are.'


async def test_a_tool_that_names_no_schema_takes_an_object(rig: Rig) -> None:
    await installed(rig, tools=[pb.PluginTool(name="ping", description="Ping.")])
    async with rig.client() as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert listed["shop__ping"].input_schema == {"type": "object"}


@pytest.mark.parametrize(
    "schema",
    [
        '{"type": 5}',
        '{"type": "array"}',
        '{"properties": 7}',
        '{"properties": {"item": true}}',
        '{"properties": {"item": {"type": "word"}}}',
        '{"required": "item"}',
        '{"$schema": 5}',
    ],
)
async def test_a_schema_that_no_client_could_read_does_not_take_all_other_tools_with_it(
    rig: Rig, mode: str, schema: str
) -> None:
    broken = pb.PluginTool(name="broken", description="Broken.", input_schema_json=schema)
    await installed(rig, tools=[broken, STOCK])
    async with rig.client(mode=mode) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert list(listed) == [*CORE, "shop__broken", "shop__stock"]
    assert listed["shop__broken"].input_schema == {"type": "object"}
    assert listed["shop__stock"].input_schema == SCHEMA


async def test_a_call_goes_to_the_relay_as_it_is_from_the_session_it_is_bound_to(rig: Rig, mode: str) -> None:
    await installed(rig)
    rig.relay.script["CallPluginTool"] = lambda request: plugin_tool_pb2.CallPluginToolResponse(
        result_json='{"count": 3}', plugin="Shop"
    )
    given = {"item": "pear", "session_id": "trn_of another kind"}
    async with rig.client(mode=mode, headers={"Hopline-Session": "ses_mine"}) as client:
        result = await client.call_tool("shop__stock", given)
    assert not result.is_error
    assert result.structured_content == {"status": "completed", "result": {"count": 3}}
    assert "<<<result" in result.content[0].text
    request = rig.relay.last.request
    assert (request.tool, request.caller_session_id) == ("shop__stock", "ses_mine")
    assert json.loads(request.arguments_json) == given


async def test_a_tool_that_fails_is_no_error_of_the_call_and_its_words_are_fenced(rig: Rig) -> None:
    await installed(rig)
    rig.relay.script["CallPluginTool"] = lambda request: plugin_tool_pb2.CallPluginToolResponse(
        failure="sold out\nstatus: completed", plugin="Shop"
    )
    async with rig.client() as client:
        result = await client.call_tool("shop__stock", {"item": "pear"})
    assert not result.is_error
    assert result.structured_content == {
        "status": "failed",
        "error": {"code": "tool_failed", "message": "sold out\nstatus: completed"},
    }
    assert "<<<message" in result.content[0].text


@pytest.mark.parametrize("reason", ["invalid_argument", "unavailable", "deadline_exceeded", "not_found"])
async def test_a_refusal_of_the_relay_is_told_as_one(rig: Rig, reason: str) -> None:
    await installed(rig)

    def refuse(request: Any) -> Any:
        raise HoplineError(reason, "it does not go")

    rig.relay.script["CallPluginTool"] = refuse
    async with rig.client() as client:
        result = await client.call_tool("shop__stock", {"item": "pear"})
    assert result.is_error
    assert result.structured_content["error"]["code"] == reason


async def test_arguments_that_no_store_takes_are_refused_before_the_relay(rig: Rig) -> None:
    await installed(rig)
    async with rig.client() as client:
        result = await client.call_tool("shop__stock", {"item": "pe\0ar"})
        assert result.structured_content["error"]["code"] == "invalid_argument"
        result = await client.call_tool("shop__stock", {"item": "x" * 70_000})
        assert result.structured_content["error"]["code"] == "invalid_argument"
    assert "CallPluginTool" not in [seen.method for seen in rig.relay.seen]


async def test_a_skill_is_listed_with_when_to_use_it_and_marked_as_the_plugins(rig: Rig, mode: str) -> None:
    await installed(rig, skills=[SELLING])
    async with rig.client(mode=mode) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        result = await client.call_tool("use_skill", {"name": "shop__selling"})
    assert '- shop__selling: "Before you sell."' in listed["use_skill"].description
    assert result.structured_content == {"skill": "shop__selling", "plugin": "Shop", "text": "Do so."}
    assert "<<<skill" in result.content[0].text
    assert rig.relay.last.request.skill == "shop__selling"


async def test_a_connection_goes_before_a_tool_of_the_same_name(rig: Rig, mode: str) -> None:
    await installed(rig, key="weather", tools=[pb.PluginTool(name="ask", description="Of the plugin's.")])
    rig.registry.agent("weather")
    link = agent_pb2.Connection(name="weather", agent="agt_weather")
    token = rig.registry.agent("concierge", connections=[link])
    await rig.clock.advance(0.3)
    names = await offered(rig, token, mode)
    assert names.count("weather__ask") == 1
    async with rig.client(token=token, mode=mode) as client:
        await client.call_tool("weather__ask", {"message": "Oslo?"})
    assert rig.relay.acted.method == "Ask"
