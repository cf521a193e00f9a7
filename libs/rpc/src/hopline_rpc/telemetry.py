"""OpenTelemetry for the mesh: who starts spans, and where they go.

Names and attributes follow the current rpc conventions: `rpc.system.name`, a fully qualified
`rpc.method`, `rpc.response.status_code`. Bodies never get into a span.

Spans are made by a small class of our own (a quarter of the SDK's cost, which a call pays several
times); sampling, export and the standard `OTEL_*` variables are the SDK's.

A turn's span starts in one call and ends in another, perhaps in another process after a restart. So it
is not held open: `reserve` draws its ids when the turn begins (they are stored and handed to the
worker), and `record` writes the whole span when the turn ends.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Literal

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode

from hopline_rpc import otel
from hopline_rpc.tracecontext import (
    SAMPLED,
    TRACEPARENT,
    UNSAMPLED,
    attach,
    context_of,
    current_traceparent,
    detach,
    format_context,
    is_sampled,
    normal,
    parse,
    under,
)

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.sdk.trace.sampling import Sampler

__all__ = [
    "SAMPLED",
    "TRACEPARENT",
    "UNSAMPLED",
    "OpenSpan",
    "RpcSpans",
    "Telemetry",
    "active",
    "attach",
    "current_traceparent",
    "detach",
    "end_rpc_span",
    "format_context",
    "is_sampled",
    "normal",
    "note",
    "parse",
    "record",
    "reserve",
    "setup",
    "span_from",
    "under",
]

Kind = Literal["internal", "server", "client", "producer", "consumer"]
Value = str | bool | int | float | Sequence[str]
Attributes = Mapping[str, Value]
_KINDS: Final[Mapping[str, SpanKind]] = {kind.name.lower(): kind for kind in SpanKind}
_OUR_FAILURES: Final = frozenset({"internal", "unavailable", "deadline_exceeded"})
_UNSET: Final = Status()
_RATIO: Final = "parentbased_traceidratio"
# What ratio samplers go by.
_LOW_BITS: Final = 2**64 - 1
# Trace ids need to be unlikely to collide, not hard to guess.
_random = random.Random()  # noqa: S311

# The batch between the calls and the exporter's thread; short, so that a trace can be looked at soon.
_EXPORT_MILLISECONDS: Final = 500
_MAX_PENDING: Final = 8192


class Telemetry:
    """What one process does with its spans."""

    def __init__(
        self, provider: TracerProvider, processors: Sequence[SpanProcessor], keep_below: int | None
    ) -> None:
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        self.provider = provider
        self._sampler = provider.sampler
        # The usual samplers follow the parent, else go by the trace's id: asking them costs more than the
        # span. None: the sampler is another one.
        self._keep_below = keep_below
        self._processors = tuple(processors)
        self._make = ReadableSpan
        self._scopes: dict[str, InstrumentationScope] = {}
        self._new_scope = InstrumentationScope

    def samples(self, parent: str, trace_id: int, name: str, kind: SpanKind) -> bool:
        """Decide whether a span is kept."""
        if self._keep_below is not None:
            return parent.endswith("1") if parent else trace_id & _LOW_BITS < self._keep_below
        context = None
        if (given := parse(parent)) is not None:
            context = trace.set_span_in_context(NonRecordingSpan(given), otel_context.Context())
        result = self._sampler.should_sample(context, trace_id, name, kind)
        return result.decision.name == "RECORD_AND_SAMPLE"

    def export(self, service: str, span: Mapping[str, Any]) -> None:
        """Hand a finished span to the exporters; `span` is what the SDK's `ReadableSpan` takes."""
        scope = self._scopes.get(service)
        if scope is None:
            scope = self._new_scope(f"hopline.{service}" if service else "hopline")
            self._scopes[service] = scope
        finished = self._make(resource=self.provider.resource, instrumentation_scope=scope, **span)
        for processor in self._processors:
            processor.on_end(finished)

    def flush(self, seconds: float = 5.0) -> None:
        """Write out what is pending."""
        self.provider.force_flush(int(seconds * 1000))

    def shutdown(self) -> None:
        """Write out what is pending and stop; spans made later go nowhere."""
        global _active
        if _active is self:
            _active = None
        self.provider.shutdown()


_active: Telemetry | None = None


def active() -> Telemetry | None:
    """Return this process's telemetry; None when no spans are made."""
    return _active


def setup(
    service_name: str,
    exporter: SpanExporter | None = None,
    sample_ratio: float = 1.0,
    *,
    batch: bool = True,
) -> Telemetry | None:
    """Start making spans; returns None when nobody would see them or `OTEL_SDK_DISABLED` is set.

    Spans go to `exporter` and, when the standard `OTEL_*` variables ask for it, to an OTLP collector.
    `OTEL_TRACES_SAMPLER` overrides `sample_ratio`. With `batch` a thread of its own exports them.
    """
    global _active
    if otel.disabled():
        return None
    exporters = [exporter] if exporter is not None else []
    asked = otel.exporters("TRACES")
    if "otlp" in asked:
        exporters.append(_otlp_exporter())
    if "console" in asked:
        exporters.append(_console_exporter())
    if not exporters:
        return None
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider

    sampler, keep_below = _sampler(sample_ratio)
    provider = TracerProvider(
        sampler=sampler,
        resource=Resource.create({SERVICE_NAME: otel.service_name(service_name)}),
        shutdown_on_exit=False,  # the composition root shuts down, after the last call has ended
    )
    processors = [_processor(each, batch=batch) for each in exporters]
    for processor in processors:
        provider.add_span_processor(processor)
    _active = Telemetry(provider, processors, keep_below)
    return _active


