"""The mesh dies at each point on the way of a held answer: it is given once; nobody is held for good."""

from __future__ import annotations

import pytest
from hopline.relay.v1 import session_pb2
from hopline_client import Turn

from tests.faults.conftest import Faults
from tests.support.mesh_process import Agent, Held, MeshProcess, Processes, Space, until
from tests.support.record import charges_match_the_record, threads_have_no_gaps

# The end of the child's turn, that of the lead's, the wake with the draft, and the draft itself.
POINTS = ["relay.ended", "mesh.woken", "hold.seen", "hold.admitted", "hold.sent"]


async def _crew(space: Space, draft: str) -> tuple[Agent, Held]:
    """Let a lead start a subagent when it is prompted, and say nothing but its draft."""
    lead = await space.agent("lead")
    sub = await space.agent("sub", is_subagent=True, parent_agent_id=lead.id)
    gate = Held()

    async def conduct(turn: Turn) -> str:
        if turn.cause != "prompt":
            return ""
        await turn.mesh.start_subagent("sub", "look")
        return draft

    await space.work(lead, conduct)
    await space.work(sub, gate)
    prompt = session_pb2.PromptRequest(agent="lead", text="go", wait_seconds=0)
    await space.admin.sessions.Prompt(prompt)
    await until(lambda: space.mesh.rows("SELECT 1 FROM holds"), "the held answer")
    await gate.begun()
    return lead, gate


async def _dies(mesh: MeshProcess, faults: Faults, gate: Held, point: str) -> None:
    faults.die_at(point)
    gate.go_on.set()
    await until(lambda: not mesh.up.is_running, f"the death at {point}")
    faults.no_more()
    await mesh.restart()
    owed = "SELECT 1 FROM debts WHERE state = 'open' UNION ALL SELECT 1 FROM holds"
    await until(lambda: mesh.rows(owed) == [], "the end of everything that is owed")


@pytest.mark.parametrize("point", POINTS)
async def test_an_answer_that_was_held_is_given_once_wherever_the_mesh_dies(
    started: Processes, faults: Faults, point: str
) -> None:
    mesh = MeshProcess(started, env=faults.env)
    mesh.start()
    async with mesh.space() as space:
        lead, gate = await _crew(space, "the draft")
        await _dies(mesh, faults, gate, point)
        said = "SELECT body FROM messages WHERE kind IN ('answer', 'reply') AND in_reply_to IN"
        said += " (SELECT message_id FROM debts WHERE creditor_kind = 'user')"
        assert mesh.rows(said) == [("the draft",)]
        states = "SELECT state FROM debts WHERE creditor_kind = 'user'"
        assert mesh.rows(states) == [("answered",)]
        threads_have_no_gaps(mesh)
        await charges_match_the_record(mesh, space, lead)
    assert mesh.complaints() == []


@pytest.mark.parametrize("point", ["hold.ended"])
async def test_a_prompt_that_is_never_answered_fails_once_wherever_the_mesh_dies(
    started: Processes, faults: Faults, point: str
) -> None:
    mesh = MeshProcess(started, env=faults.env)
    mesh.start()
    async with mesh.space() as space:
        _, gate = await _crew(space, "")
        await _dies(mesh, faults, gate, point)
        found = mesh.rows("SELECT state, error_code FROM debts WHERE creditor_kind = 'user'")
        assert found == [("failed", "ended_without_answer")]
        threads_have_no_gaps(mesh)
    assert mesh.complaints() == []
