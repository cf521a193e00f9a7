"""What a caller may not know of answers in every respect like what never existed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import grpc.aio
import pytest
from hopline.relay.v1 import message_pb2 as pb
from hopline.relay.v1.message_pb2_grpc import MessageServiceStub
from hopline_client import HoplineError

from tests.opaque.hidden import FLEETING, HIDDEN, Asker
from tests.support.mesh_process import call


async def test_over_grpc_a_hidden_agent_answers_like_one_that_never_existed(asker: Asker) -> None:
    metadata = (("authorization", f"Bearer {asker.agent.token}"),)
    async with grpc.aio.insecure_channel(asker.space.mesh.endpoints["relay"]) as channel:
        stub: Any = MessageServiceStub(channel)

        async def answer(method: Any, request: Any) -> str:
            made = method(request, metadata=metadata)
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await made
            trailers = sorted((key, value) for key, value in error.value.trailing_metadata() or ())
            leaders = sorted((key, value) for key, value in await made.initial_metadata())
            told = [(key, value) for key, value in [*leaders, *trailers] if key.lower() not in FLEETING]
            return f"{error.value.code()} {error.value.details()} {told}"

        for answers in (
            lambda name: answer(stub.Ask, pb.AskRequest(agent=name, text="well?", wait_seconds=0)),
            lambda name: answer(stub.Send, pb.SendRequest(to=[name], text="well?")),
            lambda name: answer(stub.Send, pb.SendRequest(to=["friend", name], text="well?")),
        ):
            assert "StatusCode.NOT_FOUND there is no agent 'NAME'" in await asker.all_alike(answers)


async def test_over_http_a_hidden_agent_answers_like_one_that_never_existed(asker: Asker) -> None:
    headers = {
        "Authorization": f"Bearer {asker.agent.token}",
        "Accept": "application/json, text/event-stream",
    }
    async with aiohttp.ClientSession(asker.space.mesh.endpoints["gateway"], headers=headers) as http:

        async def answer(tool: str, arguments: dict[str, Any]) -> str:
            params = {"name": tool, "arguments": arguments}
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
            async with http.post("/mcp", json=body) as found:
                told = sorted(
                    (key, value) for key, value in found.headers.items() if key.lower() not in FLEETING
                )
                return f"{found.status} {told} {await found.text()}"

        for answers in (
            lambda name: answer("ask", {"agent": name, "text": "well?", "wait_seconds": 0}),
            lambda name: answer("send_message", {"agent": name, "text": "well?"}),
            lambda name: answer("send_message", {"agent": ["friend", name], "text": "well?"}),
        ):
            assert '"code":"not_found"' in await asker.all_alike(answers)


async def test_over_stdio_a_hidden_agent_answers_like_one_that_never_existed(asker: Asker) -> None:
    async with asker.space.mcp_over_stdio(asker.agent) as client:

        async def answer(name: str) -> str:
            found = await client.call_tool("ask", {"agent": name, "text": "well?", "wait_seconds": 0})
            assert found.is_error
            return found.model_dump_json()

        told = json.loads(await asker.all_alike(answer))
        listed = await call(client, "list_agents")
    assert told["structured_content"]["error"] == {
        "code": "not_found",
        "message": "there is no agent 'NAME'",
        "retryable": False,
        "details": {"agent": "NAME"},
    }
    assert [each["name"] for each in listed["agents"]] == ["friend"]


async def test_the_audit_log_alone_knows_why_an_agent_was_hidden(asker: Asker) -> None:
    client = asker.space.client(asker.agent)
    for name in HIDDEN.values():
        with pytest.raises(HoplineError, match="there is no agent"):
            await client.send(name, "well?")
    reasons: dict[str, Any] = {}
    async with asyncio.timeout(30):
        while len(reasons) < len(HIDDEN):  # they are written after the answers
            events = await asker.space.events("message.refused")
            details: list[Any] = [event.details for event in events]
            reasons = {name: each["reason"] for each in details for name in each["to"]}
    known = {name: why for why, name in HIDDEN.items() if name not in ("abroad", "nobody")}
    assert reasons == {**known, "abroad": "unknown", "nobody": "unknown"}
