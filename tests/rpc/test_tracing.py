"""Traces: what gets a span, how contexts travel, what is stored and found again."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hopline_rpc import telemetry
from hopline_rpc.errors import HoplineError
from hopline_rpc.span_export import SqliteSpanExporter
from hopline_rpc.spans import Row, SpanStore, read_trace
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from tests.rpc.conftest import Wired

TRACE = "0af7651916cd43dd8448eb211c80319c"
KEPT = f"00-{TRACE}-b7ad6b7169203331-01"
DROPPED = f"00-{TRACE}-b7ad6b7169203331-00"


class Collected(SpanExporter):
    """Keeps spans in a list."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def export(self, spans: Any) -> SpanExportResult:
        self.spans.extend(spans)
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        pass

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]


Start = Callable[..., Collected]


@pytest.fixture
def tracing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    for name in ("OTEL_SDK_DISABLED", "OTEL_TRACES_SAMPLER", "OTEL_TRACES_EXPORTER", "OTEL_SERVICE_NAME"):
        monkeypatch.delenv(name, raising=False)

    def start(ratio: float = 1.0) -> Collected:
        exporter = Collected()
        telemetry.setup("test", exporter, ratio, batch=False)
        return exporter

    yield start
    running = telemetry.active()
    if running is not None:
        running.shutdown()


ECHO = "hopline.test.v1.EchoService/Echo"


async def test_a_call_over_a_socket_gets_a_server_span(wired: Wired, tracing: Start) -> None:
    spans = tracing()
    await wired.stub().Echo(wired.note())
    found = spans.named(ECHO)
    assert len(found) == (1 if wired.over == "socket" else 0)
    for span in found:
        assert span.kind is trace.SpanKind.SERVER
        assert dict(span.attributes or {}) == {
            "rpc.system.name": "grpc",
            "rpc.method": ECHO,
            "rpc.response.status_code": "OK",
        }


async def test_a_call_of_a_kept_trace_gets_a_span_that_continues_it(wired: Wired, tracing: Start) -> None:
    spans = tracing(0.0)
    with telemetry.under(KEPT):
        await wired.stub().Echo(wired.note())
    (span,) = spans.named(ECHO)
    context, parent = span.get_span_context(), span.parent
    assert context is not None
    assert parent is not None
    assert f"{context.trace_id:032x}" == TRACE
    assert f"{parent.span_id:016x}" == "b7ad6b7169203331"


async def test_a_dropped_trace_stays_dropped_on_every_hop(wired: Wired, tracing: Start) -> None:
    spans = tracing()
    seen: list[str] = []

    async def look(request: Any, context: Any) -> Any:
        seen.append(telemetry.current_traceparent())
        return request

    wired.servicer.echo = look
    with telemetry.under(DROPPED):
        await wired.stub().Echo(wired.note())
    assert spans.spans == []
    assert seen[0].startswith(f"00-{TRACE}-")
    assert seen[0].endswith("-00")


async def test_what_a_handler_calls_is_a_child_of_its_span(wired: Wired, tracing: Start) -> None:
    spans = tracing()
    stub = wired.stub()

    async def hop(request: Any, context: Any) -> Any:
        trace.get_current_span().set_attribute("hopline.turn.id", "turn_1")
        if request.count:
            await stub.Echo(wired.note())
        return request

    wired.servicer.echo = hop
    with telemetry.under(KEPT):
        await stub.Echo(wired.note(count=1))
    inner, outer = spans.named(ECHO)
    context = outer.get_span_context()
    assert inner.parent is not None
    assert context is not None
    assert inner.parent.span_id == context.span_id
    assert (outer.attributes or {})["hopline.turn.id"] == "turn_1"


async def test_a_refusal_is_no_error_of_the_server_but_an_internal_error_is(
    wired: Wired, tracing: Start
) -> None:
    spans = tracing()
    raised: list[Exception] = [HoplineError("not_found", "no such agent"), RuntimeError("secret")]

    async def fail(request: Any, context: Any) -> Any:
        raise raised.pop(0)

    wired.servicer.echo = fail
    with telemetry.under(KEPT):
        for _ in range(2):
            with pytest.raises(HoplineError):
                await wired.stub().Echo(wired.note())
    refused, broken = spans.named(ECHO)
    assert (refused.attributes or {})["rpc.response.status_code"] == "NOT_FOUND"
    assert (refused.attributes or {})["error.type"] == "not_found"
    assert refused.status.status_code is trace.StatusCode.UNSET
    assert (broken.attributes or {})["rpc.response.status_code"] == "INTERNAL"
    assert broken.status.status_code is trace.StatusCode.ERROR
    assert "secret" not in broken.to_json()


