"""Two people with an agent each: one lets the other's agent in, and shows it out again, from the shell."""

from __future__ import annotations

import asyncio
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.mesh_process import HOPLINE, Held, MeshProcess, Space, call, refused, shout

SHOWN = "planner (for Alice)"


@dataclass
class Person:
    """Somebody who has the address of the mesh and a token of their own, and nothing else."""

    mesh: MeshProcess
    token_file: Path

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        env = {"HOPLINE_URL": self.mesh.endpoints["gateway"], "HOPLINE_TOKEN_FILE": str(self.token_file)}
        return self.mesh.processes.run(HOPLINE, *words, env=env)

    async def says(self, *words: str) -> str:
        """Run a command that has to succeed, and return what it prints."""
        done = await asyncio.to_thread(self.run, *words)
        assert done.returncode == 0, f"hopline {' '.join(words)}: {done.stderr}"
        return done.stdout

    async def json(self, *words: str) -> Any:
        """Return what a command prints as JSON."""
        return json.loads(await self.says(*words, "--json"))


async def person(space: Space, name: str) -> Person:
    """Make a person."""
    file = space.mesh.processes.folder / f"{space.name}-{name}.token"
    file.touch(mode=0o600)
    file.write_text(await space.person(name))
    return Person(space.mesh, file)


@pytest.fixture
async def alice(own_space: Space) -> Person:
    return await person(own_space, "Alice")


@pytest.fixture
async def bob(own_space: Space) -> Person:
    return await person(own_space, "Bob")


async def test_an_owner_lets_anothers_agent_in_and_shows_it_out_again_and_reads_who_came_in_whose_name(
    own_space: Space, own_mesh: MeshProcess, alice: Person, bob: Person
) -> None:
    planner = await own_space.agent("planner", owner_id="Alice")
    reviewer = await own_space.agent("reviewer", owner_id="Bob")
    held = Held()
    await own_space.work(reviewer, held)
    async with own_space.mcp_over_http(planner) as mcp:
        never = await refused(mcp, "ask", agent="nobody", text="well?")
        hidden = await refused(mcp, "ask", agent="reviewer", text="well?")
        assert hidden[0]["code"] == "not_found"
        assert hidden[1].replace("reviewer", "nobody") == never[1]
        assert (await call(mcp, "list_agents"))["agents"] == []

        await bob.says("role", "grant", "Alice", "operator", "--agent", "reviewer")
        assert [each["name"] for each in (await call(mcp, "list_agents"))["agents"]] == ["reviewer"]
        running = asyncio.create_task(call(mcp, "ask", agent="reviewer", text="is it sound?"))
        turn = await held.begun()
        assert turn.from_ == SHOWN
        session = (await own_space.turn(turn.id)).session_id
        # Behind it in the same session: they wait there when the role goes.
        behind = {"agent": "reviewer", "session_id": session, "wait_seconds": 0}
        queued = [await call(mcp, "ask", text=text, **behind) for text in ("and now?", "and then?")]
        assert [each["status"] for each in queued] == ["queued", "queued"]

        await bob.says("role", "revoke", "Alice", "--agent", "reviewer")
        assert (await call(mcp, "list_agents"))["agents"] == []
        assert (await refused(mcp, "send_message", agent="reviewer", text="well?"))[1] == hidden[1]
        assert (await refused(mcp, "ask", text="well?", **behind))[1] == hidden[1]
        held.go_on.set()
        assert (await running)["reply"] == "is it sound?, answered at attempt 1"
        for each in queued:
            ended = await call(mcp, "check", turn_id=each["turn_id"])
            assert ended["status"] == "canceled"
            assert "withdrawn" in ended["error"]["message"]
    assert len(held.turns) == 1

    own_mesh.up.terminate()
    await own_mesh.up.ended()
    await own_mesh.restart()
    for options in ((), ("--agent", "reviewer")):
        log = (await bob.json("audit", "--action", "message.sent", *options))["events"]
        assert [event["actor"]["display"] for event in log] == [SHOWN, SHOWN, SHOWN, "reviewer (for Bob)"]
        printed = await bob.says("audit", "--action", "message.sent", *options)
        assert printed.count(f"agent {SHOWN}") == 3
    thread = (await bob.json("threads"))["threads"][-1]["id"]
    assert f"#1 {SHOWN}" in await bob.says("thread", thread)


async def test_a_role_on_one_agent_opens_no_other_and_tells_of_no_other(
    own_space: Space, alice: Person, bob: Person
) -> None:
    planner = await own_space.agent("planner", owner_id="Alice")
    reviewer, secret = [await own_space.agent(name, owner_id="Bob") for name in ("reviewer", "secret")]
    await own_space.work(reviewer, shout)
    await own_space.work(secret, shout)
    await bob.says("role", "grant", "Alice", "operator", "--agent", "reviewer")
    async with own_space.mcp_over_http(planner) as mcp:
        assert (await call(mcp, "ask", agent="reviewer", text="tea?"))["reply"] == "TEA?"
        assert (await refused(mcp, "ask", agent="secret", text="tea?"))[0]["code"] == "not_found"
        assert [each["name"] for each in (await call(mcp, "list_agents"))["agents"]] == ["reviewer"]
    # Whose agents they are decides who may let others in.
    for words in (
        ("grant", "Alice", "operator", "--agent", "secret"),
        ("revoke", "Alice", "--agent", "reviewer"),
    ):
        done = await asyncio.to_thread(alice.run, "role", *words, "--json")
        assert done.returncode == 1, done.stdout
    assert (await alice.json("audit", "--agent", "reviewer"))["events"]
    assert (await asyncio.to_thread(alice.run, "audit", "--agent", "secret")).returncode == 1
