"""`mesh.connection(name)`: another agent called from code, without a turn of the caller's model."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from hopline.registry.v1.agent_pb2 import Agent, Connection, UpdateAgentRequest
from hopline_client import Connected, HoplineError, ToolContext, ToolFailed, Turn

from tests.support.relay_mesh import Caller, RelayMesh, relay_mesh
from tests.support.stage import Stage


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with relay_mesh(tmp_path) as mesh:
        running = Stage(mesh, socket=False)
        yield running
        await running.close()


async def connect(mesh: RelayMesh, agent: Caller, **named: Caller) -> None:
    """Give an agent connections, in place of those it had."""
    wanted = Agent(connections=[Connection(name=name, agent=peer.id) for name, peer in named.items()])
    request = UpdateAgentRequest(
        agent_ref=agent.id, agent=wanted, update_mask=FieldMask(paths=["connections"])
    )
    await mesh.admin.agents.UpdateAgent(request)


async def shout(turn: Turn) -> str:
    return turn.text.upper()


async def refused(
    stage: Stage, agent: Caller, connection: str, tool: str = "ask", /, **arguments: object
) -> HoplineError:
    async with stage.client(agent) as client:
        with pytest.raises(HoplineError) as caught:
            await client.connection(connection).call(tool, arguments)
    return caught.value


async def test_a_script_calls_a_peer_by_its_connection_and_follows_up(stage: Stage) -> None:
    ada, bob = [await stage.mesh.agent(name) for name in ("ada", "bob")]
    await connect(stage.mesh, ada, weather=bob)
    await stage.work(bob, shout)
    async with stage.client(ada) as client:
        weather = client.connection("weather")
        answer = await weather.call("ask", {"message": "sunny?"})
        assert (answer["status"], answer["reply"]) == ("completed", "SUNNY?")
        again = await weather.ask("and now?", session_id=answer["sessionId"])
        assert (again.text, again.session_id) == ("AND NOW?", answer["sessionId"])
        looked = await weather.call("check", {"sessionId": answer["sessionId"], "waitSeconds": 0})
        assert looked["reply"] == "AND NOW?"
        assert (await weather.check(answer["sessionId"])).text == "AND NOW?"
        assert await client.connections() == [
            Connected(name="weather", id=bob.id, slug="bob", agent_name="bob", description="")
        ]


async def test_a_turn_calls_a_peer_and_the_mesh_counts_it_as_the_turns(stage: Stage) -> None:
    ada, bob, eve = [await stage.mesh.agent(name) for name in ("ada", "bob", "eve")]
    await connect(stage.mesh, ada, weather=bob)
    depths: list[int] = []

    async def delegate(turn: Turn) -> str:
        answer = await turn.mesh.connection("weather").call("ask", {"message": turn.text})
        return f"it is {answer['reply']}"

    async def answer(turn: Turn) -> str:
        depths.append(turn.depth)
        return await shout(turn)

    await stage.work(ada, delegate)
    await stage.work(bob, answer)
    async with stage.client(eve) as client:
        assert (await client.ask("ada", "sunny")).text == "it is SUNNY"
    assert depths == [2]


async def test_two_asks_have_sessions_of_their_own(stage: Stage) -> None:
    ada, bob = [await stage.mesh.agent(name) for name in ("ada", "bob")]
    await connect(stage.mesh, ada, weather=bob)
    async with stage.client(ada) as client:
        weather = client.connection("weather")
        first = await weather.ask("one", wait_seconds=0)
        second = await weather.ask("two", wait_seconds=0)
        assert first.pending
        assert first.session_id != second.session_id


async def test_a_name_that_there_is_not_is_an_error_that_lists_those_there_are(stage: Stage) -> None:
    ada, bob, eve = [await stage.mesh.agent(name) for name in ("ada", "bob", "eve")]
    await connect(stage.mesh, ada, weather=bob, sky=eve)
    error = await refused(stage, ada, "wether", message="x")
    assert error.reason == "not_found"
    assert error.message == "there is no connection 'wether'; there are: sky, weather"
    error = await refused(stage, bob, "weather", message="x")
    assert error.message == "there is no connection 'weather'; there is none that may be used now"


async def test_what_is_out_of_reach_or_gone_is_no_connection_from_the_next_call_on(stage: Stage) -> None:
    ada, bob, eve = [await stage.mesh.agent(name) for name in ("ada", "bob", "eve")]
    await connect(stage.mesh, ada, weather=bob, sky=eve)
    async with stage.client(ada) as client:
        weather = client.connection("weather")
        assert (await weather.ask("x", wait_seconds=0)).pending
        await stage.mesh.pause(bob)
        with pytest.raises(HoplineError, match="there is no connection 'weather'; there are: sky"):
            await weather.ask("x", wait_seconds=0)
        await stage.mesh.resume(bob)
        assert (await weather.ask("x", wait_seconds=0)).pending
        await stage.mesh.delete(bob)
        with pytest.raises(HoplineError, match="there is no connection 'weather'; there are: sky"):
            await weather.check("ses_x", wait_seconds=0)


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("sing", {}, "tool: there is no tool 'sing'; there are: ask, check, call_tool"),
        ("ask", {}, "message: is missing; ask takes message"),
        ("ask", {"message": "x", "text": "y"}, "text: is unknown; ask takes message"),
        ("ask", {"message": 3}, "message: cannot be 3"),
        ("ask", {"message": ["x"]}, "message: cannot be ['x']"),
        ("ask", {"message": ""}, "message: must be at least 1 bytes"),
        ("ask", {"message": "x", "sessionId": None}, "sessionId: cannot be None"),
        ("ask", {"message": "x", "waitSeconds": "1"}, "waitSeconds: must be whole seconds, not '1'"),
        ("ask", {"message": "x", "waitSeconds": None}, "waitSeconds: must be whole seconds, not None"),
        ("check", {"sessionId": ""}, "sessionId: must be at least 1 characters"),
        ("check", {"sessionId": "s", "waitSeconds": -1}, "waitSeconds: must not be negative"),
        ("call_tool", {"name": "x", "arguments": [1]}, "arguments: must be a mapping of names to values"),
        ("call_tool", {"name": "x", "arguments": "{}"}, "arguments: must be a mapping of names to values"),
        ("call_tool", {"arguments": {}}, "name: is missing; call_tool takes arguments, name, request_id"),
        ("call_tool", {"name": "x", "arguments": {"a": {1}}}, "arguments: is not JSON"),
    ],
)
async def test_what_is_wrong_with_a_call_is_named(
    stage: Stage, tool: str, arguments: dict[str, object], said: str
) -> None:
    ada, bob = [await stage.mesh.agent(name) for name in ("ada", "bob")]
    await connect(stage.mesh, ada, weather=bob)
    error = await refused(stage, ada, "weather", tool, **arguments)
    assert error.reason == "invalid_argument"
    assert error.message.startswith(said)


@pytest.mark.parametrize("arguments", [[1], "message", 7])
async def test_arguments_are_a_mapping(stage: Stage, arguments: Any) -> None:
    ada = await stage.mesh.agent("ada")
    async with stage.client(ada) as client:
        with pytest.raises(HoplineError, match="arguments: must be a mapping of names to values") as caught:
            await client.connection("weather").call("ask", arguments)
    assert caught.value.reason == "invalid_argument"


async def test_a_person_has_no_connections(stage: Stage) -> None:
    error = await refused(stage, stage.mesh.admin, "weather", message="x")
    assert error.reason == "permission_denied"


async def test_a_peers_tools_are_called_without_a_turn_of_its_model(stage: Stage) -> None:
    ada, bob = [await stage.mesh.agent(name) for name in ("ada", "bob")]
    await connect(stage.mesh, ada, weather=bob)

    def temperature(city: str, unit: str = "C") -> dict[str, str]:
        """Tell how warm it is."""
        if city == "Atlantis":
            raise ToolFailed("there is no such city")
        return {city: f"7 {unit}"}

    turns: list[str] = []

    async def handle(turn: Turn) -> str:
        turns.append(turn.text)
        return "no"

    await stage.work(bob, handle, tools=[temperature])
    async with stage.client(ada) as client:
        weather = client.connection("weather")
        arguments = {"name": "temperature", "arguments": {"city": "Oslo"}}
        found = await weather.call("call_tool", arguments)
        assert (found["status"], found["result"]) == ("completed", {"Oslo": "7 C"})
        failed = await weather.call("call_tool", {"name": "temperature", "arguments": {"city": "Atlantis"}})
        assert (failed["status"], failed["error"]["code"]) == ("failed", "tool_failed")
        assert "result" not in failed
        assert (await weather.call_tool("temperature", {"city": "Rome", "unit": "F"})).value == {
            "Rome": "7 F"
        }
        with pytest.raises(HoplineError, match="temperature"):
            await weather.call("call_tool", {"name": "humidity"})
    assert turns == []


async def test_a_server_tool_calls_its_agents_own_connections(stage: Stage) -> None:
    """From one agent's tool to another agent: two delegations, and no model has had a turn on the way."""
    eve, ada, bob = [await stage.mesh.agent(name) for name in ("eve", "ada", "bob")]
    await connect(stage.mesh, eve, desk=ada)
    await connect(stage.mesh, ada, weather=bob)
    depths: list[int] = []

    async def forecast(city: str, context: ToolContext) -> str:
        answer = await context.mesh.connection("weather").call("ask", {"message": city})
        return f"{context.from_}: {answer['reply']}"

    async def answer(turn: Turn) -> str:
        depths.append(turn.depth)
        return await shout(turn)

    await stage.work(ada, shout, tools=[forecast])
    await stage.work(bob, answer)
    async with stage.client(eve) as client:
        found = await client.connection("desk").call_tool("forecast", {"city": "Oslo"})
    assert found.value == "eve (for admin): OSLO"
    assert depths == [2]
