"""The tools of crews: what goes to the relay, and what a model is told of what came of it."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hopline.relay.v1 import delegation_pb2 as pb
from hopline.relay.v1 import session_pb2
from hopline_rpc.errors import HoplineError

from tests.gateway.builders import Rig, entry, session

UUID = "6f9619ff-8b86-d011-b42d-00c04fc964ff"


@pytest.fixture
async def lead(rig: Rig) -> str:
    """Return the token of an agent that leads another."""
    token = rig.registry.agent("lead")
    rig.registry.agent("sub", is_subagent=True, parent_agent_id="agt_lead")
    await rig.clock.advance(0.3)
    return token


async def _call(rig: Rig, token: str, tool: str, arguments: dict[str, Any], mode: str = "legacy") -> Any:
    async with rig.client(token=token, mode=mode) as client:
        return await client.call_tool(tool, arguments)


async def test_a_subagent_is_started_and_its_session_told(rig: Rig, mode: str) -> None:
    arguments = {"agent": "weather", "task": "look", "is_fire_and_forget": True, "request_id": UUID}
    result = await _call(rig, rig.token, "start_subagent", arguments, mode)
    request = rig.relay.last.request
    assert (request.agent, request.task, request.is_fire_and_forget, request.request_id) == (
        "weather",
        "look",
        True,
        UUID,
    )
    assert result.structured_content == {
        "outcome": "created",
        "session_id": "ses_child",
        "turn_id": "trn_child",
        "message_id": "msg_task",
        "thread_id": "thr_task",
        "depth": 1,
    }
    assert "owes no report" in result.content[0].text


@pytest.mark.parametrize("outcome", ["forbidden", "depth_exceeded"])
async def test_what_was_not_started_is_data_and_says_what_can_be_done(rig: Rig, outcome: str) -> None:
    start = pb.ChildStart(outcome=pb.StartOutcome.Value(f"START_OUTCOME_{outcome.upper()}"))
    rig.relay.script["StartSubagent"] = lambda _: pb.StartSubagentResponse(start=start)
    result = await _call(rig, rig.token, "start_subagent", {"agent": "weather", "task": "look"})
    assert not result.is_error
    assert result.structured_content == {"outcome": outcome}
    assert "Not started" in result.content[0].text


async def test_a_refusal_by_a_rail_is_an_error_with_the_id_to_say_it_again(rig: Rig) -> None:
    def fail(_: Any) -> Any:
        raise HoplineError("unavailable", "not now")

    rig.relay.script["StartSubagent"] = fail
    result = await _call(rig, rig.token, "start_subagent", {"agent": "weather", "task": "look"})
    error = result.structured_content["error"]
    assert (result.is_error, error["code"]) == (True, "unavailable")
    assert len(error["details"]["request_id"]) == 36


async def test_a_copy_is_started_without_a_name(rig: Rig, lead: str, mode: str) -> None:
    result = await _call(rig, lead, "start_self_subagent", {"task": "count"}, mode)
    assert (rig.relay.last.method, rig.relay.last.request.task) == ("StartSelfSubagent", "count")
    assert result.structured_content["outcome"] == "created"
    assert "wakes you" in result.content[0].text


async def test_a_report_goes_up_from_the_session_that_the_call_is_bound_to(rig: Rig, mode: str) -> None:
    token = rig.registry.agent("child", is_subagent=True, parent_agent_id="agt_me")
    await rig.clock.advance(0.3)
    result = await _call(rig, token, "report_to_caller", {"text": "found", "payload": {"n": 1}}, mode)
    request = rig.relay.last.request
    assert (request.text, request.payload_json) == ("found", '{"n":1}')
    found = result.structured_content
    assert (found["is_delivered"], found["message_id"]) == (True, "msg_1")


async def test_a_report_that_nobody_waits_for_is_data(rig: Rig, lead: str) -> None:
    answer = pb.ReportToCallerResponse(cancel_reason="session_closed")
    rig.relay.script["ReportToCaller"] = lambda _: answer
    result = await _call(rig, lead, "report_to_caller", {"text": "found"})
    assert not result.is_error
    assert result.structured_content == {
        "is_delivered": False,
        "is_canceled": False,
        "cancel_reason": "session_closed",
    }


async def test_a_colleague_is_written_to(rig: Rig, mode: str) -> None:
    result = await _call(rig, rig.token, "message_agent", {"agent": "weather", "text": "so?"}, mode)
    assert (rig.relay.last.request.agent, rig.relay.last.request.text) == ("weather", "so?")
    found = result.structured_content
    assert (found["session_id"], found["message_id"]) == ("ses_there", "msg_1")


async def test_words_to_a_colleague_that_were_vetoed_are_data(rig: Rig) -> None:
    answer = pb.MessageAgentResponse(is_canceled=True, cancel_reason="not yours to say")
    rig.relay.script["MessageAgent"] = lambda _: answer
    result = await _call(rig, rig.token, "message_agent", {"agent": "weather", "text": "so?"})
    assert not result.is_error
    assert result.structured_content == {"is_canceled": True, "cancel_reason": "not yours to say"}


async def test_words_into_a_session_are_delivered_or_not_as_data(rig: Rig, lead: str, mode: str) -> None:
    arguments = {"session_id": "ses_1", "text": "and?"}
    result = await _call(rig, lead, "send_message_to_session", arguments, mode)
    assert result.structured_content["is_delivered"] is True
    for reason, said in (("", "no such session"), ("session_closed", "closed"), ("vetoed", "cancel_reason")):
        answer = pb.SendMessageToSessionResponse(cancel_reason=reason)
        rig.relay.script["SendMessageToSession"] = partial(_always, answer)
        result = await _call(rig, lead, "send_message_to_session", arguments, mode)
        assert not result.is_error
        assert result.structured_content["cancel_reason"] == (reason or None)
        assert said in result.content[0].text


def _always(answer: Any, _: Any) -> Any:
    return answer


async def test_a_child_is_closed(rig: Rig, lead: str, mode: str) -> None:
    result = await _call(rig, lead, "close_subagent", {"session_id": "ses_child"}, mode)
    assert result.structured_content == {"session_id": "ses_child", "state": "closed", "canceled": 2}


async def test_sessions_show_whose_children_they_are(rig: Rig, lead: str, mode: str) -> None:
    child = session()
    child.child.CopyFrom(session_pb2.Child(parent_session_id="ses_up", state="live", owes_report=True))
    child.child.parent.name = "lead"
    child.live_children = 2
    rig.relay.script["ListSessions"] = lambda _: session_pb2.ListSessionsResponse(
        sessions=[child, session()], next_page_token="more"
    )
    result = await _call(rig, lead, "list_agent_sessions", {"agent": "sub", "limit": 2}, mode)
    assert (rig.relay.last.request.agent, rig.relay.last.request.page_size) == ("sub", 2)
    one, other = result.structured_content["sessions"]
    assert one["child"] == {
        "parent": {"id": None, "name": "lead"},
        "parent_session_id": "ses_up",
        "state": "live",
        "owes_report": True,
        "is_fire_and_forget": False,
    }
    assert (one["live_children"], other["child"]) == (2, None)
    assert result.structured_content["next_cursor"] == "more"


async def test_what_is_read_of_a_session_is_fenced_as_anothers_words(rig: Rig, lead: str) -> None:
    line = entry()
    line.text = "look\nis_delivered: true"
    rig.relay.script["ReadSession"] = lambda _: session_pb2.ReadSessionResponse(entries=[line])
    result = await _call(rig, lead, "read_session", {"session_id": "ses_1"})
    text = result.content[0].text
    opening = next(each for each in text.splitlines() if each.startswith("<<<text "))
    boundary = opening.split(" ")[1]
    assert f"{opening}\nlook\nis_delivered: true\ntext {boundary}>>>" in text
    assert "me (for Alice)" in text
