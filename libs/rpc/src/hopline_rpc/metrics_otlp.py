"""Metrics sent to a collector, when the standard `OTEL_*` variables ask for it.

`OTEL_METRICS_EXPORTER` (`otlp`, `console`, `none`), else the presence of `OTEL_EXPORTER_OTLP_ENDPOINT` or
`OTEL_EXPORTER_OTLP_METRICS_ENDPOINT`; `OTEL_METRIC_EXPORT_INTERVAL` and `_TIMEOUT` in milliseconds. Headers,
certificates and compression are the exporter's own to read. Counts are cumulative.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from hopline_rpc.calls import detach
from hopline_rpc.clock import Clock
from hopline_rpc.metrics import Buckets, Family, Labels
from hopline_rpc.otel import disabled, exporters, over_http

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import (
        HistogramDataPoint,
        Metric,
        MetricExporter,
        MetricsData,
        NumberDataPoint,
    )

log = logging.getLogger("hopline.metrics")

_INTERVAL_MILLISECONDS: Final = 60_000
_TIMEOUT_MILLISECONDS: Final = 30_000

Gather = Callable[[], Awaitable[Sequence[Family]]]


class Pushing:
    """Sends what is measured, again and again, and once more at the end."""

    def __init__(
        self, exporters: Sequence[MetricExporter], gather: Gather, resource: Labels, clock: Clock
    ) -> None:
        self._exporters = exporters
        self._gather = gather
        self._resource = resource
        self._clock = clock
        self._since = time.time_ns()
        self._seconds = _milliseconds("OTEL_METRIC_EXPORT_INTERVAL", _INTERVAL_MILLISECONDS) / 1000
        self._timeout = _milliseconds("OTEL_METRIC_EXPORT_TIMEOUT", _TIMEOUT_MILLISECONDS)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to send."""
        self._task = detach(self._run(), name="metrics export")

    async def close(self) -> None:
        """Send once more, then stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._task = None
            await self.push()
        for exporter in self._exporters:
            await asyncio.to_thread(exporter.shutdown)

    async def push(self) -> None:
        """Send what is measured now. What cannot be sent is logged; the next time it is all there again."""
        try:
            data = _data(await self._gather(), self._resource, self._since)
            for exporter in self._exporters:
                await asyncio.to_thread(exporter.export, data, self._timeout)
        except Exception as error:
            log.warning("metrics could not be exported: %s", error)

    async def _run(self) -> None:
        while True:
            await self._clock.sleep(self._seconds)
            await self.push()


def pushing(gather: Gather, resource: Labels, clock: Clock) -> Pushing | None:
    """Return what sends metrics; None where nobody asked for it."""
    names = [] if disabled() else exporters("METRICS")
    found: list[MetricExporter] = []
    if "otlp" in names:
        found.append(_otlp())
    if "console" in names:
        from opentelemetry.sdk.metrics.export import ConsoleMetricExporter

        found.append(ConsoleMetricExporter())
    return Pushing(found, gather, resource, clock) if found else None


def _otlp() -> MetricExporter:
    if over_http("METRICS"):
        from opentelemetry.exporter.otlp.proto.http import metric_exporter as http

        return http.OTLPMetricExporter()
    from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter

    return OTLPMetricExporter()


def _data(families: Sequence[Family], labels: Labels, since: int) -> MetricsData:
    """Return everything as the SDK would."""
    from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    now = time.time_ns()
    metrics = [_metric(family, since, now) for family in families if family.points]
    scope = ScopeMetrics(InstrumentationScope("hopline"), metrics, "")
    return MetricsData([ResourceMetrics(Resource.create(dict(labels)), [scope], "")])


def _metric(family: Family, since: int, now: int) -> Metric:
    from opentelemetry.sdk.metrics.export import AggregationTemporality, Gauge, Metric, Sum
    from opentelemetry.sdk.metrics.export import Histogram as Histograms

    cumulative = AggregationTemporality.CUMULATIVE
    if family.kind == "histogram":
        buckets = [_buckets(point.labels, point.value, since, now) for point in family.points]
        data: Histograms | Sum | Gauge = Histograms(buckets, cumulative)
    elif family.kind == "counter":
        data = Sum(_numbers(family, since, now), cumulative, is_monotonic=True)
    else:
        data = Gauge(_numbers(family, since, now))
    return Metric(family.name, family.description, family.unit, data)


def _numbers(family: Family, since: int, now: int) -> list[NumberDataPoint]:
    from opentelemetry.sdk.metrics.export import NumberDataPoint

    return [
        NumberDataPoint(dict(point.labels), since, now, point.value)
        for point in family.points
        if not isinstance(point.value, Buckets)
    ]


def _buckets(labels: Labels, value: float | Buckets, since: int, now: int) -> HistogramDataPoint:
    from opentelemetry.sdk.metrics.export import HistogramDataPoint

    if not isinstance(value, Buckets):
        raise TypeError("a histogram has buckets")
    # The least and the greatest are not kept; in the protocol both may be left out.
    unknown: Any = None
    return HistogramDataPoint(
        dict(labels),
        since,
        now,
        value.count,
        value.total,
        value.counts,
        value.bounds,
        min=unknown,
        max=unknown,
    )


def _milliseconds(name: str, usual: int) -> float:
    """Read a variable of the standard; one that is no number of milliseconds is as if it were not there."""
    try:
        found = float(os.environ.get(name, "") or usual)
    except ValueError:
        log.warning("%s is no number of milliseconds; %d it is", name, usual)
        return usual
    return found if found > 0 else usual
