"""Metrics as Prometheus reads them, in its own format or OpenMetrics as the reader prefers.

Names become what the OpenTelemetry specification says of Prometheus: `rpc.server.call.duration` in `s` is
`rpc_server_call_duration_seconds`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector, CollectorRegistry

from hopline_rpc.metrics import Buckets, Family, Labels

_UNITS: Final[Mapping[str, str]] = {"s": "seconds", "By": "bytes", "1": "ratio"}
_INFINITE: Final = "+Inf"


def expose(families: Iterable[Family], accept: str, resource: Labels) -> tuple[bytes, str]:
    """Return the body of a scrape and its content type; `resource` becomes `target_info`."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected([*_info(resource), *map(_metric, families)]))
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


class _Collected(Collector):
    """Hands over what was collected before."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics

    def describe(self) -> Iterable[Metric]:
        return ()


def prometheus_name(name: str, unit: str) -> str:
    """Return a metric's name without what its kind adds (`_total`, `_bucket`)."""
    flat = name.replace(".", "_")
    suffix = _UNITS.get(unit, "")
    return flat if not suffix or flat.endswith(f"_{suffix}") else f"{flat}_{suffix}"


def _metric(family: Family) -> Metric:
    name = prometheus_name(family.name, family.unit)
    # Labels of one family may differ between its points, so each says its own.
    if family.kind == "histogram":
        found: Metric = HistogramMetricFamily(name, family.description)
    elif family.kind == "counter":
        found = CounterMetricFamily(name, family.description)
    else:
        found = GaugeMetricFamily(name, family.description)
    for point in family.points:
        labels = {key.replace(".", "_"): value for key, value in point.labels.items()}
        value = point.value
        if isinstance(value, Buckets):
            _add_buckets(found, name, labels, value)
        else:
            found.add_sample(f"{name}_total" if family.kind == "counter" else name, labels, value)
    return found


def _add_buckets(found: Metric, name: str, labels: Labels, value: Buckets) -> None:
    """Add a histogram: each of its buckets holds all that is no more than its bound."""
    below = 0
    for bound, count in zip((*value.bounds, None), value.counts, strict=True):
        below += count
        text = _INFINITE if bound is None else repr(float(bound))
        found.add_sample(f"{name}_bucket", {**labels, "le": text}, below)
    found.add_sample(f"{name}_count", dict(labels), value.count)
    found.add_sample(f"{name}_sum", dict(labels), value.total)


def _info(resource: Labels) -> list[Metric]:
    info = GaugeMetricFamily("target_info", "What this process is.")
    info.add_sample("target_info", {key.replace(".", "_"): value for key, value in resource.items()}, 1)
    return [info]
