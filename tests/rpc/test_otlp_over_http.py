"""Traces and metrics in protobuf over HTTP, where the standard variables say so."""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest
from aiohttp import web
from hopline_rpc import otel, telemetry
from hopline_rpc.clock import ManualClock
from hopline_rpc.metrics import Family, gauge
from hopline_rpc.metrics_otlp import pushing
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

_PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL"


class Collector:
    """Keeps what comes in, by its path."""

    def __init__(self) -> None:
        self.got: dict[str, bytes] = {}

    async def take(self, request: web.Request) -> web.Response:
        assert request.content_type == "application/x-protobuf"
        body = await request.read()
        packed = body[:2] == b"\x1f\x8b"
        self.got[request.path] = gzip.decompress(body) if packed else body
        return web.Response(content_type="application/x-protobuf")


@pytest.fixture
async def collector(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Collector]:
    found, app = Collector(), web.Application()
    app.router.add_post("/v1/traces", found.take)
    app.router.add_post("/v1/metrics", found.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    for name in ("OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_TRACES_SAMPLER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setenv(_PROTOCOL, "http/protobuf")
    yield found
    await runner.cleanup()


@pytest.fixture
def switched_off() -> Iterator[None]:
    yield
    running = telemetry.active()
    if running is not None:
        running.shutdown()


async def test_spans_go_over_http(collector: Collector, switched_off: None) -> None:
    running: Any = telemetry.setup("test")
    telemetry.span_from("", "invoke_agent planner").end()
    await asyncio.to_thread(running.shutdown)
    sent = ExportTraceServiceRequest.FromString(collector.got["/v1/traces"])
    names = [span.name for each in sent.resource_spans for scope in each.scope_spans for span in scope.spans]
    assert names == ["invoke_agent planner"]


async def test_metrics_go_over_http(collector: Collector) -> None:
    async def found() -> Sequence[Family]:
        return [gauge("hopline.inbox.oldest.age", "s", "How old.", 7.5)]

    out = pushing(found, {"service.name": "hopline-test"}, ManualClock())
    assert out is not None
    await out.push()
    sent = ExportMetricsServiceRequest.FromString(collector.got["/v1/metrics"])
    [metric] = sent.resource_metrics[0].scope_metrics[0].metrics
    assert (metric.name, metric.gauge.data_points[0].as_double) == ("hopline.inbox.oldest.age", 7.5)
    await out.close()


@pytest.mark.parametrize(
    ("variables", "http"),
    [
        ({}, False),
        ({_PROTOCOL: "grpc"}, False),
        ({_PROTOCOL: "http/protobuf"}, True),
        ({_PROTOCOL: "http/protobuf", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"}, False),
        ({"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/protobuf"}, False),
    ],
)
def test_a_signals_own_variable_wins(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], http: bool
) -> None:
    for name in (_PROTOCOL, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert otel.over_http("TRACES") is http


def test_a_protocol_that_is_not_spoken_is_named_in_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(_PROTOCOL, "http/json")
    with caplog.at_level(logging.WARNING, "hopline.telemetry"):
        assert otel.over_http("TRACES") is False
    assert "http/json is not spoken here (grpc, http/protobuf)" in caplog.text
