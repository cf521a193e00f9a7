"""Traces: where the context comes from, what spans say, and what the services get."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hopline_rpc import telemetry
from hopline_rpc.errors import HoplineError
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.gateway.builders import Rig, call_body

HEADER = "00-11111111111111111111111111111111-1111111111111111-01"
META = "00-22222222222222222222222222222222-2222222222222222-01"
UNSAMPLED = "00-33333333333333333333333333333333-3333333333333333-00"
SEND = {"agent": "weather", "text": "hi"}


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    found = InMemorySpanExporter()
    started = telemetry.setup("test", found, batch=False)
    assert started is not None
    yield found
    started.shutdown()


def ours(exporter: InMemorySpanExporter, name: str) -> ReadableSpan:
    [span] = [span for span in exporter.get_finished_spans() if span.name == name]
    return span


def trace_of(span: ReadableSpan) -> str:
    return f"{span.context.trace_id:032x}"


async def test_a_context_in_meta_wins_over_the_header(
    rig: Rig, mode: str, exporter: InMemorySpanExporter
) -> None:
    body = call_body("send_message", SEND, mode, {"traceparent": META})
    await rig.post(body, mode, "send_message", traceparent=HEADER)
    span = ours(exporter, "tools/call send_message")
    assert trace_of(span) == META[3:35]
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == META[36:52]
    got = rig.relay.last.traceparent
    assert got[3:35] == META[3:35]
    assert got[36:52] == f"{span.context.span_id:016x}" or got[36:52] != META[36:52]


@pytest.mark.parametrize("meta", [{}, {"traceparent": "nonsense"}, {"traceparent": 7}])
async def test_the_header_counts_where_meta_says_nothing(
    rig: Rig, mode: str, exporter: InMemorySpanExporter, meta: dict[str, Any]
) -> None:
    await rig.post(call_body("send_message", SEND, mode, meta), mode, "send_message", traceparent=HEADER)
    assert trace_of(ours(exporter, "tools/call send_message")) == HEADER[3:35]
    assert rig.relay.last.traceparent[3:35] == HEADER[3:35]


async def test_without_a_context_a_trace_begins_here(rig: Rig, mode: str, exporter: Any) -> None:
    await rig.post(call_body("send_message", SEND, mode), mode, "send_message")
    span = ours(exporter, "tools/call send_message")
    assert span.parent is None
    assert rig.relay.last.traceparent[3:35] == trace_of(span)


async def test_a_context_travels_on_though_nobody_records_it(rig: Rig, mode: str) -> None:
    await rig.post(call_body("send_message", SEND, mode), mode, "send_message", traceparent=UNSAMPLED)
    assert rig.relay.last.traceparent == UNSAMPLED


async def test_a_span_names_the_tool_and_the_ids_but_no_text(rig: Rig, mode: str, exporter: Any) -> None:
    arguments = {"agent": "weather", "text": "very private"}
    await rig.post(call_body("send_message", arguments, mode), mode, "send_message")
    span = ours(exporter, "tools/call send_message")
    assert span.kind.name == "SERVER"
    attributes = dict(span.attributes or {})
    assert attributes["mcp.method.name"] == "tools/call"
    assert attributes["gen_ai.operation.name"] == "execute_tool"
    assert attributes["gen_ai.tool.name"] == "send_message"
    assert attributes["hopline.message.id"] == "msg_1"
    assert attributes["hopline.thread.id"] == "thr_1"
    assert "private" not in str(attributes)


async def test_a_refusal_marks_the_span_with_its_code(rig: Rig, mode: str, exporter: Any) -> None:
    def refuse(_: Any) -> None:
        raise HoplineError("depth_exceeded", "too many agents in a row")

    rig.relay.script["Send"] = refuse
    await rig.post(call_body("send_message", SEND, mode), mode, "send_message")
    span = ours(exporter, "tools/call send_message")
    assert dict(span.attributes or {})["error.type"] == "depth_exceeded"


async def test_a_made_up_tool_does_not_get_into_a_spans_name(rig: Rig, exporter: Any) -> None:
    await rig.post(call_body("x" * 1000, {}))
    span = ours(exporter, "tools/call")
    assert dict(span.attributes or {})["error.type"] == "-32602"
