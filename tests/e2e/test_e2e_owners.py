"""Questions to owners over the real surfaces: MCP, the command line, workers and attached commands."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.mesh_process import MeshProcess, Space, call, until

MODES = ("legacy", "2026-07-28")


async def pending(mesh: MeshProcess, space: Space) -> dict[str, Any]:
    """Wait for the one pending question of the workspace, as its owner sees it on the command line."""

    async def one() -> Any:
        listed = await mesh.cli("escalations", "--workspace", space.name)
        return listed["escalations"][0] if listed["escalations"] else None

    found: dict[str, Any] = await until(one, "a question")
    return found


@pytest.mark.parametrize("mode", MODES)
async def test_an_agent_asks_by_mcp_and_its_owner_answers_on_the_command_line(
    mesh: MeshProcess, space: Space, mode: str
) -> None:
    (ada,) = await space.agents("ada")
    async with space.mcp_over_http(ada, mode) as client:
        asking = asyncio.create_task(call(client, "ask_owner", question="Deploy 1.2?", options=["yes", "no"]))
        asked = await pending(mesh, space)
        assert (asked["question"], asked["options"], asked["status"]) == (
            "Deploy 1.2?",
            ["yes", "no"],
            "pending",
        )
        said = await mesh.cli("answer", asked["id"], "yes", "--workspace", space.name)
        assert said["status"] == "answered"
        found = await asking
    assert (found["escalation_id"], found["status"], found["answer"]) == (asked["id"], "answered", "yes")
    assert (await mesh.cli("escalations", "--workspace", space.name))["escalations"] == []