def _processor(exporter: SpanExporter, *, batch: bool) -> SpanProcessor:
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor

    if not batch:
        return SimpleSpanProcessor(exporter)
    if any(name.startswith("OTEL_BSP_") for name in os.environ):
        return BatchSpanProcessor(exporter)
    return BatchSpanProcessor(
        exporter, max_queue_size=_MAX_PENDING, schedule_delay_millis=_EXPORT_MILLISECONDS
    )


def _otlp_exporter() -> SpanExporter:
    if otel.over_http("TRACES"):
        from opentelemetry.exporter.otlp.proto.http import trace_exporter as http

        return http.OTLPSpanExporter()
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()


def _console_exporter() -> SpanExporter:
    from opentelemetry.sdk.trace.export import ConsoleSpanExporter

    return ConsoleSpanExporter(out=sys.stderr)


def _sampler(sample_ratio: float) -> tuple[Sampler | None, int | None]:
    """Return the sampler, and below which bits of its id it keeps a trace; the standard variables win.

    None and None: the SDK reads the variables itself.
    """
    from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio, TraceIdRatioBased

    chosen = os.environ.get("OTEL_TRACES_SAMPLER", "").strip().lower()
    ratio = sample_ratio
    try:
        if chosen == _RATIO:
            ratio = float(os.environ.get("OTEL_TRACES_SAMPLER_ARG", ""))
        elif chosen:
            return None, None
        return ParentBasedTraceIdRatio(ratio), TraceIdRatioBased.get_bound_for_rate(ratio)
    except ValueError:
        return None, None


# --- spans ---------------------------------------------------------------------------------------


class MeshSpan(Span):
    """A span that is kept. OpenTelemetry's interface, so that any library can add to it."""

    def __init__(
        self,
        telemetry: Telemetry,
        service: str,
        context: SpanContext,
        parent: SpanContext | None,
        name: str,
        kind: SpanKind,
        attributes: dict[str, Any],
        links: Sequence[Link] = (),
        start_ns: int | None = None,
    ) -> None:
        self._telemetry: Telemetry | None = telemetry
        self._service = service
        self._context = context
        self._parent = parent
        self._name = name
        self._kind = kind
        self._attributes = attributes
        self._links = links
        self._start_ns = start_ns or time.time_ns()
        self._status = _UNSET

    def end(self, end_time: int | None = None) -> None:
        """Finish the span and hand it to the exporters; once."""
        telemetry, self._telemetry = self._telemetry, None
        if telemetry is not None:
            described = {
                "name": self._name,
                "context": self._context,
                "parent": self._parent,
                "attributes": self._attributes,
                "links": self._links,
                "kind": self._kind,
                "status": self._status,
                "start_time": self._start_ns,
                "end_time": end_time or time.time_ns(),
            }
            telemetry.export(self._service, described)

    def get_span_context(self) -> SpanContext:
        """Return the ids."""
        return self._context

    def set_attributes(self, attributes: Mapping[str, Any]) -> None:
        """Add attributes."""
        self._attributes.update(attributes)

    def set_attribute(self, key: str, value: Any) -> None:
        """Add an attribute."""
        self._attributes[key] = value

    def add_event(self, name: str, attributes: Any = None, timestamp: int | None = None) -> None:
        """Accept and ignore: what happens within a span has spans of its own here."""

    def update_name(self, name: str) -> None:
        """Rename the span."""
        self._name = name

    def is_recording(self) -> bool:
        """Tell whether the span still takes attributes."""
        return self._telemetry is not None

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        """Say how it went."""
        self._status = status if isinstance(status, Status) else Status(status, description)

    def record_exception(
        self,
        exception: BaseException,
        attributes: Any = None,
        timestamp: int | None = None,
        escaped: bool = False,
    ) -> None:
        """Keep the exception's kind; its text may hold what nobody should see in a trace."""
        self._attributes["error.type"] = type(exception).__qualname__


def _draw(telemetry: Telemetry, parent: str, name: str, kind: SpanKind) -> str:
    """Draw the ids of a span, a child of `parent` or of none; they say too whether it is kept."""
    trace_id = int(parent[3:35], 16) if parent else _random.getrandbits(128) or 1
    flags = "01" if telemetry.samples(parent, trace_id, name, kind) else "00"
    return f"00-{trace_id:032x}-{_random.getrandbits(64) or 1:016x}-{flags}"


