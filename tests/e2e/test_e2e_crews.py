"""A crew from a file, with commands as its workers: what they are told of themselves."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from tests.support.mesh_process import ROOT, Agent, MeshProcess, Space

EXAMPLE = ROOT / "deploy" / "examples" / "crew" / "crew.yaml"

CREW = """
crew: pair
members:
  - key: lead
    name: Boss
    lead: true
    models: [nothing like it, opus]
    soul: You are calm.
    instructions: Lead.
    thinking_level: high
  - {key: hand, name: Hand, group_only: true}
"""
TELL = 'echo "$HOPLINE_MODEL/$HOPLINE_THINKING_LEVEL"; cat "$HOPLINE_SYSTEM_FILE"'


async def test_a_worker_runs_the_model_of_its_member_else_the_default_with_its_persona(
    mesh: MeshProcess, space: Space, tmp_path: Path
) -> None:
    file = tmp_path / "crew.yaml"
    file.write_text(CREW)
    inside = ("--workspace", space.name)
    await mesh.cli("model", "add", "claude-opus-4", *inside)
    await mesh.cli("model", "add", "claude-haiku-4", "--default", *inside)
    made = await mesh.cli("crew", "apply", str(file), *inside)
    for member in made["members"]:
        await space.attach(Agent(member["id"], member["name"], "", file), "sh", "-c", TELL)
    answer = await mesh.cli("chat", "boss", "Who are you?", *inside)
    told = answer["reply"].splitlines()
    assert told[0] == "claude-opus-4/high"
    assert {"You are calm.", "Lead."} <= set(told)
    answer = await mesh.cli("ask", "hand", "And you?", *inside)
    assert answer["reply"].splitlines()[0] == "claude-haiku-4/"
    await mesh.cli("model", "default", "claude-opus-4", *inside)
    answer = await mesh.cli("ask", "hand", "And now?", *inside)
    assert answer["reply"].splitlines()[0] == "claude-opus-4/"


async def test_a_crew_of_seven_needs_a_plan_with_room_for_all_of_it(mesh: MeshProcess, space: Space) -> None:
    inside = ("--workspace", space.name)
    await mesh.cli("policy", "preset", "solo", *inside)
    for words in (("--dry-run",), ()):
        done = await asyncio.to_thread(mesh.hopline, "crew", "apply", str(EXAMPLE), "--json", *words, *inside)
        error = json.loads(done.stderr)["error"]
        assert (done.returncode, error["code"]) == (1, "limit_reached")
        assert error["details"] == {"rail": "agents", "limit": 5, "used": 0}
        assert "7 are to be made" in error["message"]
    assert (await mesh.cli("agent", "list", *inside))["agents"] == []
    await mesh.cli("policy", "preset", "entrepreneur", *inside)
    made = await mesh.cli("crew", "apply", str(EXAMPLE), *inside)
    assert made["counts"]["create"] == 7
    lead = next(each for each in made["members"] if each["lead"])
    listed = (await mesh.cli("agent", "list", *inside))["agents"]
    assert {each["parent_agent_id"] for each in listed if each["id"] != lead["id"]} == {lead["id"]}
