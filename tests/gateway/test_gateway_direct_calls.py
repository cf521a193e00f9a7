"""Most tool calls pass by the SDK's transport: nobody may notice."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hopline_gateway import direct
from hopline_gateway.tools import TOOLS

from tests.gateway.builders import MODERN, Rig, call_body, era_headers

# A client that takes anything is served by the SDK, one that says so plainly is not.
ANYTHING = {"Accept": "*/*"}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "send_message": {
        "agent": ["weather", "reviewer"],
        "text": "Grüße \u2028 \N{SNOWMAN}",
        "payload": {"a": [1.5]},
    },
    "ask": {"agent": "weather", "text": "hi", "wait_seconds": 0},
    "check": {"turn_id": "trn_1", "wait_seconds": 0},
    "reply": {"message_id": "msg_1", "text": "done"},
    "done": {"message_id": "msg_1"},
    "read_thread": {"thread_id": "thr_1"},
    "cancel": {"turn_id": "trn_1"},
}


def normal(response: Any) -> tuple[int, str, Any]:
    """What an answer says: the order of its keys and its random fence apart."""
    text = re.sub(r"\b[0-9a-f]{16}\b", "BOUNDARY", response.text)
    kind = response.headers.get("content-type", "")
    return response.status_code, kind, json.loads(text) if text and kind == "application/json" else text


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tools that were called past the SDK."""
    found: list[str] = []
    serve = direct.DirectCalls.serve

    async def noting(self: direct.DirectCalls, tool: Any, request: Any) -> Any:
        found.append(request.params["name"])
        return await serve(self, tool, request)

    monkeypatch.setattr(direct.DirectCalls, "serve", noting)
    return found


@pytest.mark.parametrize("tool", TOOLS)
async def test_every_tool_answers_as_it_does_through_the_sdk(
    rig: Rig, mode: str, tool: str, taken: list[str]
) -> None:
    body = call_body(tool, ARGUMENTS.get(tool, {}), mode, {"progressToken": 7})
    straight = normal(await rig.post(body, mode, tool, Accept="application/json"))
    through = normal(await rig.post(call_body(tool, ARGUMENTS.get(tool, {}), mode), mode, tool, **ANYTHING))
    assert taken == [tool]
    assert straight == through
    assert straight[0] == 200


async def test_a_refusal_is_the_same_too(rig: Rig, mode: str, taken: list[str]) -> None:
    for arguments in ({"agent": "nobody", "text": "x"}, {"agent": 7}, {"nonsense": None}, {}):
        body = call_body("send_message", arguments, mode)
        straight = normal(await rig.post(body, mode, "send_message"))
        assert straight == normal(await rig.post(body, mode, "send_message", **ANYTHING))
        assert straight[2]["result"]["isError"] is True
    assert len(taken) == 4


ODD: dict[str, dict[str, Any]] = {
    "no id": {"id": ...},
    "a text as id": {"id": "seven"},
    "a large id": {"id": 2**70},
    "something besides": {"more": 1},
    "no params": {"params": ...},
    "no name": {"params": {"arguments": {}}},
    "a name that is none": {"params": {"name": ["done"], "arguments": {}}},
    "an unknown tool": {"params": {"name": "dance", "arguments": {}}},
    "a list of arguments": {"params": {"name": "done", "arguments": [1]}},
    "no arguments": {"params": {"name": "whoami"}},
    "arguments that are null": {"params": {"name": "whoami", "arguments": None}},
    "a token that is none": {"params": {"name": "whoami", "_meta": {"progressToken": {}}}},
    "a strange _meta": {"params": {"name": "whoami", "_meta": 7}},
    "more params": {"params": {"name": "whoami", "task": {"ttl": "x"}, "requestState": 7}},
    "another method": {"method": "tools/dance"},
    "a list of tools": {"method": "tools/list", "params": {}},
}


@pytest.mark.parametrize("odd", ODD)
async def test_an_odd_request_is_judged_as_it_is_by_the_sdk(rig: Rig, mode: str, odd: str) -> None:
    message = json.loads(call_body("done", {"message_id": "msg_1"}, mode)) | ODD[odd]
    kept = {key: value for key, value in message.items() if value is not ...}
    params = kept.get("params")
    if mode == MODERN and isinstance(params, dict):
        given = params.get("_meta", {})
        envelope = json.loads(call_body("", {}, mode))["params"]["_meta"]
        kept["params"] = {**params, "_meta": {**envelope, **given} if isinstance(given, dict) else given}
    tool = params.get("name") if isinstance(params, dict) else ""
    named = tool if isinstance(tool, str) else ""
    body = json.dumps(kept)
    assert normal(await rig.post(body, mode, named)) == normal(await rig.post(body, mode, named, **ANYTHING))


HEADERS: dict[str, dict[str, str]] = {
    "no content type": {"Content-Type": ""},
    "a charset": {"Content-Type": "application/json; charset=utf-8"},
    "another name": {"Mcp-Name": "whoami"},
    "another method": {"Mcp-Method": "tools/list"},
    "no revision": {"MCP-Protocol-Version": ""},
    "the other revision": {"MCP-Protocol-Version": "2025-06-18"},
    "a revision that is none": {"MCP-Protocol-Version": "1999-01-01"},
}


@pytest.mark.parametrize("odd", HEADERS)
async def test_odd_headers_are_judged_as_they_are_by_the_sdk(rig: Rig, mode: str, odd: str) -> None:
    body = call_body("done", {"message_id": "msg_1"}, mode)
    given = {**era_headers(mode, "done"), **HEADERS[odd]}
    async with rig.http() as client:
        both = [
            normal(
                await client.post(
                    "/mcp", content=body, headers={k: v for k, v in (given | each).items() if v}
                )
            )
            for each in ({}, ANYTHING)
        ]
    assert both[0] == both[1]


async def test_a_header_given_twice_is_refused_though_both_would_do(rig: Rig) -> None:
    headers = [*era_headers(MODERN, "done").items(), ("Mcp-Name", "done")]
    async with rig.http() as client:
        body = call_body("done", {"message_id": "msg_1"}, MODERN)
        response = await client.post("/mcp", content=body, headers=headers)
    assert response.status_code == 400
    assert "more than once" in response.json()["error"]["message"]
