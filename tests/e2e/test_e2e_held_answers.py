"""Held answers over the real surfaces: the command line of the person, workers, and a kill in between."""

from __future__ import annotations

import asyncio
import subprocess
from typing import Any

from hopline_client import Turn

from tests.support.mesh_process import HOPLINE, Held, MeshProcess, Space, until


async def _crew(space: Space) -> Held:
    """Let a lead start a subagent whenever it is prompted; returns what the subagent waits for."""
    lead = await space.agent("lead")
    sub = await space.agent("sub", is_subagent=True, parent_agent_id=lead.id)
    gate = Held()

    async def conduct(turn: Turn) -> str:
        if turn.cause == "prompt":
            await turn.mesh.start_subagent("sub", "look")
            return "sub is looking into it"
        return f"sub says: {turn.messages[0].body}"

    await space.work(lead, conduct)
    await space.work(sub, gate)
    return gate


def _chat(space: Space, *words: str) -> asyncio.Task[subprocess.CompletedProcess[str]]:
    return asyncio.create_task(
        asyncio.to_thread(space.mesh.hopline, "chat", "lead", "go", "--workspace", space.name, *words)
    )


async def _held(space: Space) -> Any:
    async def one() -> Any:
        held = (await space.mesh.cli("held", "--workspace", space.name))["held"]
        return held[0] if held else None

    return await until(one, "a held answer")


async def test_a_person_who_chats_waits_for_the_answer_and_is_told_what_it_waits_for(space: Space) -> None:
    gate = await _crew(space)
    words = ("chat", "lead", "go", "--workspace", space.name, "--data", str(space.mesh.data))
    chatting = space.mesh.processes.start("chat", HOPLINE, *words)
    found = await _held(space)
    assert (found["draft"], [each["name"] for each in found["waiting_on"]]) == (
        "sub is looking into it",
        ["sub"],
    )
    shown = await asyncio.to_thread(space.mesh.hopline, "held", "--workspace", space.name)
    assert "held for reports of sub" in shown.stdout
    listed = await space.mesh.cli("sessions", "--agent", "lead", "--workspace", space.name)
    (session,) = [each for each in listed["sessions"] if each["id"] == found["session_id"]]
    assert session["held"] == {"waiting_on": ["sub"], "open_todos": 0}
    one = await asyncio.to_thread(
        space.mesh.hopline, "session", found["session_id"], "--workspace", space.name
    )
    assert "held for reports of sub" in one.stdout
    await until(
        lambda: f"hopline release {found['session_id']}" in chatting.said, "word of what is waited for"
    )
    gate.go_on.set()
    assert await chatting.ended() == 0
    assert chatting.said.endswith("sub says: look, answered at attempt 1\n")


async def test_a_person_releases_a_draft_also_after_the_mesh_was_killed(
    own_mesh: MeshProcess, own_space: Space
) -> None:
    await _crew(own_space)
    chatting = _chat(own_space, "--wait", "1", "--json")
    found = await _held(own_space)
    assert '"held"' in (await chatting).stdout
    own_mesh.kill()
    await own_mesh.restart()
    again = await _held(own_space)
    assert again == found
    words = ("release", found["session_id"], "--workspace", own_space.name)
    released = await own_mesh.cli(*words)
    assert (released["status"], released["reply"]) == ("completed", "sub is looking into it")
    assert await own_mesh.cli(*words) == released
    assert (await own_mesh.cli("held", "--workspace", own_space.name))["held"] == []


async def test_a_person_whose_mesh_goes_away_in_a_chat_is_told_how_to_look_again(
    own_mesh: MeshProcess, own_space: Space
) -> None:
    await _crew(own_space)
    words = ("chat", "lead", "go", "--workspace", own_space.name, "--data", str(own_mesh.data))
    chatting = own_mesh.processes.start("chat", HOPLINE, *words)
    found = await _held(own_space)
    await until(lambda: "hopline release" in chatting.said, "word of what is waited for")
    own_mesh.kill()
    assert await chatting.ended() != 0
    assert f"look again: hopline sessions {found['session_id']}" in chatting.said
    await own_mesh.restart()
    shown = await own_mesh.cli("sessions", found["session_id"], "--workspace", own_space.name)
    assert shown["entries"]
