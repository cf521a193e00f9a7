"""reply_to_human: what goes to the relay, and what a lead, or a person who looks, learns of what is held."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hopline.relay.v1 import draft_pb2, message_pb2, session_pb2

from tests.gateway.builders import Rig, queued

UUID = "6f9619ff-8b86-d011-b42d-00c04fc964ff"


@pytest.fixture
async def lead(rig: Rig) -> str:
    """Return the token of an agent that leads another."""
    token = rig.registry.agent("lead")
    rig.registry.agent("sub", is_subagent=True, parent_agent_id="agt_lead")
    await rig.clock.advance(0.3)
    return token


def held(*names: str, todos: int = 0) -> draft_pb2.ReplyToHumanResponse:
    """Return that an answer is held for these agents and so many todos."""
    waited = [draft_pb2.WaitedFor(agent=message_pb2.Party(name=name, kind="agent")) for name in names]
    return draft_pb2.ReplyToHumanResponse(
        status=draft_pb2.REPLY_STATUS_HELD, waiting_on=waited, open_todos=todos
    )


async def _reply(rig: Rig, token: str, mode: str = "legacy", **arguments: Any) -> Any:
    async with rig.client(token=token, mode=mode) as client:
        return await client.call_tool("reply_to_human", {"text": "done", **arguments})


async def test_an_answer_to_a_person_goes_to_the_relay_from_the_callers_session(
    rig: Rig, lead: str, mode: str
) -> None:
    result = await _reply(rig, lead, mode, request_id=UUID)
    request = rig.relay.last.request
    assert (request.text, request.request_id) == ("done", UUID)
    assert result.structured_content == {
        "status": "sent",
        "waiting_on": [],
        "open_todos": 0,
        "message_id": "msg_said",
        "thread_id": "thr_1",
    }


async def test_an_answer_that_is_held_is_data_and_says_for_what(rig: Rig, lead: str) -> None:
    rig.relay.script["ReplyToHuman"] = lambda _: held("ann", "another agent", todos=2)
    result = await _reply(rig, lead)
    assert not result.is_error
    assert result.structured_content == {
        "status": "held",
        "waiting_on": ["ann", "another agent"],
        "open_todos": 2,
    }
    text = result.content[0].text
    assert "ann, another agent" in text
    assert "2 todos of yours are open" in text
    assert "kept as your draft" in text


async def test_leads_alone_are_offered_it(rig: Rig, lead: str) -> None:
    sub = rig.registry.agent("sub2", is_subagent=True, parent_agent_id="agt_lead")
    await rig.clock.advance(0.3)
    offered = {}
    for token in (lead, sub, rig.token):
        async with rig.client(token=token) as client:
            offered[token] = {tool.name for tool in (await client.list_tools()).tools}
    assert ["reply_to_human" in offered[token] for token in (lead, sub, rig.token)] == [True, False, False]


async def test_a_person_at_an_agents_endpoint_is_told_what_its_answer_is_held_for(rig: Rig) -> None:
    rig.registry.agent("weather")
    await rig.clock.advance(0.3)
    view = queued()
    view.status, view.held, view.open_todos = message_pb2.TURN_STATUS_RUNNING, True, 1
    view.waiting_on.add(name="ann", kind="agent")
    rig.relay.script["Prompt"] = lambda _: session_pb2.PromptResponse(turn=view)
    kind = {"Content-Type": "application/json"}
    async with rig.http(token=rig.registry.user(), **kind) as http:
        answer = await http.post("/weather/v1/sessions", content=json.dumps({"message": "go"}))
    assert answer.status_code == 202
    found = answer.json()
    assert (found["status"], found["held"]) == ("running", {"waiting_on": ["ann"], "open_todos": 1})