async def test_a_share_of_traces_is_kept_by_their_ids(tracing: Start) -> None:
    spans = tracing(0.25)
    for _ in range(400):
        telemetry.span_from("", "root").end()
    assert 50 < len(spans.spans) < 160


async def test_the_standard_sampler_variable_wins(tracing: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    spans = tracing(1.0)
    telemetry.span_from("", "root").end()
    telemetry.span_from(KEPT, "child").end()
    assert spans.spans == []


async def test_the_sdk_can_be_switched_off(tracing: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    spans = tracing()
    span = telemetry.span_from(KEPT, "child")
    assert telemetry.active() is None
    assert span.traceparent == KEPT
    span.end()
    assert spans.spans == []


async def test_without_anyone_to_see_them_no_spans_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_TRACES_EXPORTER"):
        monkeypatch.delenv(name, raising=False)
    assert telemetry.setup("test") is None
    assert telemetry.current_traceparent() == ""
    assert telemetry.reserve("") == ""


async def test_an_otlp_endpoint_in_the_environment_adds_its_exporter(
    tracing: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    collector = Collected()
    monkeypatch.setattr(telemetry, "_otlp_exporter", lambda: collector)
    tracing()
    telemetry.span_from("", "first").end()
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    tracing()
    telemetry.span_from("", "second").end()
    assert [span.name for span in collector.spans] == ["first"]


# --- spans of turns ------------------------------------------------------------------------------


async def test_a_turns_span_is_written_at_its_end_under_the_ids_drawn_at_its_start(tracing: Start) -> None:
    spans = tracing()
    send = telemetry.span_from("", "send", "producer")
    turn = telemetry.reserve(send.traceparent)
    child = telemetry.span_from(turn, "execute_tool")
    child.end()
    send.end()
    telemetry.record(
        turn,
        "invoke_agent planner",
        parent=send.traceparent,
        kind="consumer",
        start_ns=1_000,
        end_ns=5_000,
        attributes={"hopline.turn.id": "turn_1"},
        links=[KEPT],
        error="deadline_exceeded",
        service="relay",
    )
    sent, worked, tool = spans.named("send")[0], spans.named("invoke_agent planner")[0], spans.spans[0]
    ids = [span.get_span_context() for span in (sent, worked, tool)]
    assert len({context.trace_id for context in ids if context is not None}) == 1
    assert worked.parent is not None
    assert ids[0] is not None
    assert worked.parent.span_id == ids[0].span_id
    assert tool.parent is not None
    assert ids[1] is not None
    assert tool.parent.span_id == ids[1].span_id
    assert (worked.start_time, worked.end_time) == (1_000, 5_000)
    assert (worked.attributes or {})["error.type"] == "deadline_exceeded"
    assert telemetry.format_context(worked.links[0].context) == KEPT
    assert worked.instrumentation_scope is not None
    assert worked.instrumentation_scope.name == "hopline.relay"


async def test_a_turn_of_a_dropped_trace_is_not_written(tracing: Start) -> None:
    spans = tracing()
    telemetry.record(telemetry.reserve(DROPPED), "turn", parent=DROPPED, start_ns=1)
    telemetry.record("", "turn", start_ns=1)
    telemetry.record("nonsense", "turn", start_ns=1)
    assert spans.spans == []


async def test_a_span_ends_once(tracing: Start) -> None:
    spans = tracing()
    span = telemetry.span_from("", "once")
    span.end()
    span.end()
    assert len(spans.spans) == 1


async def test_a_span_is_current_only_within_its_block(tracing: Start) -> None:
    tracing()
    span = telemetry.span_from("", "outer")
    with span.current():
        assert telemetry.current_traceparent() == span.traceparent
        inside = asyncio.create_task(_current())
        assert await inside == span.traceparent
    assert telemetry.current_traceparent() == ""


async def _current() -> str:
    return telemetry.current_traceparent()


async def test_an_exceptions_text_does_not_get_into_a_span(tracing: Start) -> None:
    spans = tracing()
    span = telemetry.span_from("", "x")
    with span.current():
        trace.get_current_span().record_exception(RuntimeError("secret"))
    span.end()
    assert "secret" not in spans.spans[0].to_json()


# --- the header ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "00",
        b"00-" + TRACE.encode() + b"-b7ad6b7169203331-01",
        f"ff-{TRACE}-b7ad6b7169203331-01",
        f"00-{'0' * 32}-b7ad6b7169203331-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}-b7ad6b7169203331-01",
        f"00-{TRACE.upper()}-b7ad6b7169203331-01",
        f"00-{TRACE}-b7ad6b7169203331-0g",
        f"00-{TRACE}-b7ad6b7169203331-01\n",
    ],
)
def test_a_malformed_traceparent_counts_as_none(text: str | bytes | None) -> None:
    assert telemetry.parse(text) is None


def test_later_versions_of_the_header_may_say_more() -> None:
    assert telemetry.parse(f"01-{TRACE}-b7ad6b7169203331-01-more") is not None


@given(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.booleans())
def test_a_traceparent_survives_being_written_and_read(trace_id: int, span_id: int, kept: bool) -> None:
    flags = telemetry.SAMPLED if kept else telemetry.UNSAMPLED
    written = telemetry.format_context(trace.SpanContext(trace_id, span_id, False, flags))
    found = telemetry.parse(written)
    assert found is not None
    assert (found.trace_id, found.span_id, found.trace_flags.sampled) == (trace_id, span_id, kept)
    assert telemetry.is_sampled(written) is kept


# --- the local store -----------------------------------------------------------------------------


async def test_stored_spans_are_found_by_trace_and_by_what_they_are_about(
    tracing: Start, tmp_path: Path
) -> None:
    path = tmp_path / "spans.db"
    running = telemetry.setup("hopline", SqliteSpanExporter(path))
    assert running is not None
    root = telemetry.span_from("", "send", "producer", {"messaging.message.id": "msg_1"}, service="relay")
    child = telemetry.span_from(root.traceparent, "turn", "consumer", {"hopline.turn.id": "turn_1"}, [KEPT])
    child.end("internal")
    root.end(attributes={"count": 3, "names": ["a", "b"]})
    telemetry.span_from("", "another").end()
    running.shutdown()

    trace_id = root.traceparent.split("-")[1]
    for key in (trace_id, root.traceparent, "msg_1", "turn_1"):
        spans = read_trace(path, key)
        assert [span["name"] for span in spans] == ["send", "turn"]
    send, turn = spans
    assert send["attributes"] == {"messaging.message.id": "msg_1", "count": 3, "names": ["a", "b"]}
    assert (send["service"], turn["service"]) == ("relay", "hopline")
    assert (send["kind"], turn["kind"]) == ("producer", "consumer")
    assert turn["parent_id"] == send["span_id"]
    assert turn["status"] == "error"
    assert turn["links"] == [KEPT]
    assert send["start_ns"] <= turn["start_ns"] <= turn["end_ns"] <= send["end_ns"]
    assert read_trace(path, "turn_2") == []
    assert read_trace(tmp_path / "missing.db", "turn_1") == []


def test_the_store_keeps_a_bounded_number_of_spans(tmp_path: Path) -> None:
    store = SpanStore(tmp_path / "spans.db", max_spans=100)
    for number in range(30):
        rows = [
            Row(f"trace{number}", f"{item}", "", "n", "internal", "s", item, item, "unset", attributes, "[]")
            for item, attributes in enumerate([json.dumps({"hopline.turn.id": f"t{number}"})] * 20)
        ]
        store.write(rows)
    store.close()
    kept = [number for number in range(30) if read_trace(tmp_path / "spans.db", f"t{number}")]
    assert kept == list(range(30 - len(kept), 30))
    assert 5 <= len(kept) <= 10


def test_a_store_that_cannot_be_written_costs_spans_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    exporter = SqliteSpanExporter(tmp_path / "spans.db")
    exporter.shutdown()
    span = ReadableSpan("x", context=trace.SpanContext(1, 2, False))
    assert exporter.export([span]) is SpanExportResult.FAILURE
    assert "cannot be written" in caplog.text


def test_reading_a_trace_imports_only_the_standard_library() -> None:
    code = "import sys, hopline_rpc.spans; print([m for m in sys.modules if m in ('grpc', 'opentelemetry')])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
