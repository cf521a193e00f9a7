"""Which tools a caller is offered, and how much of a model's context they take."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hopline.registry.v1 import agent_pb2
from hopline_gateway.offers import definitions
from hopline_gateway.tools import TOOLS

from tests.gateway.builders import Rig

READS = {
    "whoami",
    "list_agents",
    "check",
    "list_threads",
    "read_thread",
    "list_agent_sessions",
    "read_session",
    "todo_list",
    "notify_list",
}
FOR_PEOPLE = [
    "whoami",
    "list_agents",
    "send_message",
    "ask",
    "check",
    "list_threads",
    "read_thread",
    "cancel",
]
FOR_RECEIVERS = ["whoami", "read_inbox", "reply", "done", "list_threads", "read_thread", "ask_owner"]
CORE = [
    "whoami",
    "list_agents",
    "send_message",
    "ask",
    "check",
    "read_inbox",
    "reply",
    "done",
    "list_threads",
    "read_thread",
    "ask_owner",
    "cancel",
    "message_agent",
    "start_subagent",
]
OF_A_CREW = [
    "start_self_subagent",
    "report_to_caller",
    "send_message_to_session",
    "list_agent_sessions",
    "read_session",
    "close_subagent",
    "todo_write",
    "todo_list",
    "todo_complete",
    "todo_remove",
    "todo_snooze",
    "notify_session_in",
    "notify_list",
    "notify_cancel",
]


async def offered(rig: Rig, token: str, mode: str) -> list[str]:
    async with rig.client(token=token, mode=mode) as client:
        return [tool.name for tool in (await client.list_tools()).tools]


async def test_a_peer_is_offered_the_core(rig: Rig, mode: str) -> None:
    assert await offered(rig, rig.token, mode) == CORE


async def test_a_lead_and_its_subagents_are_offered_the_tools_of_a_crew_as_well(rig: Rig, mode: str) -> None:
    lead = rig.registry.agent("lead")
    sub = rig.registry.agent("sub", is_subagent=True, parent_agent_id="agt_lead")
    await rig.clock.advance(0.3)
    for token in (lead, sub):
        names = await offered(rig, token, mode)
        assert names[: len(CORE)] == CORE
        assert set(OF_A_CREW) <= set(names)


async def test_an_agents_tools_setting_gives_it_a_tool_of_a_crew(rig: Rig, mode: str) -> None:
    token = rig.registry.agent("wide", tools=["ask", "read_session"])
    await rig.clock.advance(0.3)
    assert await offered(rig, token, mode) == ["ask", "read_session"]


async def test_a_peer_that_calls_a_tool_of_a_crew_is_told_whose_it_is(rig: Rig) -> None:
    async with rig.client() as client:
        result = await client.call_tool("close_subagent", {"session_id": "ses_1"})
    error = result.structured_content["error"]
    assert error["code"] == "permission_denied"
    assert "for leads and subagents" in error["message"]


async def test_a_receive_only_agent_is_offered_only_what_it_may_use(rig: Rig, mode: str) -> None:
    token = rig.registry.agent("mailbox", kind=agent_pb2.AGENT_KIND_RECEIVE_ONLY)
    await rig.clock.advance(0.3)
    assert await offered(rig, token, mode) == FOR_RECEIVERS


async def test_a_person_is_offered_what_people_do(rig: Rig, mode: str) -> None:
    assert await offered(rig, rig.registry.user(), mode) == FOR_PEOPLE


async def test_an_agents_tools_setting_narrows_its_list(rig: Rig, mode: str) -> None:
    token = rig.registry.agent("narrow", tools=["ask", "check", "no_such_tool"])
    await rig.clock.advance(0.3)
    assert await offered(rig, token, mode) == ["ask", "check"]


async def test_a_tools_setting_never_gives_a_receive_only_agent_more(rig: Rig) -> None:
    kind = agent_pb2.AGENT_KIND_RECEIVE_ONLY
    token = rig.registry.agent("mailbox", kind=kind, tools=["ask", "reply"])
    await rig.clock.advance(0.3)
    assert await offered(rig, token, "legacy") == ["reply"]


async def test_a_tool_that_is_not_offered_is_refused_with_its_reason(rig: Rig, mode: str) -> None:
    receiver = rig.registry.agent("mailbox", kind=agent_pb2.AGENT_KIND_RECEIVE_ONLY)
    narrow = rig.registry.agent("narrow", tools=["whoami"])
    await rig.clock.advance(0.3)
    arguments = {"agent": "weather", "text": "hi"}
    codes = []
    for token in (receiver, narrow):
        async with rig.client(token=token, mode=mode) as client:
            result = await client.call_tool("send_message", arguments)
            assert result.is_error
            codes.append(result.structured_content["error"]["code"])
    assert codes == ["receive_only", "permission_denied"]
    assert rig.relay.seen == []


async def test_a_person_has_no_inbox(rig: Rig) -> None:
    async with rig.client(token=rig.registry.user()) as client:
        result = await client.call_tool("read_inbox", {})
    assert result.structured_content["error"]["code"] == "permission_denied"


def wire(name: str) -> dict[str, Any]:
    [tool] = definitions([name])
    return tool.model_dump(by_alias=True, mode="json", exclude_none=True)


def test_a_peers_whole_list_stays_within_10_kilobytes() -> None:
    size = len(json.dumps([wire(name) for name in CORE], separators=(",", ":"), ensure_ascii=False).encode())
    assert size <= 10 * 1024


@pytest.mark.parametrize("name", list(TOOLS))
def test_a_definition_is_flat_closed_and_described(name: str) -> None:
    schema = wire(name)["inputSchema"]
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    for field in schema["properties"].values():
        assert field["description"]
        forms = field.get("anyOf", [field])
        for form in forms:
            if form.get("type") == "string":
                assert "maxLength" in form or form.get("format") == "uuid"
            if form.get("type") == "array":
                assert form["items"]["type"] == "string"
                assert form["maxItems"] == (100 if name == "todo_write" else 10)
    assert wire(name)["outputSchema"]["type"] == "object"
    jsonschema.Draft202012Validator.check_schema(wire(name)["outputSchema"])


@pytest.mark.parametrize("name", list(TOOLS))
def test_reads_are_annotated_as_reads(name: str) -> None:
    assert wire(name)["annotations"].get("readOnlyHint", False) is (name in READS)


def test_an_error_also_fits_every_output_schema() -> None:
    error = {"error": {"code": "not_found", "message": "x", "retryable": False, "details": {}}}
    for name in TOOLS:
        jsonschema.validate(error, wire(name)["outputSchema"])


async def test_a_modern_client_may_keep_the_list_for_itself_for_a_while(rig: Rig) -> None:
    async with rig.client(mode="2026-07-28") as client:
        listed = await client.list_tools()
    assert (listed.ttl_ms, listed.cache_scope) == (1000, "private")
