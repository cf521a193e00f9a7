"""Traces as a collector gets them, over OTLP and gRPC, from a mesh of four processes."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest
from hopline_client import Turn

from tests.observe.collector import Collector, Got, collecting
from tests.support.mesh_process import Held, Processes, call, shout, until
from tests.support.served_mesh import ServedMesh

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"
CONTEXT = f"00-{TRACE}-{CALLER}-01"
DROPPED = f"00-{TRACE[::-1]}-{CALLER}-00"
ASK = "hopline.relay.v1.MessageService/Ask"
ADMIT = "hopline.quota.v1.AdmissionService/Admit"
SERVER, CLIENT, CONSUMER = 2, 3, 5


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    async with collecting() as found:
        yield found


@pytest.fixture
async def served(started: Processes, collector: Collector) -> ServedMesh:
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.address, "OTEL_METRICS_EXPORTER": "none"}
    mesh = ServedMesh(started, env=env)
    await asyncio.to_thread(mesh.start)
    return mesh


def line(spans: list[Got], innermost: Got) -> list[Got]:
    """Return a span and those around it, the outermost first."""
    by_id = {span.id: span for span in spans}
    found = [innermost]
    while (parent := by_id.get(found[-1].parent)) is not None:
        found.append(parent)
    return found[::-1]


async def gathered(collector: Collector, *names: str) -> list[Got]:
    """Return the spans of the trace once these are among them; they come in batches."""
    await until(lambda: set(names) <= {span.name for span in collector.of(TRACE)}, f"spans {names}")
    return collector.of(TRACE)


async def test_a_delegation_is_one_trace_through_every_process_also_across_a_restart_of_the_relay(
    served: ServedMesh, collector: Collector
) -> None:
    held = Held()

    async def pass_on(turn: Turn) -> str:
        await held(turn)
        return (await turn.mesh.ask("cid", turn.text)).text

    async with served.space() as space:
        ada, bob, cid = await space.agents("ada", "bob", "cid")
        await space.work(bob, pass_on)
        await space.work(cid, shout)
        async with space.mcp_over_http(ada, traceparent=CONTEXT) as client:
            asked = await call(client, "ask", agent="bob", text="tea?", wait_seconds=0)
            await held.begun()
            served.running["relay"].terminate()
            assert await served.running["relay"].ended() == 0
            await asyncio.to_thread(served.serve, "relay")
            await asyncio.to_thread(served.wait_until_ready)
            held.go_on.set()

            async def answer() -> str:
                result = await client.call_tool("check", {"turn_id": asked["turn_id"], "wait_seconds": 20})
                told = result.structured_content or {}
                return str(told.get("reply") or "")

            assert await until(answer, "the answer") == "TEA?"
    await until(lambda: [span.name for span in collector.of(TRACE)].count(ADMIT) >= 4, "both admissions")
    spans = await gathered(
        collector, "tools/call ask", "invoke_agent bob", "invoke_agent cid", "tools/call check"
    )
    innermost = next(span for span in spans if span.name == "invoke_agent cid")
    way = line(spans, innermost)
    assert [(span.process, span.name, span.kind) for span in way] == [
        ("hopline-gateway", "tools/call ask", SERVER),
        ("hopline-relay", ASK, SERVER),
        ("hopline-relay", "invoke_agent bob", CONSUMER),
        ("hopline-relay", ASK, SERVER),
        ("hopline-relay", "invoke_agent cid", CONSUMER),
    ]
    assert way[0].parent == CALLER
    assert [span.attributes["hopline.depth"] for span in way if span.kind == CONSUMER] == [1, 2]
    charged = [line(spans, span) for span in spans if (span.process, span.name) == ("hopline-quota", ADMIT)]
    assert sorted(way[-3].id for way in charged) == sorted((way[1].id, way[3].id))
    assert [(span.process, span.kind) for span in charged[0][-2:]] == [
        ("hopline-relay", CLIENT),
        ("hopline-quota", SERVER),
    ]
    assert not [span for span in spans if span.failed]
    assert served.complaints() == []


async def test_refusals_failures_and_retries_are_seen_as_such(
    served: ServedMesh, collector: Collector
) -> None:
    async def fails(turn: Turn) -> str:
        raise RuntimeError("its own affair")

    async with served.space() as space:
        ada, _, cid = await space.agents("ada", "bob", "cid")
        await space.work(cid, fails)
        async with space.mcp_over_http(ada, traceparent=CONTEXT) as client:
            await client.call_tool("send_message", {"agent": "nobody", "text": "x"})
            same = {"agent": "bob", "text": "again", "request_id": str(uuid.uuid4()), "wait_seconds": 0}
            for _ in range(2):
                await call(client, "ask", **same)
            await client.call_tool("ask", {"agent": "cid", "text": "do"})
    spans = await gathered(collector, "tools/call send_message", "invoke_agent cid", "tools/call ask")

    async def both() -> list[Got]:
        found = [span for span in collector.of(TRACE) if span.name == ASK]
        return found if len(found) == 3 else []

    asks = await until(both, "three asks")
    refused = next(span for span in spans if span.name == "tools/call send_message")
    assert (refused.failed, refused.attributes["error.type"]) == (True, "not_found")
    answered = next(span for span in spans if span.name == "hopline.relay.v1.MessageService/Send")
    assert (answered.failed, answered.attributes["error.type"]) == (
        False,
        "not_found",
    )  # no fault of the server
    assert [span.attributes.get("hopline.message.repeated", False) for span in asks] == [False, True, False]
    ran = next(span for span in spans if span.name == "invoke_agent cid")
    assert ran.failed
    assert ran.attributes["hopline.turn.outcome"] == "failed"
    assert not [span for span in spans if "its own affair" in str(span.attributes)]


async def test_what_its_caller_does_not_keep_is_kept_by_nobody(
    served: ServedMesh, collector: Collector
) -> None:
    async with served.space() as space:
        ada, bob = await space.agents("ada", "bob")
        await space.work(bob, shout)
        async with space.mcp_over_http(ada, traceparent=DROPPED) as client:
            await call(client, "ask", agent="bob", text="tea?")
        async with space.mcp_over_http(ada, traceparent=CONTEXT) as client:
            await call(client, "ask", agent="bob", text="tea?")
    await gathered(collector, "tools/call ask", "invoke_agent bob")
    assert collector.of(TRACE[::-1]) == []
