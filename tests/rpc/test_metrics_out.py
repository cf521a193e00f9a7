"""One way to count, two ways out: what Prometheus reads, and what a collector gets over OTLP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc.aio
import pytest
from hopline_rpc.clock import ManualClock
from hopline_rpc.metrics import Family, Kept, Measured, Point, Source, counter, gather, gauge, histogram
from hopline_rpc.metrics_otlp import Pushing, pushing
from hopline_rpc.metrics_text import expose
from hopline_rpc.stats import Histogram, RpcStats
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as pb
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as pb_grpc
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain

from tests.rpc.conftest import within

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
RESOURCE = {"service.name": "hopline-test", "service.version": "1"}


def families() -> list[Family]:
    waits = Histogram((1.0, 2.0))
    for seconds in (0.5, 1.0, 1.5, 9.0):
        waits.add(seconds)
    return [
        counter("hopline.refusals", "{message}", "What was refused.", {"not_found": 3}, "error.type"),
        gauge("hopline.inbox.oldest.age", "s", "How old.", 7.5),
        gauge("hopline.quota.used", "1", 'Used, "of" a\\limit\n.', 0.25),
        histogram("hopline.run_queue.wait", "s", "How long.", [({"kind": "a"}, waits)]),
    ]


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
def test_a_scrape_is_read_by_prometheus_in_both_of_its_formats(accept: str) -> None:
    body, content_type = expose(families(), accept, RESOURCE)
    assert content_type.startswith(accept.partition(";")[0] or "text/plain")
    read = openmetrics if accept else plain
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in read(body.decode())
        for sample in family.samples
    }
    assert samples["hopline_refusals_total", (("error_type", "not_found"),)] == 3
    assert samples["hopline_inbox_oldest_age_seconds", ()] == 7.5
    assert samples["hopline_quota_used_ratio", ()] == 0.25
    name = "hopline_run_queue_wait_seconds"
    assert [samples[f"{name}_bucket", (("kind", "a"), ("le", le))] for le in ("1.0", "2.0", "+Inf")] == [
        2,
        3,
        4,
    ]
    assert samples[f"{name}_sum", (("kind", "a"),)] == 12
    assert samples[f"{name}_count", (("kind", "a"),)] == 4
    assert ("target_info", (("service_name", "hopline-test"), ("service_version", "1"))) in samples


class Service:
    """A service that is measured, or cannot be."""

    def __init__(self, found: Sequence[Family] | Exception) -> None:
        self.found = found

    async def measure(self) -> Sequence[Family]:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


async def test_what_services_of_one_process_share_is_one_family_and_one_that_fails_is_left_out() -> None:
    def queued(name: str) -> list[Family]:
        return [Family("hopline.store.queued", "gauge", "{operation}", "", (Point({"store": name}, 1),))]

    stats = RpcStats()
    stats.method("/a.Service/Call").record(0.004, "not_found")
    stats.method("/a.Service/Never")
    measured: list[Measured] = [Service(queued("a")), Service(RuntimeError("broken")), Service(queued("b"))]
    sources = [
        Source(f"service {index}", each, stats if not index else None) for index, each in enumerate(measured)
    ]
    found = {family.name: family for family in await gather(sources)}
    assert [point.labels for point in found["hopline.store.queued"].points] == [
        {"store": "a"},
        {"store": "b"},
    ]
    [duration] = found["rpc.server.call.duration"].points
    assert duration.labels == {"rpc.system.name": "grpc", "rpc.method": "a.Service/Call"}
    assert found["hopline.rpc.failures"].points[0].labels["error.type"] == "not_found"


async def test_what_is_read_from_a_database_is_read_once_in_a_while_however_many_ask() -> None:
    clock, reads = ManualClock(), 0

    async def read() -> Sequence[Family]:
        nonlocal reads
        reads += 1
        return [gauge("x", "", "", reads)]

    kept = Kept(read, clock, seconds=5.0)
    for _ in range(3):
        assert (await kept.get())[0].points[0].value == 1
    await clock.advance(5.0)
    assert (await kept.get())[0].points[0].value == 2
    assert reads == 2


class Collector(pb_grpc.MetricsServiceServicer):
    """A collector that keeps what it gets."""

    def __init__(self) -> None:
        self.got: list[pb.ExportMetricsServiceRequest] = []

    async def Export(self, request: Any, context: Any) -> Any:
        self.got.append(request)
        return pb.ExportMetricsServiceResponse()


@pytest.fixture
async def collector(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Collector]:
    found, server = Collector(), grpc.aio.server()
    pb_grpc.add_MetricsServiceServicer_to_server(found, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    for name in ("OTEL_SDK_DISABLED", "OTEL_METRICS_EXPORTER", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "10000")
    yield found
    await server.stop(None)


def started(clock: ManualClock) -> Pushing | None:
    async def found() -> Sequence[Family]:
        return families()

    return pushing(found, RESOURCE, clock)


async def test_a_collector_gets_over_otlp_what_a_scrape_would_say(collector: Collector) -> None:
    clock = ManualClock()
    out = started(clock)
    assert out is not None
    await out.push()
    [resource] = collector.got[0].resource_metrics
    named = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert named["service.name"] == "hopline-test"
    metrics = {metric.name: metric for metric in resource.scope_metrics[0].metrics}
    refused = metrics["hopline.refusals"].sum
    assert refused.is_monotonic
    assert refused.data_points[0].attributes[0].value.string_value == "not_found"
    assert metrics["hopline.inbox.oldest.age"].unit == "s"
    [waits] = metrics["hopline.run_queue.wait"].histogram.data_points
    assert (list(waits.bucket_counts), list(waits.explicit_bounds), waits.sum) == ([2, 1, 1], [1.0, 2.0], 12)
    assert not waits.HasField("min")
    await out.close()


async def test_it_is_sent_at_each_interval_and_once_more_at_the_end(collector: Collector) -> None:
    clock = ManualClock()
    out = started(clock)
    assert out is not None
    out.start()
    await clock.advance(0)
    await clock.advance(10.0)

    async def came() -> None:
        while not collector.got:
            await clock.advance(0)

    await within(came())
    await out.close()
    assert len(collector.got) == 2


@pytest.mark.parametrize(
    "settings",
    [
        {"OTEL_SDK_DISABLED": "true"},
        {"OTEL_METRICS_EXPORTER": "none"},
        {"OTEL_METRICS_EXPORTER": "prometheus"},  # that is the port, which is there anyhow
        {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
    ],
)
async def test_nothing_is_sent_where_nobody_asked_for_it(
    collector: Collector, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str]
) -> None:
    for name, text in settings.items():
        monkeypatch.setenv(name, text)
    assert started(ManualClock()) is None


async def test_a_collector_that_is_away_costs_a_line_in_the_log(
    monkeypatch: pytest.MonkeyPatch, collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "soon")

    async def broken() -> Sequence[Family]:
        raise RuntimeError("no")

    out = pushing(broken, RESOURCE, ManualClock())
    assert out is not None
    await out.push()
    assert "metrics could not be exported: no" in caplog.text
    assert "OTEL_METRIC_EXPORT_INTERVAL is no number" in caplog.text
    await out.close()
