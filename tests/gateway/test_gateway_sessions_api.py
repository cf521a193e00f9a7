"""The sessions API: what it lists, reads and prompts, and how it refuses."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest
from hopline.relay.v1 import message_pb2, session_pb2
from hopline_gateway.body import MAX_BODY
from hopline_gateway.refusing import status_of
from hopline_rpc import telemetry
from hopline_rpc.errors import REASONS, HoplineError
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.gateway.builders import Rig, completed, running, session

PATH = "/weather/v1/sessions"
KEY = "6f1c1c2e-8d0b-4c55-9d0e-0b6f6f0a1a11"


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with running() as found:
        found.registry.agent("weather")
        found.registry.followed.clear()
        await found.clock.advance(0.3)
        await asyncio.wait_for(found.registry.followed.wait(), 5)
        yield found


async def get(rig: Rig, path: str, token: str | None = None) -> Any:
    async with rig.http(token) as client:
        return await client.get(path)


async def prompt(rig: Rig, body: Any, token: str | None = None, **headers: str) -> Any:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with rig.http(token, **{"Content-Type": "application/json", **headers}) as client:
        return await client.post(PATH, content=content)


async def test_sessions_are_listed_page_by_page(rig: Rig) -> None:
    found = (await get(rig, f"{PATH}?limit=5000&cursor=abc")).json()
    assert found["next_cursor"] == "more"
    assert found["sessions"] == [
        {
            "id": "ses_1",
            "agent": {"id": "agt_weather", "name": "weather"},
            "title": "Oslo?",
            "channel": "mcp",
            "state": "idle",
            "opened_by": {"kind": "agent", "id": "agt_me", "name": "me", "session_id": None},
            "opened": [
                {
                    "session_id": "ses_2",
                    "agent": {"id": "agt_radar", "name": "radar"},
                    "title": "From weather",
                    "state": "busy",
                },
                {
                    "session_id": None,
                    "agent": {"id": None, "name": "another agent"},
                    "title": None,
                    "state": None,
                },
            ],
            "opened_count": 7,
            "child": None,
            "live_children": 0,
            "peer_session_id": None,
            "created_at": "2025-06-15T15:06:40.000Z",
            "last_at": "2025-06-15T15:06:41.000Z",
        }
    ]
    asked = rig.relay.last.request
    assert (asked.agent, asked.page_size, asked.page_token) == ("agt_weather", 200, "abc")
    await get(rig, PATH)
    assert rig.relay.last.request.page_size == 50


async def test_a_session_comes_with_a_page_of_its_transcript(rig: Rig) -> None:
    found = (await get(rig, f"{PATH}/ses_1?limit=3")).json()
    assert found["session"]["id"] == "ses_1"
    assert found["next_cursor"] == "more"
    [line] = found["transcript"]
    assert (line["kind"], line["text"]) == ("prompt", "Oslo?")
    assert line["from"]["display"] == "me (for Alice)"
    assert rig.relay.last.request.page_size == 3


async def test_a_session_of_another_agent_is_not_found_under_this_one(rig: Rig) -> None:
    other = session()
    other.agent.id = "agt_other"
    rig.relay.script["GetSession"] = lambda _: session_pb2.GetSessionResponse(session=other)
    elsewhere = await get(rig, f"{PATH}/ses_1")

    def never(request: Any) -> Any:
        text = f"there is no session {request.session_id!r}"
        raise HoplineError("not_found", text, details={"session_id": request.session_id})

    rig.relay.script["GetSession"] = never
    missing = await get(rig, f"{PATH}/ses_1")
    assert elsewhere.status_code == missing.status_code == 404
    assert elsewhere.json() == missing.json()


@pytest.mark.parametrize("query", ["limit=0", "limit=x", "limit=-1", "limit=²", "page=2", "limit=1&offset=2"])
async def test_a_page_that_is_none_is_refused_by_name(rig: Rig, query: str) -> None:
    answer = await get(rig, f"{PATH}?{query}")
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "invalid_argument"
    assert any(name in answer.json()["error"]["message"] for name in ("limit: ", "page: ", "offset: "))


async def test_what_a_path_takes_is_told_to_whoever_asks_for_something_else(rig: Rig) -> None:
    async with rig.http() as client:
        for path, methods in ((PATH, "GET, HEAD, POST"), (f"{PATH}/ses_1", "GET, HEAD")):
            answer = await client.delete(path)
            assert answer.status_code == 405
            assert ", ".join(sorted(answer.headers["Allow"].split(", "))) == methods
        assert (await client.head(PATH)).status_code == 200


async def test_an_agent_asks_and_a_person_prompts(rig: Rig) -> None:
    answer = await prompt(rig, {"message": "Oslo?", "sessionId": "ses_1", "waitSeconds": 7})
    assert answer.status_code == 200
    found = answer.json()
    assert (found["status"], found["sessionId"], found["reply"]) == ("completed", "ses_1", "sunny")
    asked = rig.relay.last
    assert (asked.method, asked.request.session_id, asked.request.wait_seconds) == ("Ask", "ses_1", 7)
    assert asked.request.own_endpoint
    await prompt(rig, {"message": "Oslo?"}, rig.registry.user())
    assert (rig.relay.last.method, rig.relay.last.request.wait_seconds) == ("Prompt", 50)
    assert rig.relay.last.request.own_endpoint


async def test_a_wait_is_fifty_seconds_at_most(rig: Rig) -> None:
    for given, seconds in ((0, 0), (50, 50), (51, 50), (10**9, 50)):
        await prompt(rig, {"message": "Oslo?", "waitSeconds": given})
        assert rig.relay.last.request.wait_seconds == seconds


async def test_a_turn_that_goes_on_is_accepted(rig: Rig) -> None:
    view = message_pb2.TurnView(status=message_pb2.TURN_STATUS_RUNNING, session_id="ses_1", turn_id="trn_1")
    rig.relay.script["Ask"] = lambda _: message_pb2.AskResponse(turn=view)
    answer = await prompt(rig, {"message": "Oslo?", "waitSeconds": 0})
    assert answer.status_code == 202
    assert answer.json()["status"] == "running"


@pytest.mark.parametrize(
    ("body", "status", "named"),
    [
        ({}, 400, "message: is missing"),
        ({"message": 7}, 400, "message: must be text in quotes"),
        ({"message": "x" * 65_537}, 400, "message: 65537 characters; the limit is 65536"),
        ({"message": "é" * 40_000}, 400, "message: 80000 bytes; the limit is 65536"),
        (
            {"message": "x", "session_id": "ses_1"},
            400,
            "session_id: unknown argument; did you mean sessionId?",
        ),
        ({"message": "x", "sessionId": "thr_1"}, 400, "sessionId: thr_1 is a thread's id"),
        ({"message": "x", "waitSeconds": -1}, 400, "waitSeconds: must be 0 or more"),
        ({"message": "x", "request_id": "7"}, 400, "request_id: must be a UUID"),
        ({"message": "a\0"}, 400, "message: contains a NUL"),
        (b'{"message": "\\ud800"}', 400, "message: contains a lone surrogate"),
        ([], 400, "must be a JSON object"),
        (b"{", 400, "not JSON"),
        (b"\xff", 400, "not UTF-8"),
        (b"[" * 200 + b"]" * 200, 400, "nested deeper"),
        (b" " * (MAX_BODY + 1), 413, "larger than"),
    ],
    ids=range(15),
)
async def test_a_body_that_will_not_do_is_refused_with_what_is_wrong(
    rig: Rig, body: Any, status: int, named: str
) -> None:
    answer = await prompt(rig, body)
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == "invalid_argument"
    assert named in answer.json()["error"]["message"]
    assert not rig.relay.seen


async def test_a_body_that_is_said_to_be_no_json_is_refused(rig: Rig) -> None:
    assert (await prompt(rig, {"message": "x"}, **{"Content-Type": "text/plain"})).status_code == 415


async def test_an_idempotency_key_is_the_request_id(rig: Rig) -> None:
    seen = []
    for headers, more in (
        ({"Idempotency-Key": KEY}, {}),
        ({"Idempotency-Key": f'"{KEY.upper()}"'}, {}),
        ({}, {"request_id": KEY}),
        ({"Idempotency-Key": KEY}, {"request_id": KEY}),
        ({"Idempotency-Key": "order 7"}, {}),
        ({"Idempotency-Key": '"order 7"'}, {}),
    ):
        assert (await prompt(rig, {"message": "x", **more}, **headers)).status_code == 200
        seen.append(rig.relay.last.request.request_id)
    assert seen[:4] == [KEY] * 4
    assert seen[4] == seen[5]
    assert UUID(seen[4]) != UUID(KEY)


@pytest.mark.parametrize("key", ["", '""', "x" * 256, "a\tb"])
async def test_an_idempotency_key_that_is_none_is_refused(rig: Rig, key: str) -> None:
    answer = await prompt(rig, {"message": "x"}, **{"Idempotency-Key": key})
    assert answer.status_code == 400
    assert "Idempotency-Key: must be" in answer.json()["error"]["message"]


async def test_a_request_id_that_differs_from_the_key_is_refused(rig: Rig) -> None:
    answer = await prompt(rig, {"message": "x", "request_id": KEY}, **{"Idempotency-Key": "order 7"})
    assert answer.status_code == 400
    assert not rig.relay.seen


def test_every_reason_has_its_status() -> None:
    found = {reason: status_of(reason) for reason in REASONS}
    assert found["not_found"] == 404
    assert found["request_id_conflict"] == found["session_closed"] == 409
    assert found["quota_exceeded"] == found["overloaded"] == 429
    assert all(400 <= status < 600 for status in found.values())


@pytest.mark.parametrize(
    ("reason", "status"),
    [("quota_exceeded", 429), ("session_closed", 409), ("depth_exceeded", 409), ("unavailable", 503)],
)
async def test_a_refusal_has_a_fitting_status_and_says_when_to_come_back(
    rig: Rig, reason: str, status: int
) -> None:
    def refuse(_: Any) -> Any:
        details = {"rail": "sent_per_day", "limit": 3, "used": 3} if status == 429 else {}
        raise HoplineError(reason, "no", details=details, retry_after=9 if status == 429 else None)

    rig.relay.script["Ask"] = refuse
    answer = await prompt(rig, {"message": "x"})
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == reason
    if status == 429:
        assert (answer.headers["Retry-After"], answer.headers["RateLimit"]) == ("9", '"sent_per_day";r=0;t=9')
    if reason == "unavailable":
        # Its outcome is not known: so it can be repeated without being done twice.
        assert UUID(answer.json()["error"]["details"]["request_id"])


async def test_a_defect_shows_nothing_of_the_inside(rig: Rig) -> None:
    def broken(_: Any) -> Any:
        raise RuntimeError("secret table")

    for rpc, path in (("ListSessions", PATH), ("GetSession", f"{PATH}/ses_1")):
        rig.relay.script[rpc] = broken
        answer = await get(rig, path)
        assert answer.status_code == 500
        assert "secret" not in answer.text


async def test_a_dropped_connection_ends_the_wait_alone(rig: Rig) -> None:
    entered, left = asyncio.Event(), asyncio.Event()

    async def answer(_: Any) -> Any:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            left.set()

    rig.relay.script["Ask"] = answer
    posting = asyncio.create_task(prompt(rig, {"message": "x"}))
    await asyncio.wait_for(entered.wait(), 10)
    posting.cancel()
    await asyncio.wait({posting})
    await asyncio.wait_for(left.wait(), 10)
    assert [seen.method for seen in rig.relay.seen] == ["Ask"]  # nothing was cancelled there


async def test_a_request_is_a_span_of_the_callers_trace_and_names_the_route_alone(rig: Rig) -> None:
    exporter = InMemorySpanExporter()
    started = telemetry.setup("test", exporter, batch=False)
    assert started is not None
    header = "00-11111111111111111111111111111111-1111111111111111-01"
    try:
        await prompt(rig, {"message": "secret words"}, traceparent=header)
        rig.relay.script["GetSession"] = lambda _: session_pb2.GetSessionResponse()
        async with rig.http(traceparent=header) as client:
            await client.get(f"{PATH}/ses_secret")
    finally:
        started.shutdown()
    spans: dict[str, Any] = {span.name: span for span in exporter.get_finished_spans()}
    posted, got = spans["POST /{slug}/v1/sessions"], spans["GET /{slug}/v1/sessions/{session_id}"]
    for span in (posted, got):
        assert f"{span.context.trace_id:032x}" == header[3:35]
        assert span.attributes["gen_ai.agent.id"] == "agt_weather"
        assert "secret" not in str(dict(span.attributes))
    assert "error.type" not in posted.attributes
    assert got.attributes["error.type"] == "not_found"
    assert rig.relay.seen[0].traceparent[3:35] == header[3:35]


async def test_a_large_body_for_nobody_leaves_the_connection_fit_for_the_next_request(rig: Rig) -> None:
    async with rig.http(**{"Content-Type": "application/json"}) as client:
        for _ in range(3):
            refused = await client.post("/nobody/v1/sessions", content=b" " * 3_000_000)
            assert refused.status_code == 404
            assert (await client.post(PATH, json={"message": "x"})).status_code == 200


async def test_a_drain_ends_the_wait_and_says_so(rig: Rig) -> None:
    entered = asyncio.Event()

    async def answer(_: Any) -> Any:
        entered.set()
        await asyncio.Event().wait()

    rig.relay.script["Ask"] = answer
    posting = asyncio.create_task(prompt(rig, {"message": "x"}))
    await asyncio.wait_for(entered.wait(), 10)
    rig.gateway.waits.end_all()
    found = await asyncio.wait_for(posting, 10)
    assert found.status_code == 503
    assert "the work itself goes on" in found.json()["error"]["message"]


async def test_the_answer_stands_as_it_was_given(rig: Rig) -> None:
    rig.relay.script["Ask"] = lambda _: message_pb2.AskResponse(turn=completed("„é\n<<<>>>"))
    assert (await prompt(rig, {"message": "x"})).json()["reply"] == "„é\n<<<>>>"
