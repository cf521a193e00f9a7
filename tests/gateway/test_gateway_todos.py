"""The tools of todos and timers: what goes to the relay, and what a model is told of what came of it."""

from __future__ import annotations

from typing import Any

import pytest
from hopline.relay.v1 import message_pb2, todo_pb2
from hopline_rpc.errors import HoplineError

from tests.gateway.builders import Rig, message

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


async def test_todos_are_noted_in_the_session_of_the_call(rig: Rig, lead: str, mode: str) -> None:
    arguments = {"texts": ["read", "write"], "request_id": UUID}
    async with rig.client(token=lead, mode=mode, headers={"Hopline-Session": "ses_7"}) as client:
        result = await client.call_tool("todo_write", arguments)
    request = rig.relay.last.request
    assert (list(request.texts), request.request_id) == (["read", "write"], UUID)
    assert request.caller_session_id == "ses_7"
    assert result.structured_content == {
        "todos": [
            {
                "id": "tdo_1",
                "text": "read",
                "state": "open",
                "created_at": "2025-06-15T15:06:40.000Z",
                "snoozed_until": None,
                "ended_at": None,
            }
        ],
        "open": 1,
        "asleep": False,
    }


async def test_a_list_pages_and_says_when_it_sleeps(rig: Rig, lead: str) -> None:
    listed = todo_pb2.TodoList(open=3, asleep=True, reason="no_progress")
    rig.relay.script["ListTodos"] = lambda _: todo_pb2.ListTodosResponse(list=listed, next_page_token="more")
    result = await _call(rig, lead, "todo_list", {"limit": 5, "cursor": "c", "all": True})
    request = rig.relay.last.request
    assert (request.page_size, request.page_token, request.all) == (5, "c", True)
    assert result.structured_content == {"todos": [], "open": 3, "asleep": True, "next_cursor": "more"}
    assert "The list sleeps (no_progress)" in result.content[0].text


@pytest.mark.parametrize(
    ("tool", "more", "state"),
    [("todo_complete", {}, "done"), ("todo_snooze", {"seconds": 60}, "snoozed"), ("todo_remove", {}, "")],
)
async def test_one_is_completed_snoozed_or_removed(
    rig: Rig, lead: str, tool: str, more: dict[str, Any], state: str
) -> None:
    result = await _call(rig, lead, tool, {"todo_id": "tdo_1", **more})
    assert rig.relay.last.request.todo_id == "tdo_1"
    assert [each["state"] for each in result.structured_content["todos"]] == ([state] if state else [])


async def test_timers_are_set_listed_and_called_off(rig: Rig, lead: str) -> None:
    arguments = {"delay_seconds": 60, "message": "green?", "request_id": UUID}
    result = await _call(rig, lead, "notify_session_in", arguments)
    request = rig.relay.last.request
    assert (request.delay_seconds, request.message, request.request_id) == (60, "green?", UUID)
    timer = {
        "id": "tmr_1",
        "message": "green?",
        "due_at": "2025-06-15T15:07:40.000Z",
        "created_at": "2025-06-15T15:06:40.000Z",
    }
    assert result.structured_content == {"timers": [timer]}
    listed = await _call(rig, lead, "notify_list", {})
    assert listed.structured_content == {"timers": [timer], "next_cursor": None}
    gone = await _call(rig, lead, "notify_cancel", {"timer_id": "tmr_1"})
    assert gone.structured_content == {"timer_id": "tmr_1"}


@pytest.mark.parametrize(
    ("tool", "arguments", "field"),
    [
        ("todo_write", {"texts": []}, "texts"),
        ("todo_write", {"texts": ["x"] * 101}, "texts"),
        ("todo_write", {"texts": ["x" * 4097]}, "texts"),
        ("todo_write", {"texts": ["a\0b"]}, "texts"),
        ("todo_snooze", {"todo_id": "tdo_1", "seconds": -1}, "seconds"),
        ("notify_session_in", {"delay_seconds": 9, "message": "x"}, "delay_seconds"),
        ("notify_session_in", {"delay_seconds": 31_622_401, "message": "x"}, "delay_seconds"),
        ("notify_session_in", {"delay_seconds": 10, "message": ""}, "message"),
    ],
)
async def test_an_argument_beyond_its_limit_is_named_and_nothing_is_called(
    rig: Rig, lead: str, tool: str, arguments: dict[str, Any], field: str
) -> None:
    result = await _call(rig, lead, tool, arguments)
    error = result.structured_content["error"]
    assert error["code"] == "invalid_argument"
    assert field in error["message"]
    assert rig.relay.seen == []


async def test_a_call_whose_outcome_is_unknown_says_how_to_repeat_it(rig: Rig, lead: str) -> None:
    def away(_: object) -> Any:
        raise HoplineError("unavailable", "the disk is full")

    rig.relay.script |= {"AddTodos": away, "SetTimer": away}
    for tool, arguments in (
        ("todo_write", {"texts": ["read"]}),
        ("notify_session_in", {"delay_seconds": 10, "message": "x"}),
    ):
        error = (await _call(rig, lead, tool, arguments)).structured_content["error"]
        assert len(error["details"]["request_id"]) == 36


async def test_a_note_of_the_mesh_is_shown_as_the_agents_own_words(rig: Rig, lead: str) -> None:
    note = message("1 todo is open", subject="", payload="")
    note.note = "todo"
    getattr(note, "from").kind = "mesh"
    taken = message_pb2.TakeInboxResponse(messages=[note], turn_id="trn_1", session_id="ses_inbox")
    rig.relay.script["TakeInbox"] = lambda _: taken
    result = await _call(rig, lead, "read_inbox", {})
    assert result.structured_content["messages"][0]["note"] == "todo"
    text = result.content[0].text
    assert "<<<your-note" in text
    assert "written by another agent" not in text
