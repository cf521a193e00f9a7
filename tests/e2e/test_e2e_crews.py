"""A crew from a file, with commands as its workers: what they are told of themselves."""

from __future__ import annotations

from pathlib import Path

from tests.support.mesh_process import Agent, MeshProcess, Space

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
