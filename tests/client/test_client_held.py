"""A lead through the client library: its answer is held, and says for what, over the tunnel or without."""

from __future__ import annotations

from typing import Any

import pytest
from hopline.relay.v1 import message_pb2, session_pb2
from hopline_client import HoplineError, ToHuman, Turn

from tests.support.relay_mesh import until
from tests.support.stage import Stage


async def _prompt(stage: Stage) -> Any:
    request = session_pb2.PromptRequest(agent="lead", text="go", wait_seconds=0)
    return (await stage.mesh.admin.sessions.Prompt(request)).turn


async def test_a_lead_that_answers_early_is_held_and_answers_once_its_child_has_reported(
    stage: Stage,
) -> None:
    mesh = stage.mesh
    lead = await mesh.agent("lead")
    sub = await mesh.agent("sub", is_subagent=True, parent_agent_id=lead.id)
    said: list[ToHuman] = []

    async def conduct(turn: Turn) -> str:
        if turn.cause == "prompt":
            await turn.mesh.start_subagent("sub", "look")
            said.append(await turn.reply_to_human("soon"))
            return ""
        said.append(await turn.reply_to_human(f"it is {turn.text}"))
        return "told"

    async def answers(turn: Turn) -> str:
        await until(lambda: said, "the early answer")
        return "42"

    await stage.work(lead, conduct)
    await stage.work(sub, answers)
    prompted = await _prompt(stage)
    await until(lambda: len(said) == 2, "both answers")
    assert [(each.status, each.waiting_on) for each in said] == [("held", ("sub",)), ("sent", ())]
    view = await mesh.admin.check(prompted.turn_id)
    assert (view.status, view.reply) == (message_pb2.TURN_STATUS_COMPLETED, "it is 42")


async def test_a_client_that_nobody_has_prompted_has_nobody_to_answer(stage: Stage) -> None:
    lead = await stage.mesh.agent("lead")
    async with stage.client(lead) as client:
        with pytest.raises(HoplineError, match="no person has prompted you"):
            await client.reply_to_human("to whom?")