def _begin(
    telemetry: Telemetry,
    service: str,
    parent: str,
    own: str,
    name: str,
    kind: SpanKind,
    attributes: dict[str, Any],
    links: Sequence[str] = (),
    start_ns: int | None = None,
) -> MeshSpan | None:
    """Begin the span whose ids were drawn; None when it is not kept, so that nothing is built for it."""
    if not own.endswith("1"):
        return None
    context = context_of(own)
    return MeshSpan(
        telemetry, service, context, parse(parent), name, kind, attributes, _links(links), start_ns
    )


class OpenSpan:
    """A span that somebody will end. Every method does nothing when spans are off or not sampled."""

    __slots__ = ("_span", "traceparent")

    def __init__(self, traceparent: str, span: MeshSpan | None) -> None:
        self.traceparent = traceparent
        self._span = span

    def set(self, attributes: Attributes) -> None:
        """Add attributes."""
        if self._span is not None:
            self._span.set_attributes(attributes)

    def end(self, error: str | None = None, attributes: Attributes | None = None) -> None:
        """End the span; `error` is a reason code, never a text with contents."""
        if attributes:
            self.set(attributes)
        self.end_at(None, error)

    def end_at(self, end_ns: int | None, error: str | None) -> None:
        """End the span at a moment that may have passed."""
        if self._span is None:
            return
        if error is not None:
            self._span.set_attribute("error.type", error)
            self._span.set_status(Status(StatusCode.ERROR, error))
        self._span.end(end_ns)

    @contextmanager
    def current(self) -> Iterator[None]:
        """Run a block under this span; does not end it."""
        tokens = attach(self.traceparent, self._span)
        try:
            yield
        finally:
            detach(tokens)


def span_from(
    traceparent: str,
    name: str,
    kind: Kind = "internal",
    attributes: Attributes | None = None,
    links: Sequence[str] = (),
    *,
    service: str = "",
    start_ns: int | None = None,
) -> OpenSpan:
    """Start a span under a stored `traceparent` (empty: a new trace); links are traceparents too."""
    parent, telemetry = normal(traceparent), _active
    if telemetry is None:
        return OpenSpan(parent, None)
    own = _draw(telemetry, parent, name, _KINDS[kind])
    described = dict(attributes or {})
    return OpenSpan(
        own, _begin(telemetry, service, parent, own, name, _KINDS[kind], described, links, start_ns)
    )


def reserve(traceparent: str) -> str:
    """Draw the ids of a span that `record` will write later, as its `traceparent`.

    A child of `traceparent`, which also decides whether it is sampled; without one, a trace of its own.
    """
    parent = normal(traceparent)
    if parent:
        return f"{parent[:36]}{_random.getrandbits(64) or 1:016x}{parent[52:]}"
    return "" if _active is None else _draw(_active, "", "", SpanKind.INTERNAL)


def record(
    traceparent: str,
    name: str,
    *,
    parent: str = "",
    kind: Kind = "internal",
    start_ns: int,
    end_ns: int | None = None,
    attributes: Attributes | None = None,
    links: Sequence[str] = (),
    error: str | None = None,
    service: str = "",
) -> None:
    """Write a span whose ids `reserve` drew, after it has ended; does nothing when it is not sampled."""
    telemetry, own = _active, normal(traceparent)
    if telemetry is not None:
        described = dict(attributes or {})
        span = _begin(telemetry, service, parent, own, name, _KINDS[kind], described, links, start_ns)
        OpenSpan(own, span).end_at(end_ns, error)


def note(attributes: Attributes) -> None:
    """Add attributes to the current span, where there is one that is kept."""
    trace.get_current_span().set_attributes(attributes)


def _links(traceparents: Sequence[str]) -> list[Link]:
    return [Link(context) for text in traceparents if (context := parse(text)) is not None]


class RpcSpans:
    """The server spans of one service's calls."""

    def __init__(self, service: str) -> None:
        self._service = service

    def start(self, method: str, traceparent: str | bytes | None, *, edge: bool) -> Span | None:
        """Begin the span of a call and make it current; None when the call gets none.

        Calls that come over a socket get a span where the sampler says so. Calls inside the process
        only when their trace is kept: the edge has decided that.
        """
        own, span = self.begin(method, traceparent, edge=edge)
        if own:
            attach(own, span)
        return span

    def begin(
        self, method: str, traceparent: str | bytes | None, *, edge: bool
    ) -> tuple[str, MeshSpan | None]:
        """Begin the span of a call without making it current; returns its `traceparent` too."""
        telemetry = _active
        parent = normal(traceparent) if traceparent else ""
        if telemetry is None or not (parent or edge):
            return parent, None
        name = method[1:]
        own = _draw(telemetry, parent, name, SpanKind.SERVER)
        described = {"rpc.system.name": "grpc", "rpc.method": name}
        return own, _begin(telemetry, self._service, parent, own, name, SpanKind.SERVER, described)


def end_rpc_span(span: Span, code: str, reason: str | None) -> None:
    """End a call's span with its status; only what is the server's fault marks it as failed."""
    span.set_attribute("rpc.response.status_code", code)
    if reason is not None:
        span.set_attribute("error.type", reason)
        if reason in _OUR_FAILURES:
            span.set_status(Status(StatusCode.ERROR, reason))
    span.end()
