"""A lead and its specialists as real processes, whose harnesses call the tools they were handed."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from hopline.relay.v1 import session_pb2
from hopline_client import Turn, TurnFailed

from tests.support.mesh_process import Agent, Space, call, until

# What harnesses do: each finds the tools of its session in the configuration that it was handed.
HARNESS = """
import asyncio, json, os, sys
from pathlib import Path
from mcp import Client, StdioServerParameters, stdio_client

given = json.loads(Path(os.environ["HOPLINE_MCP_CONFIG"]).read_text())["mcpServers"]["hopline"]
env = {**os.environ, **given["env"]}
server = StdioServerParameters(command=given["command"], args=given["args"], env=env)
message = json.loads(Path(os.environ["HOPLINE_MESSAGE_FILE"]).read_text())

async def lead(client, heard):
    if not heard.exists():
        heard.write_text("")
        for name in ("one", "two"):
            made = await client.call_tool("start_subagent", {"agent": name, "task": f"part of {name}"})
            assert made.structured_content["outcome"] == "created", made
    else:
        with heard.open("a") as file:
            file.write(json.dumps([message["from"]["name"], message["body"]]) + chr(10))

async def specialist(client, _):
    said = await client.call_tool("report_to_caller", {"text": message["body"] + ": done"})
    assert said.structured_content["is_delivered"], said
    print("nobody is to hear this")

async def main():
    async with Client(stdio_client(server)) as client:
        await globals()[sys.argv[1]](client, Path(sys.argv[2]))

asyncio.run(main())
"""


async def _crew(space: Space) -> tuple[Agent, Agent, Agent]:
    lead = await space.agent("lead")
    one, two = [await space.agent(name, is_subagent=True, parent_agent_id=lead.id) for name in ("one", "two")]
    return lead, one, two


async def _prompt(space: Space, agent: str) -> Any:
    request = session_pb2.PromptRequest(agent=agent, text="go", wait_seconds=0)
    return (await space.admin.sessions.Prompt(request)).turn


async def test_a_lead_and_two_specialists_that_are_commands_work_side_by_side(
    space: Space, tmp_path: Path
) -> None:
    crew = await _crew(space)
    script, heard = tmp_path / "harness.py", tmp_path / "heard"
    script.write_text(HARNESS)
    for agent, part in zip(crew, ("lead", "specialist", "specialist"), strict=True):
        await space.attach(agent, sys.executable, str(script), part, str(heard))
    asked = await _prompt(space, "lead")

    async def both() -> list[list[str]]:
        said = heard.read_text().splitlines() if heard.exists() else []
        return [json.loads(line) for line in said] if len(said) == 2 else []

    assert sorted(await until(both, "both reports")) == [
        ["one", "part of one: done"],
        ["two", "part of two: done"],
    ]
    listed = await space.mesh.cli(
        "sessions", "--of", asked.session_id, "--children", "--workspace", space.name
    )
    assert {each["agent"]["name"] for each in listed["sessions"]} == {"one", "two"}
    assert not any(each["child"]["owes_report"] for each in listed["sessions"])


async def test_what_a_crew_has_begun_is_finished_over_a_kill_of_the_mesh(own_space: Space) -> None:
    lead, one, two = await _crew(own_space)
    heard: list[tuple[str, str]] = []
    gone = asyncio.Event()

    async def conduct(turn: Turn) -> None:
        if turn.cause == "prompt":
            for name in ("one", "two"):
                assert (await turn.mesh.start_subagent(name, f"part of {name}")).created
        else:
            heard.extend((message.body, turn.session_id) for message in turn.messages)

    async def reports(turn: Turn) -> str:
        await gone.wait()
        await turn.mesh.report_to_caller(f"{turn.text}: done")
        return "not heard"

    async def fails(turn: Turn) -> str:
        await gone.wait()
        raise TurnFailed("too hard")

    await own_space.work(lead, conduct)
    await own_space.work(one, reports)
    await own_space.work(two, fails)
    asked = await _prompt(own_space, "lead")

    async def begun() -> bool:
        turns = await own_space.turns()
        return sum(turn.cause == "task" and turn.HasField("started_at") for turn in turns) == 2

    await until(begun, "both children")
    own_space.mesh.kill()
    await own_space.mesh.restart()
    gone.set()
    await until(lambda: len({body for body, _ in heard}) >= 2, "what came of both")
    assert {session_id for _, session_id in heard} == {asked.session_id}
    bodies = [body for body, _ in heard]
    assert bodies.count("part of one: done") == 1
    assert sum("too hard" in body for body in bodies) == 1


async def test_a_lead_over_mcp_closes_what_it_has_started(space: Space) -> None:
    lead, one, _ = await _crew(space)
    stopped = asyncio.Event()

    async def never(turn: Turn) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return ""

    await space.work(one, never)
    async with space.mcp_over_http(lead) as client:
        started = await call(client, "start_subagent", agent="one", task="look")
        listed = await call(client, "list_agent_sessions", agent="one")
        assert [each["id"] for each in listed["sessions"]] == [started["session_id"]]
        read = await call(client, "read_session", session_id=started["session_id"])
        assert [each["text"] for each in read["entries"]] == ["look"]
        closed = await call(client, "close_subagent", session_id=started["session_id"])
        assert (closed["state"], closed["canceled"]) == ("closed", 1)
        said = await call(client, "send_message_to_session", session_id=started["session_id"], text="?")
        assert (said["is_delivered"], said["cancel_reason"]) == (False, "session_closed")
    await asyncio.wait_for(stopped.wait(), 30)
