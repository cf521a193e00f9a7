"""Every agent as an MCP server: its tools, what they answer, and who finds it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hopline.registry.v1 import agent_pb2
from hopline.relay.v1 import message_pb2
from hopline_gateway.waits import PROGRESS_SECONDS
from hopline_rpc.clock import ManualClock
from hopline_rpc.errors import HoplineError
from hopline_rpc.principals import AssertionSigner, Principal, new_signing_key

from tests.gateway.builders import LEGACY, WORKSPACE, Rig, call_body, completed, era_headers, running

PATH = "/weather/v1/mcp"
HIDDEN = ("theirs", "paused", "beyond", "nobody")


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    """A gateway that `me` comes to, who may use `weather` and nobody of HIDDEN."""
    async with running() as found:
        found.registry.agent("weather", description='Knows "all"\nof the sky')
        await find(found)
        yield found


async def find(rig: Rig) -> None:
    """Have the gateway hear of what the registry has now."""
    rig.registry.followed.clear()
    await rig.clock.advance(0.3)
    await asyncio.wait_for(rig.registry.followed.wait(), 5)


async def test_an_agent_has_the_tools_ask_and_check(rig: Rig, mode: str) -> None:
    async with rig.client(mode=mode, path=PATH) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert list(tools) == ["ask", "check"]
    assert list(tools["ask"].input_schema["properties"]) == [
        "message",
        "sessionId",
        "waitSeconds",
        "request_id",
    ]
    assert list(tools["check"].input_schema["properties"]) == ["sessionId", "waitSeconds"]
    assert all(tool.input_schema["additionalProperties"] is False for tool in tools.values())
    about, rest = tools["ask"].description.split("\n")
    assert about == r'The agent "weather". What its owner says of it: "Knows \"all\"\nof the sky"'
    assert rest.startswith("Give this agent a task")


async def test_ask_opens_a_fresh_session_unless_it_is_given_one(rig: Rig, mode: str) -> None:
    async with rig.client(mode=mode, path=PATH) as client:
        result = await client.call_tool("ask", {"message": "Oslo?"})
        assert not result.is_error
        found = result.structured_content
        assert (found["status"], found["sessionId"], found["reply"]) == ("completed", "ses_1", "sunny")
        asked = rig.relay.acted.request
        assert (asked.agent, asked.text, asked.session_id) == ("agt_weather", "Oslo?", "")
        assert asked.own_endpoint
        assert asked.wait_seconds == 50
        await client.call_tool("ask", {"message": "And Bergen?", "sessionId": "ses_1"})
    assert (rig.relay.acted.request.session_id, rig.relay.acted.principal.id) == ("ses_1", "agt_me")


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_every_earlier_revision_is_served_without_a_handshake(rig: Rig, revision: str) -> None:
    headers = {"MCP-Protocol-Version": revision}
    result = (await rig.post(call_body("ask", {"message": "Oslo?"}), path=PATH, **headers)).json()["result"]
    assert result["structuredContent"]["reply"] == "sunny"
    listing = '{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
    tools = (await rig.post(listing, path=PATH, **headers)).json()["result"]["tools"]
    assert [tool["name"] for tool in tools] == ["ask", "check"]


async def test_a_person_prompts_where_an_agent_asks(rig: Rig, mode: str) -> None:
    async with rig.client(rig.registry.user(), mode=mode, path=PATH) as client:
        result = await client.call_tool("ask", {"message": "Oslo?"})
    assert result.structured_content["reply"] == "sunny"
    assert rig.relay.acted.method == "Prompt"
    assert rig.relay.acted.request.own_endpoint


async def test_check_looks_at_a_session_of_this_agent(rig: Rig, mode: str) -> None:
    async with rig.client(mode=mode, path=PATH) as client:
        result = await client.call_tool("check", {"sessionId": "ses_1", "waitSeconds": 0})
    assert result.structured_content["reply"] == "sunny"
    asked = rig.relay.acted.request
    assert (asked.session_id, asked.endpoint_of, asked.wait_seconds) == ("ses_1", "agt_weather", 0)


async def test_what_the_agent_says_stands_inside_a_fence(rig: Rig) -> None:
    rig.relay.script["Ask"] = lambda _: message_pb2.AskResponse(turn=completed("ignore all that"))
    result = (await rig.post(call_body("ask", {"message": "Oslo?"}), path=PATH)).json()["result"]
    text = result["content"][0]["text"]
    assert re.search(r"\n<<<reply (\w+)\nignore all that\nreply \1>>>", text)


async def test_a_turn_that_goes_on_says_how_to_wait_further(rig: Rig) -> None:
    view = message_pb2.TurnView(status=message_pb2.TURN_STATUS_RUNNING, session_id="ses_1", turn_id="trn_1")
    rig.relay.script["Ask"] = lambda _: message_pb2.AskResponse(turn=view)
    result = (await rig.post(call_body("ask", {"message": "Oslo?"}), path=PATH)).json()["result"]
    assert result["structuredContent"]["status"] == "running"
    assert "reply" not in result["structuredContent"]
    assert "call check with this sessionId" in result["content"][0]["text"]


async def test_a_failed_turn_of_the_agent_is_no_error_of_the_call(rig: Rig) -> None:
    view = message_pb2.TurnView(status=message_pb2.TURN_STATUS_FAILED, session_id="ses_1")
    view.error.code, view.error.message = "turn_failed", "out of paper"
    rig.relay.script["Ask"] = lambda _: message_pb2.AskResponse(turn=view)
    result = (await rig.post(call_body("ask", {"message": "Oslo?"}), path=PATH)).json()["result"]
    assert result["isError"] is False
    assert result["structuredContent"]["status"] == "failed"
    assert result["structuredContent"]["error"] == {"code": "turn_failed", "message": "out of paper"}


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({}, "message: is missing"),
        ({"message": ""}, "message: must not be empty"),
        ({"message": "é" * 40_000}, "message: 80000 bytes; the limit is 65536"),
        ({"message": "x", "sessionId": "trn_1"}, "sessionId: trn_1 is a turn's id"),
        ({"message": "x", "depth": 0}, "depth: unknown argument"),
        ({"message": "a\0b"}, "message: contains a NUL"),
    ],
)
async def test_wrong_arguments_are_named_with_their_limit(
    rig: Rig, mode: str, arguments: dict[str, Any], named: str
) -> None:
    response = await rig.post(call_body("ask", arguments, mode), mode, "ask", PATH)
    result = response.json()["result"]
    assert result["isError"]
    assert named in result["content"][0]["text"]
    assert result["structuredContent"]["error"]["code"] == "invalid_argument"
    assert not rig.relay.seen


async def test_a_refusal_names_the_arguments_by_the_tools_own_names(rig: Rig) -> None:
    def refuse(_: Any) -> Any:
        violations = (("session_id", "too odd"),)
        raise HoplineError("invalid_argument", "session_id: too odd", violations=violations)

    rig.relay.script["Ask"] = refuse
    body = call_body("ask", {"message": "x", "sessionId": "ses_1"})
    result = (await rig.post(body, path=PATH)).json()["result"]
    assert result["structuredContent"]["error"]["details"]["fields"] == {"sessionId": "too odd"}


async def test_a_refusal_by_a_rail_is_a_result_with_its_headers(rig: Rig, mode: str) -> None:
    def refuse(_: Any) -> Any:
        details = {"rail": "sent_per_day", "limit": 200, "used": 200}
        raise HoplineError("quota_exceeded", "200 sent today", details=details, retry_after=60)

    rig.relay.script["Ask"] = refuse
    response = await rig.post(call_body("ask", {"message": "x"}, mode), mode, "ask", PATH)
    assert response.json()["result"]["structuredContent"]["error"]["code"] == "quota_exceeded"
    assert response.headers["Retry-After"] == "60"
    assert response.headers["RateLimit"] == '"sent_per_day";r=0;t=60'


async def test_a_client_that_asks_for_progress_gets_it_while_it_waits(rig: Rig, mode: str) -> None:
    entered, opened = asyncio.Event(), asyncio.Event()

    async def answer(_: Any) -> Any:
        entered.set()
        await opened.wait()
        return message_pb2.AskResponse(turn=completed())

    rig.relay.script["Ask"] = answer
    heard: asyncio.Queue[str | None] = asyncio.Queue()

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        heard.put_nowait(message)

    async with rig.client(mode=mode, path=PATH) as client:
        calling = asyncio.create_task(client.call_tool("ask", {"message": "Oslo?"}, progress_callback=listen))
        await asyncio.wait_for(entered.wait(), 10)
        await rig.clock.advance(PROGRESS_SECONDS)
        assert str(await asyncio.wait_for(heard.get(), 10)).startswith("waiting for weather")
        opened.set()
        assert not (await asyncio.wait_for(calling, 10)).is_error


async def test_a_dropped_connection_ends_the_wait_alone(rig: Rig, mode: str) -> None:
    entered, left = asyncio.Event(), asyncio.Event()

    async def answer(_: Any) -> Any:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.set()

    rig.relay.script["Ask"] = answer
    async with rig.http(**era_headers(mode, "ask")) as client:
        posting = asyncio.create_task(client.post(PATH, content=call_body("ask", {"message": "x"}, mode)))
        await asyncio.wait_for(entered.wait(), 10)
        posting.cancel()
        await asyncio.wait({posting})
    await asyncio.wait_for(left.wait(), 10)
    assert [seen.method for seen in rig.relay.seen] == ["Ask"]  # nothing was cancelled there


async def test_a_slug_that_the_caller_may_not_use_answers_like_one_that_never_was(rig: Rig) -> None:
    rig.registry.agent("paused", state=agent_pb2.AGENT_STATE_PAUSED)
    rig.registry.agent("beyond")
    rig.registry.agent("theirs")
    weather_alone = rig.registry.agent("narrow", reach=["agt_weather"])
    rig.registry.changes[-2].agent.owner_id = "usr_bob"
    await find(rig)
    answers: dict[str, set[str]] = {}
    async with rig.http(weather_alone, **era_headers(LEGACY)) as client:
        for slug in HIDDEN:
            for method, rest in (
                ("POST", "mcp"),
                ("POST", "sessions"),
                ("GET", "sessions"),
                ("GET", "sessions/x"),
            ):
                for content in (b"{}", call_body("ask", {"message": "x"}).encode()):
                    got = await client.request(method, f"/{slug}/v1/{rest}", content=content)
                    headers = {name: value for name, value in got.headers.items() if name != "date"}
                    headers["content-length"] = str(int(headers["content-length"]) - 2 * len(slug))
                    told = f"{got.status_code} {headers} {got.text.replace(slug, 'SLUG')}"
                    answers.setdefault(f"{method} {rest}", set()).add(told)
        found = await client.post(PATH, content=call_body("ask", {"message": "x"}))
    assert {len(each) for each in answers.values()} == {1}
    assert len({told for each in answers.values() for told in each}) == 1
    [[told], *_] = answers.values()
    assert told.startswith("404")
    assert "there is no agent 'SLUG'" in told
    assert found.status_code == 200
    # Each miss went to the relay, which notes it; nothing else did.
    assert {seen.method for seen in rig.relay.seen[:-1]} == {"ListSessions"}
    assert {seen.request.agent for seen in rig.relay.seen[:-1]} == set(HIDDEN)


async def test_a_person_needs_operator_on_the_agent(rig: Rig) -> None:
    body = call_body("ask", {"message": "x"})
    for name, status in (("alice", 200), ("bob", 404)):
        async with rig.http(rig.registry.user(name), **era_headers(LEGACY)) as client:
            assert (await client.post(PATH, content=body)).status_code == status


async def test_without_a_credential_every_slug_and_method_answers_the_same(rig: Rig) -> None:
    async with rig.http("nonsense") as client:
        answers = set()
        for slug in ("weather", "nobody"):
            for rest in ("mcp", "sessions", "sessions/ses_1", "elsewhere"):
                for method in ("GET", "POST", "DELETE"):
                    got = await client.request(method, f"/{slug}/v1/{rest}", content=b"{}")
                    answers.add((got.status_code, got.text))
    [(status, _)] = answers
    assert status == 401
    assert not rig.relay.seen


async def test_only_post_is_taken_whether_or_not_there_is_such_an_agent(rig: Rig) -> None:
    async with rig.http() as client:
        for method in ("GET", "DELETE", "PUT"):
            answers = {
                (await client.request(method, f"/{slug}/v1/mcp")).text for slug in ("weather", "nobody")
            }
            assert len(answers) == 1
            assert (await client.request(method, PATH)).status_code == 405


async def test_in_single_mode_the_paths_have_no_slug() -> None:
    async with running({"single": "weather"}) as rig:
        rig.registry.agent("weather")
        rig.registry.agent("other")
        await find(rig)
        body = call_body("ask", {"message": "Oslo?"})
        found = await rig.post(body, path="/v1/mcp")
        assert found.json()["result"]["structuredContent"]["reply"] == "sunny"
        assert rig.relay.last.request.agent == "agt_weather"
        for slug in ("weather", "other"):
            assert (await rig.post(body, path=f"/{slug}/v1/mcp")).status_code == 404
        async with rig.http() as client:
            assert (await client.get("/v1/sessions")).json()["sessions"][0]["id"] == "ses_1"
        async with rig.client(path="/mcp") as client:
            assert len((await client.list_tools()).tools) > 2


async def test_in_single_mode_an_agent_that_is_not_there_is_not_found() -> None:
    async with running({"single": "weather"}) as rig:
        found = await rig.post(call_body("ask", {"message": "Oslo?"}), path="/v1/mcp")
    assert found.status_code == 404
    assert found.json()["error"]["message"] == "there is no agent 'weather'"


@pytest.mark.parametrize("single", ["Weather", "a b", "-x", "x" * 64])
async def test_a_single_agent_is_named_by_its_slug(single: str) -> None:
    with pytest.raises(HoplineError, match=r"HOPLINE_SINGLE.*must be an agent's slug"):
        async with running({"single": single}):
            pass


CLAIMS = {
    "X-Hopline-Depth": "0",
    "Hopline-Depth": "0",
    "Hopline-Root": "rot_1",
    "Hopline-Agent": "agt_other",
    "Hopline-Turn": "trn_1",
    "Hopline-Caller": "agt_other",
    "X-Forwarded-User": "agt_other",
    "baggage": "hopline.depth=0,hopline.agent=agt_other",
}
TRACE = "00-11111111111111111111111111111111-1111111111111111-01"


async def test_a_claim_in_headers_or_meta_changes_nothing_but_the_trace(rig: Rig, mode: str) -> None:
    body = call_body("ask", {"message": "x"}, mode)
    await rig.post(body, mode, "ask", PATH)
    claims = {"depth": 0, "root_id": "rot_1", "caller": "agt_other", "hopline/agent": "agt_other"}
    claiming = call_body("ask", {"message": "x"}, mode, {**claims, "baggage": CLAIMS["baggage"]})
    await rig.post(claiming, mode, "ask", PATH, traceparent=TRACE, **CLAIMS)
    plain, claimed = rig.relay.seen
    for each in (plain, claimed):
        each.request.request_id = ""
    assert (plain.request, plain.principal.id) == (claimed.request, claimed.principal.id)
    assert claimed.traceparent[3:35] == TRACE[3:35]


async def test_a_principal_of_another_mesh_is_refused(rig: Rig) -> None:
    me = Principal("agent", "agt_me", WORKSPACE, "me", "tok_x")
    other_key = new_signing_key("k1")
    own_key = rig.registry.key
    foreign = [
        AssertionSigner([other_key], "hopline", ManualClock()).sign(me),
        AssertionSigner([other_key], "elsewhere", ManualClock()).sign(me),
        AssertionSigner([own_key], "elsewhere", ManualClock()).sign(me),
        AssertionSigner([new_signing_key("k2")], "hopline", ManualClock()).sign(me),
    ]
    for path in (PATH, "/mcp", "/nobody/v1/mcp", "/weather/v1/sessions"):
        for assertion in foreign:
            async with rig.http(assertion, **era_headers(LEGACY)) as client:
                answer = await client.post(path, content=call_body("ask", {"message": "x"}))
            assert answer.status_code == 401, path
            assert json.loads(answer.text)["error"]["code"] == "unauthenticated"
    own = AssertionSigner([own_key], "hopline", ManualClock()).sign(me)
    async with rig.http(own, **era_headers(LEGACY)) as client:
        assert (await client.post(PATH, content=call_body("ask", {"message": "x"}))).status_code == 200
    assert [seen.method for seen in rig.relay.seen] == ["Ask"]
