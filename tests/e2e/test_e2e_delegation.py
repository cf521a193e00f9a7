"""Agents that find, ask and stop each other, as separate processes."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import Any

import pytest
from hopline_client import Turn

from tests.support.mesh_process import Held, MeshProcess, Space, call, shout

MODES = ("legacy", "2026-07-28")


def asks(agent: str) -> tuple[str, ...]:
    """A command that passes its turn on to another agent through `hopline mcp`, and prints the answer."""
    arguments = {"agent": agent, "text": "go on"}
    request = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "ask", "arguments": arguments},
    }
    return "sh", "-c", f"printf '%s\\n' '{json.dumps(request)}' | hopline mcp"


@pytest.mark.parametrize("mode", MODES)
async def test_two_agents_and_one_ask_over_stdio(space: Space, mode: str) -> None:
    ada, bob = await space.agents("ada", "bob")
    await space.work(bob, shout)
    async with space.mcp_over_stdio(ada, mode) as client:
        found = await call(client, "ask", agent="bob", text="tea?")
    assert (found["status"], found["reply"]) == ("completed", "TEA?")


@pytest.mark.parametrize("mode", MODES)
async def test_two_agents_and_one_ask_over_streamable_http(space: Space, mode: str) -> None:
    ada, bob = await space.agents("ada", "bob")
    await space.work(bob, shout)
    async with space.mcp_over_http(ada, mode) as client:
        peers = await call(client, "list_agents")
        assert [(peer["name"], peer["presence"]) for peer in peers["agents"]] == [("bob", "idle")]
        found = await call(client, "ask", agent="bob", text="tea?")
        assert (found["status"], found["reply"]) == ("completed", "TEA?")
        thread = (await call(client, "list_threads"))["threads"][0]["id"]
        messages = (await call(client, "read_thread", thread_id=thread))["messages"]
    assert [(one["seq"], one["from"]["name"], one["body"]) for one in messages] == [
        (1, "ada", "tea?"),
        (2, "bob", "TEA?"),
    ]


async def test_a_loop_of_commands_is_ended_by_the_depth_rail(space: Space) -> None:
    eve, ada, bob = await space.agents("eve", "ada", "bob")
    await space.attach(ada, *asks("bob"))
    await space.attach(bob, *asks("ada"))
    answer = await space.client(eve).ask("ada", "round and round")
    assert "too many agents in a row" in answer.text
    turns = await space.turns()
    assert [(turn.depth, turn.agent.name) for turn in turns] == [
        (1, "ada"),
        (2, "bob"),
        (3, "ada"),
        (4, "bob"),
    ]
    refusal = (await space.events("message.refused"))[0]
    assert refusal.details["code"] == "depth_exceeded"


async def test_a_second_mesh_on_the_same_data_is_refused_and_the_first_goes_on_with_its_work(
    space: Space, mesh: MeshProcess
) -> None:
    ada, bob = await space.agents("ada", "bob")
    handler = Held()
    await space.work(bob, handler)
    asking = asyncio.create_task(space.client(ada).ask("bob", "tea"))
    await handler.begun()
    before = mesh.endpoints_file.read_bytes()
    second = await asyncio.to_thread(mesh.hopline, "up", "--any-port")
    assert second.returncode == 1
    complaint = f"error: a mesh is already running on {mesh.data} (pid {mesh.up.pid}); "
    assert second.stderr == f"{complaint}stop it, or choose another --data\n"
    assert mesh.endpoints_file.read_bytes() == before
    handler.go_on.set()
    assert (await asking).text == "tea, answered at attempt 1"


async def test_a_delegation_over_three_agents_is_one_trace_of_nested_spans(
    space: Space, mesh: MeshProcess
) -> None:
    ada, bob, carl = await space.agents("ada", "bob", "carl")

    async def delegate(turn: Turn) -> str:
        return (await turn.mesh.ask("carl", turn.text)).text

    await space.work(bob, delegate)
    await space.work(carl, shout)
    async with space.mcp_over_http(ada) as client:
        found = await call(client, "ask", agent="bob", text="tea?")
    names = ("tools/call ask", "invoke_agent bob", "invoke_agent carl")
    trace = await mesh.trace(found["turn_id"], *names)
    assert len(trace["trace_ids"]) == 1
    spans = {span["span_id"]: span for span in trace["spans"]}
    innermost = next(span for span in spans.values() if span["name"] == "invoke_agent carl")
    line = [innermost]
    while line[-1]["parent_id"]:
        line.append(spans[line[-1]["parent_id"]])
    assert [(span["service"], span["name"]) for span in reversed(line)] == [
        ("gateway", "tools/call ask"),
        ("relay", "hopline.relay.v1.MessageService/Ask"),
        ("relay", "invoke_agent bob"),
        ("relay", "hopline.relay.v1.MessageService/Ask"),
        ("relay", "invoke_agent carl"),
    ]
    for inner, outer in pairwise(line):
        assert outer["start_ns"] <= inner["start_ns"], "a span starts before the one it belongs to"
    assert [line[index]["attributes"]["hopline.depth"] for index in (2, 0)] == [1, 2]
    drawn = (await asyncio.to_thread(mesh.hopline, "trace", found["turn_id"])).stdout
    assert drawn.index("invoke_agent bob") < drawn.index("invoke_agent carl")


async def test_a_trace_goes_on_with_the_context_that_the_caller_sent(space: Space, mesh: MeshProcess) -> None:
    ada, bob = await space.agents("ada", "bob")
    await space.work(bob, shout)
    context: Any = {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}
    async with space.mcp_over_stdio(ada) as client:
        found = await client.call_tool("ask", {"agent": "bob", "text": "tea?"}, meta=context)
    turn_id = (found.structured_content or {})["turn_id"]
    trace = await mesh.trace(turn_id, "tools/call ask")
    assert trace["trace_ids"] == ["4bf92f3577b34da6a3ce929d0e0e4736"]
    top = next(span for span in trace["spans"] if span["service"] == "gateway")
    assert top["parent_id"] == "00f067aa0ba902b7"
