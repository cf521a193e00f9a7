"""Waits: progress meanwhile, and what ends them without ending the work."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hopline.relay.v1 import message_pb2
from hopline_gateway.waits import PROGRESS_SECONDS

from tests.gateway.builders import LEGACY, Rig, call_body, completed, era_headers, owner_answered

WAITING: dict[str, tuple[str, dict[str, Any]]] = {
    "ask": ("Ask", {"agent": "weather", "text": "Oslo?"}),
    "check": ("Check", {"turn_id": "trn_1"}),
    "read_inbox": ("TakeInbox", {"wait_seconds": 50}),
    "ask_owner": ("AskOwner", {"question": "Deploy now?"}),
}
TOOLS = list(WAITING)


class Gate:
    """A scripted answer that comes when the test says so."""

    def __init__(self, answer: Any) -> None:
        self.entered = asyncio.Event()
        self.left = asyncio.Event()
        self.open = asyncio.Event()
        self.done = False
        self._answer = answer

    async def __call__(self, request: Any) -> Any:
        self.entered.set()
        try:
            await self.open.wait()
            self.done = True
        finally:
            self.left.set()
        return self._answer


def gate(rig: Rig, tool: str) -> Gate:
    answers = {
        "ask": message_pb2.AskResponse(turn=completed()),
        "check": message_pb2.CheckResponse(turn=completed()),
        "read_inbox": message_pb2.TakeInboxResponse(),
        "ask_owner": owner_answered(),
    }
    rpc, _ = WAITING[tool]
    found = Gate(answers[tool])
    rig.relay.script[rpc] = found
    return found


async def soon(event: asyncio.Event) -> None:
    await asyncio.wait_for(event.wait(), 10)


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("meta", [{}, {"progressToken": "p"}], ids=["json", "events"])
async def test_a_dropped_connection_ends_the_wait_alone(
    rig: Rig, mode: str, tool: str, meta: dict[str, str]
) -> None:
    waiting = gate(rig, tool)
    body = call_body(tool, WAITING[tool][1], mode, meta)
    async with rig.http(**era_headers(mode, tool)) as client:
        posting = asyncio.create_task(client.post("/mcp", content=body))
        await soon(waiting.entered)
        posting.cancel()
        await asyncio.wait({posting})
    await soon(waiting.left)
    assert not waiting.done
    assert [seen.method for seen in rig.relay.seen] == [WAITING[tool][0]]  # nothing was cancelled there
    assert len(rig.gateway.waits.live) == 0


@pytest.mark.parametrize("tool", TOOLS)
async def test_a_client_that_asks_for_progress_gets_it_while_it_waits(rig: Rig, mode: str, tool: str) -> None:
    waiting = gate(rig, tool)
    heard: asyncio.Queue[tuple[float, float | None, str | None]] = asyncio.Queue()

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        heard.put_nowait((progress, total, message))

    async with rig.client(mode=mode) as client:
        calling = asyncio.create_task(client.call_tool(tool, WAITING[tool][1], progress_callback=listen))
        await soon(waiting.entered)
        for step in (1, 2):
            await rig.clock.advance(PROGRESS_SECONDS)
            progress, total, text = await asyncio.wait_for(heard.get(), 10)
            assert (progress, total) == (PROGRESS_SECONDS * step, 50)
            assert text is not None
            assert text.startswith("waiting for")
        waiting.open.set()
        result = await asyncio.wait_for(calling, 10)
    assert not result.is_error


async def test_without_a_progress_token_the_answer_is_plain_json(rig: Rig, mode: str) -> None:
    response = await rig.post(call_body("ask", WAITING["ask"][1], mode), mode, "ask")
    assert response.headers["content-type"] == "application/json"


async def test_a_client_that_takes_no_event_stream_gets_json_though_it_asked_for_progress(
    rig: Rig, mode: str
) -> None:
    body = call_body("ask", WAITING["ask"][1], mode, {"progressToken": 1})
    response = await rig.post(body, mode, "ask", Accept="application/json")
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"


async def test_an_answer_over_an_event_stream_is_the_same_result(rig: Rig) -> None:
    arguments = WAITING["ask"][1]
    plain = (await rig.post(call_body("ask", arguments))).json()
    streamed = await rig.post(call_body("ask", arguments, meta={"progressToken": 1}))
    assert streamed.headers["content-type"].startswith("text/event-stream")
    data = next(line for line in streamed.text.splitlines() if line.startswith("data: "))
    structured = json.loads(data.removeprefix("data: "))["result"]["structuredContent"]
    assert structured == plain["result"]["structuredContent"]


async def test_a_tool_that_does_not_wait_never_opens_an_event_stream(rig: Rig, mode: str) -> None:
    response = await rig.post(call_body("whoami", {}, mode, {"progressToken": 1}), mode, "whoami")
    assert response.headers["content-type"] == "application/json"


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("meta", [{}, {"progressToken": "p"}], ids=["json", "events"])
async def test_a_drain_ends_waits_with_an_answer_that_says_how_to_go_on(
    rig: Rig, mode: str, tool: str, meta: dict[str, str]
) -> None:
    waiting = gate(rig, tool)
    body = call_body(tool, WAITING[tool][1], mode, meta)
    posting = asyncio.create_task(rig.post(body, mode, tool))
    await soon(waiting.entered)
    await asyncio.wait_for(rig.gateway.drain(), 10)
    response = await asyncio.wait_for(posting, 10)
    assert response.status_code == 200
    assert "the gateway is shutting down and ended the wait; the work itself goes on" in response.text
    assert not waiting.done


async def test_after_a_drain_nobody_is_served(rig: Rig) -> None:
    await rig.gateway.drain()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", int(rig.url.rpartition(":")[2]))


@pytest.mark.parametrize("tool", TOOLS)
async def test_a_revoked_token_ends_its_waits_and_nobody_elses(rig: Rig, mode: str, tool: str) -> None:
    other = rig.registry.agent("other")
    await rig.clock.advance(0.3)
    first = gate(rig, tool)
    body = call_body(tool, WAITING[tool][1], mode)
    posting = asyncio.create_task(rig.post(body, mode, tool))
    await soon(first.entered)
    second = gate(rig, tool)
    async with rig.http(other, **era_headers(mode, tool)) as client:
        unharmed = asyncio.create_task(client.post("/mcp", content=body))
        await soon(second.entered)
        await rig.registry.revoke(rig.token)
        refused = await asyncio.wait_for(posting, 10)
        second.open.set()
        kept = await asyncio.wait_for(unharmed, 10)
    assert refused.json()["result"]["structuredContent"]["error"]["code"] == "unauthenticated"
    assert not kept.json()["result"]["isError"]


async def test_a_cancelled_notification_of_a_stateless_client_disturbs_nobody(rig: Rig, mode: str) -> None:
    note = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    response = await rig.post(json.dumps(note), mode)
    assert response.status_code == 202


async def test_a_hundred_calls_at_once_all_get_their_own_answer(rig: Rig, mode: str) -> None:
    def echo(request: Any) -> message_pb2.SendResponse:
        return message_pb2.SendResponse(message_id=request.text, thread_id="thr_1")

    rig.relay.script["Send"] = echo
    async with rig.http(**era_headers(mode, "send_message")) as client:

        async def send(number: int) -> str:
            body = call_body("send_message", {"agent": "weather", "text": f"msg_{number}"}, mode)
            answer = (await client.post("/mcp", content=body)).json()
            return str(answer["result"]["structuredContent"]["message_id"])

        got = await asyncio.gather(*(send(number) for number in range(100)))
    assert got == [f"msg_{number}" for number in range(100)]


async def test_a_hundred_waits_at_once_hold_up_no_other_call(rig: Rig) -> None:
    entered: list[Any] = []
    everyone, go = asyncio.Event(), asyncio.Event()

    async def wait(request: Any) -> message_pb2.AskResponse:
        entered.append(request)
        if len(entered) == 100:
            everyone.set()
        await go.wait()
        return message_pb2.AskResponse(turn=completed(request.text))

    rig.relay.script["Ask"] = wait
    async with rig.http(**era_headers(LEGACY)) as client:

        async def ask(number: int) -> Any:
            body = call_body("ask", {"agent": "weather", "text": str(number)})
            answer = (await client.post("/mcp", content=body)).json()
            return answer["result"]["structuredContent"]["reply"]

        asking = [asyncio.create_task(ask(number)) for number in range(100)]
        await asyncio.wait_for(everyone.wait(), 30)
        assert (await rig.post(call_body("whoami", {}))).status_code == 200
        go.set()
        assert await asyncio.gather(*asking) == [str(number) for number in range(100)]


async def test_a_service_that_does_not_answer_ends_as_a_refusal(
    rig: Rig, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hopline_gateway.mesh.WAIT_MARGIN", 0.05)
    waiting = gate(rig, "check")
    body = call_body("check", {"turn_id": "trn_1", "wait_seconds": 0}, mode)
    response = await rig.post(body, mode, "check")
    error = response.json()["result"]["structuredContent"]["error"]
    assert (error["code"], error["retryable"]) == ("deadline_exceeded", True)
    assert not waiting.done
