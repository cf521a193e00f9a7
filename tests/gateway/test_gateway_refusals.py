"""Refusals: in words a model can act on, naming the field and its limit, and nothing of the inside."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest
from hopline_gateway.arguments import Checker
from hopline_gateway.mistakes import hint, with_hints
from hopline_gateway.tools import TOOLS
from hopline_rpc.errors import REASONS, HoplineError, invalid
from mcp.shared.exceptions import MCPError

from tests.gateway.builders import LEGACY, MODERN, Rig, call_body

SEND = {"agent": "weather", "text": "hi"}
DEEP: Any = 0
for _ in range(64):
    DEEP = [DEEP]


def refused(tool: str, arguments: dict[str, Any]) -> dict[str, str]:
    """Return the violations by field; empty when the arguments pass."""
    try:
        Checker(TOOLS[tool]).check(arguments)
    except HoplineError as error:
        return dict(error.violations)
    return {}


@pytest.mark.parametrize(
    ("tool", "arguments", "field", "says"),
    [
        ("send_message", {"text": "hi"}, "agent", "is missing"),
        ("send_message", {"agent": "weather"}, "text", "is missing"),
        ("send_message", {**SEND, "text": 7}, "text", "must be text in quotes, not the number 7"),
        ("send_message", {**SEND, "text": ""}, "text", "must not be empty"),
        ("send_message", {**SEND, "text": None}, "text", "not null"),
        ("send_message", {**SEND, "to": "x"}, "to", "unknown argument; send_message takes agent, text"),
        ("send_message", {**SEND, "thread": "t"}, "thread", "did you mean thread_id?"),
        ("send_message", {**SEND, "agent": ""}, "agent", "must not be empty"),
        ("send_message", {**SEND, "agent": []}, "agent", "must not be an empty list"),
        ("send_message", {**SEND, "agent": 7}, "agent", "must be text in quotes or a list, not the number 7"),
        ("send_message", {**SEND, "agent": {"id": 1}}, "agent", "must be text in quotes or a list"),
        ("send_message", {**SEND, "agent": ["a", 7]}, "agent[1]", "must be text in quotes, not the number 7"),
        ("send_message", {**SEND, "agent": ["a", ""]}, "agent[1]", "must not be empty"),
        ("send_message", {**SEND, "agent": ["a", "a"]}, "agent", "names one of them twice"),
        ("send_message", {**SEND, "agent": [str(n) for n in range(11)]}, "agent", "11 of them; the limit"),
        ("send_message", {**SEND, "request_id": "1"}, "request_id", "must be a UUID such as"),
        ("send_message", {**SEND, "subject": "s" * 201}, "subject", "201 characters; the limit is 200"),
        ("send_message", {**SEND, "thread_id": "msg_1"}, "thread_id", "is a message's id; a thread's id"),
        ("send_message", {**SEND, "text": "x" * 65_537}, "text", "65537 characters; the limit is 65536"),
        ("send_message", {**SEND, "text": "é" * 32_769}, "text", "65538 bytes; the limit is 65536 (64 KiB)"),
        ("send_message", {**SEND, "text": "a\0b"}, "text", "contains a NUL character (U+0000)"),
        ("send_message", {**SEND, "agent": ["a\0"]}, "agent", "contains a NUL character"),
        ("send_message", {**SEND, "payload": {"k": ["\0"]}}, "payload", "contains a NUL character"),
        ("send_message", {**SEND, "payload": {"\0": 1}}, "payload", "contains a NUL character"),
        ("send_message", {**SEND, "payload": [DEEP]}, "payload", "nested deeper than 64 levels"),
        ("ask", {**SEND, "wait_seconds": "7"}, "wait_seconds", 'must be a whole number, not the text "7"'),
        ("ask", {**SEND, "wait_seconds": 1.5}, "wait_seconds", "must be a whole number, not the number 1.5"),
        ("ask", {**SEND, "wait_seconds": True}, "wait_seconds", "not true or false"),
        ("ask", {**SEND, "wait_seconds": -1}, "wait_seconds", "must be 0 or more, not -1"),
        ("ask", {**SEND, "agent": ["a"]}, "agent", "must be text in quotes, not a list"),
        ("ask", {**SEND, "session_id": "trn_1"}, "session_id", "trn_1 is a turn's id; a session's id begins"),
        ("list_threads", {"limit": 0}, "limit", "must be 1 or more"),
        ("list_threads", {"cursor": "c" * 513}, "cursor", "the limit is 512"),
        ("whoami", {"verbose": True}, "verbose", "this tool takes no arguments"),
        ("reply", {"message_id": "thr_1", "text": "x"}, "message_id", "is a thread's id"),
        ("done", {"message_id": "m" * 65}, "message_id", "the limit is 64"),
    ],
)  # fmt: skip
def test_a_bad_argument_is_named_with_its_limit(
    tool: str, arguments: dict[str, Any], field: str, says: str
) -> None:
    found = refused(tool, arguments)
    assert says in found[field]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("send_message", {**SEND, "agent": [str(n) for n in range(10)]}),
        ("send_message", {**SEND, "agent": "a" * 200}),
        ("send_message", {**SEND, "subject": "s" * 200}),
        ("send_message", {**SEND, "text": "x" * 65_536}),
        ("send_message", {**SEND, "text": "é" * 32_768}),
        ("send_message", {**SEND, "text": "🦉" * 16_384}),
        ("send_message", {**SEND, "payload": DEEP}),
        ("send_message", {**SEND, "thread_id": "anything"}),
        ("ask", {**SEND, "wait_seconds": 0}),
        ("ask", {**SEND, "wait_seconds": 7.0}),
        ("list_threads", {"limit": 1}),
        ("list_threads", {"cursor": "c" * 512}),
        ("done", {"message_id": "m" * 64}),
    ],
)
def test_what_stands_at_a_limit_passes(tool: str, arguments: dict[str, Any]) -> None:
    assert refused(tool, arguments) == {}


def test_several_faults_are_named_at_once() -> None:
    assert set(refused("ask", {"txt": "hi", "wait_seconds": "7"})) == {"agent", "text", "txt", "wait_seconds"}


async def test_a_refusal_of_arguments_is_a_result_that_says_what_to_do(rig: Rig, mode: str) -> None:
    async with rig.client(mode=mode) as client:
        result = await client.call_tool("ask", {**SEND, "wait_seconds": "7"})
    assert result.is_error
    error = result.structured_content["error"]
    assert (error["code"], error["retryable"]) == ("invalid_argument", False)
    assert error["details"]["fields"]["wait_seconds"].startswith("must be a whole number")
    assert result.content[0].text.endswith("Correct this and call again.")
    assert rig.relay.seen == []


async def test_a_payload_at_16_kib_passes_and_one_byte_more_is_refused(rig: Rig, mode: str) -> None:
    async with rig.client(mode=mode) as client:
        at = await client.call_tool("send_message", {**SEND, "payload": "x" * 16_382})
        over = await client.call_tool("send_message", {**SEND, "payload": "x" * 16_383})
    assert not at.is_error
    assert over.is_error
    assert "payload: 16385 bytes of JSON; the limit is 16384" in over.content[0].text


async def test_a_number_that_json_cannot_write_is_refused(rig: Rig, mode: str) -> None:
    body = call_body("send_message", {**SEND, "payload": "BIG"}, mode).replace('"BIG"', "1e999")
    response = await rig.post(body, mode, "send_message")
    error = response.json()["result"]["structuredContent"]["error"]
    assert error["code"] == "invalid_argument"
    assert "payload" in error["message"]


@pytest.mark.parametrize("arguments", [{}, {"turn_id": "trn_1", "session_id": "ses_1"}])
@pytest.mark.parametrize("tool", ["check", "cancel"])
async def test_a_turn_is_named_in_exactly_one_way(rig: Rig, tool: str, arguments: dict[str, str]) -> None:
    async with rig.client() as client:
        result = await client.call_tool(tool, arguments)
    assert result.structured_content["error"]["code"] == "invalid_argument"
    assert "turn_id, session_id" in result.content[0].text


async def test_every_code_of_the_mesh_reaches_the_model(rig: Rig, mode: str) -> None:
    async with rig.client(mode=mode) as client:
        for code in sorted(REASONS):
            rig.relay.script["Send"] = functools.partial(refuse_with, code)
            check_refusal(code, await client.call_tool("send_message", SEND))


def refuse_with(code: str, _: Any) -> None:
    raise HoplineError(code, "too many agents in a row", details={"limit": 4}, retry_after=2.5)


def check_refusal(code: str, result: Any) -> None:
    assert result.is_error
    error = result.structured_content["error"]
    assert error["code"] == code
    assert error["message"] == "too many agents in a row"
    assert error["retryable"] is REASONS[code].retryable
    assert error["details"]["limit"] == 4
    assert error["details"]["retry_after_seconds"] == 2.5
    assert f"{code}: too many agents in a row." in result.content[0].text
    assert "Possible again in 3 s." in result.content[0].text


@pytest.mark.parametrize(("tool", "rpc", "arguments"), [
    ("send_message", "Send", SEND),
    ("ask", "Ask", SEND),
    ("reply", "Reply", {"message_id": "msg_1", "text": "x"}),
])  # fmt: skip
async def test_a_call_with_unknown_outcome_says_how_to_repeat_it_safely(
    rig: Rig, tool: str, rpc: str, arguments: dict[str, str]
) -> None:
    def refuse(_: Any) -> None:
        raise HoplineError("unavailable", "the store does not answer")

    rig.relay.script[rpc] = refuse
    async with rig.client() as client:
        result = await client.call_tool(tool, arguments)
    request_id = rig.relay.last.request.request_id
    assert result.structured_content["error"]["details"]["request_id"] == request_id
    assert f"Repeat it with request_id {request_id}" in result.content[0].text


async def test_what_breaks_inside_shows_an_id_and_nothing_else(
    rig: Rig, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("secret of the inside")

    monkeypatch.setattr("hopline_gateway.shapes.delivery", broken)
    async with rig.client(mode=mode) as client:
        result = await client.call_tool("send_message", SEND)
    assert result.structured_content["error"]["code"] == "internal"
    assert "secret" not in result.model_dump_json()


async def test_a_broken_list_of_tools_shows_nothing_of_the_inside(
    rig: Rig, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("secret of the inside")

    async with rig.client(mode=mode) as client:
        monkeypatch.setattr("hopline_gateway.offers.definitions", broken)
        with pytest.raises(MCPError) as caught:
            await client.list_tools()
    assert "secret" not in str(caught.value)


async def test_an_unknown_tool_is_a_fault_of_the_protocol_that_names_the_tools(rig: Rig, mode: str) -> None:
    async with rig.client(mode=mode) as client:
        with pytest.raises(MCPError, match=r"Unknown tool 'sendmessage'; there are: whoami, list_agents"):
            await client.call_tool("sendmessage", SEND)


async def test_arguments_that_are_no_object_are_a_fault_of_the_protocol(rig: Rig, mode: str) -> None:
    response = await rig.post(call_body("whoami", ["x"], mode), mode, "whoami")
    assert response.json()["error"]["code"] == -32602
    assert "pydantic" not in response.text


MISTAKES = {
    "*": "there is no broadcast",
    "all": "there is no broadcast",
    "Everyone": "there is no broadcast",
    "alice@example.org": "is an email address",
    "@weather": "without the @",
    "user": "is a person",
    "gpt-4o": "the name of a model",
    "claude-sonnet-4-5": "the name of a model",
    "claude": "the name of a model",
    "gemini-2.5-pro": "the name of a model",
    "meta-llama/llama-3.1-70b": "the name of a model",
    "Claude Code": "the name of a program",
    "opencode": "the name of a program",
}


def test_typical_mistakes_about_a_recipient_are_recognised_by_the_name_alone() -> None:
    for name, says in MISTAKES.items():
        assert says in hint(name), name
    for name in ("weather", "opus-reviewer", "philosopher", "gptools", "allison"):
        assert not hint(name), name


async def test_a_mistake_about_a_recipient_is_named_where_nobody_was_found(rig: Rig, mode: str) -> None:
    async with rig.client(mode=mode) as client:
        for name, says in MISTAKES.items():
            for tool, agent in (("ask", name), ("send_message", ["weather", name])):
                result = await client.call_tool(tool, {"agent": agent, "text": "hi"})
                assert says in result.structured_content["error"]["message"]
                assert "list_agents" in result.content[0].text


def test_a_hint_goes_by_the_name_alone_and_only_where_nobody_was_found() -> None:
    found = HoplineError("agent_paused", "x")
    assert with_hints(found, ["all"]) is found
    missing = HoplineError("not_found", "there is no agent 'planner'")
    assert with_hints(missing, ["planner"]) is missing


async def test_an_unknown_and_a_hidden_name_answer_alike(rig: Rig, mode: str) -> None:
    texts = []
    async with rig.client(mode=mode) as client:
        for name in ("hidden", "nobody"):
            result = await client.call_tool("ask", {"agent": name, "text": "hi"})
            texts.append(json.dumps(result.model_dump(mode="json")).replace(name, "NAME"))
    assert texts[0] == texts[1]


@pytest.mark.parametrize("era", [LEGACY, MODERN])
@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\udc00\ud800"])
async def test_a_lone_surrogate_is_refused_by_name(rig: Rig, era: str, text: str) -> None:
    body = call_body("send_message", {**SEND, "text": text}, era)
    response = await rig.post(body, era, "send_message")
    result = response.json()["result"]
    assert result["isError"]
    assert "text: contains a lone surrogate" in result["content"][0]["text"]
    assert rig.relay.seen == []


@pytest.mark.parametrize("era", [LEGACY, MODERN])
async def test_a_nul_is_refused_by_name_and_a_surrogate_pair_is_not(rig: Rig, era: str) -> None:
    body = call_body("send_message", {**SEND, "text": "a\0"}, era)
    refusal = (await rig.post(body, era, "send_message")).json()["result"]
    assert "text: contains a NUL character" in refusal["content"][0]["text"]
    paired = call_body("send_message", SEND, era).replace('"hi"', '"\\ud83e\\udd89"')
    assert not (await rig.post(paired, era, "send_message")).json()["result"]["isError"]
    assert rig.relay.last.request.text == "🦉"


@pytest.mark.parametrize(
    ("tool", "arguments", "method", "field", "ours"),
    [
        ("list_threads", {"cursor": "x"}, "ListThreads", "page_token", "cursor"),
        ("send_message", SEND, "Send", "to", "agent"),
        ("send_message", SEND, "Send", "to[3]", "agent[3]"),
        ("send_message", SEND, "Send", "payload_json", "payload"),
        ("read_inbox", {}, "TakeInbox", "caller_session_id", "caller_session_id"),
    ],
)
async def test_what_a_service_refuses_is_named_as_the_tool_names_it(
    rig: Rig, mode: str, tool: str, arguments: dict[str, Any], method: str, field: str, ours: str
) -> None:
    def refuse(_: Any) -> None:
        raise invalid(field, "is wrong")

    rig.relay.script[method] = refuse
    async with rig.client(mode=mode) as client:
        result = await client.call_tool(tool, arguments)
    assert result.structured_content is not None
    error = result.structured_content["error"]
    assert error["message"] == f"{ours}: is wrong"
    assert error["details"] == {"fields": {ours: "is wrong"}}
