"""OpenTelemetry for the mesh: who starts spans, how the context travels, where spans go.

Names and attributes follow the current rpc conventions: `rpc.system.name`, a fully qualified
`rpc.method`, `rpc.response.status_code`. Bodies never get into a span.

A turn's span starts in one call and ends in another, perhaps in another process after a restart. So it
is not held open: `reserve` draws its ids when the turn begins (they are stored and handed to the
worker), and `record` writes the whole span when the turn ends.
"""

from __future__ import annotations

import contextvars
import json
import logging
import os
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
)

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.sdk.trace.sampling import Sampler

log = logging.getLogger("hopline.telemetry")

TRACEPARENT: Final = "traceparent"
Kind = Literal["internal", "server", "client", "producer", "consumer"]
Attributes = Mapping[str, str | bool | int | float | Sequence[str]]
_LENGTH: Final = 55
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_KINDS: Final[Mapping[str, SpanKind]] = {kind.name.lower(): kind for kind in SpanKind}
# Trace ids need to be unlikely to collide, not hard to guess.
_random = random.Random()  # noqa: S311


class Telemetry:
    """What one process does with its spans."""

    def __init__(self, provider: TracerProvider, processors: Sequence[SpanProcessor]) -> None:
        self.provider = provider
        self._processors = tuple(processors)

    def end(self, span: ReadableSpan) -> None:
        """Hand over a span that was put together after the fact."""
        for processor in self._processors:
            processor.on_end(span)

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
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    exporters = [exporter] if exporter is not None else []
    if _wants_otlp():
        exporters.append(_otlp_exporter())
    if not exporters:
        return None
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor

    name = os.environ.get("OTEL_SERVICE_NAME") or service_name
    provider = TracerProvider(
        sampler=_sampler(sample_ratio),
        resource=Resource.create({SERVICE_NAME: name}),
        shutdown_on_exit=False,  # the composition root shuts down, after the last call has ended
    )
    processors: list[SpanProcessor] = [
        BatchSpanProcessor(each) if batch else SimpleSpanProcessor(each) for each in exporters
    ]
    for processor in processors:
        provider.add_span_processor(processor)
    _active = Telemetry(provider, processors)
    return _active


def _wants_otlp() -> bool:
    chosen = os.environ.get("OTEL_TRACES_EXPORTER", "")
    if chosen:
        return "otlp" in [name.strip() for name in chosen.split(",")]
    return bool(
        os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    )


def _otlp_exporter() -> SpanExporter:
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()


def _sampler(sample_ratio: float) -> Sampler | None:
    from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

    if os.environ.get("OTEL_TRACES_SAMPLER"):
        return None  # the SDK reads the variable itself
    return ParentBasedTraceIdRatio(sample_ratio)


# --- the context that travels --------------------------------------------------------------------


def parse(traceparent: str | bytes | None) -> SpanContext | None:
    """Read a W3C `traceparent`; None when there is none or it is malformed."""
    if not isinstance(traceparent, str) or len(traceparent) < _LENGTH or traceparent[:2] == "ff":
        return None
    parts = traceparent.split("-")
    if len(parts) < 4 or [len(part) for part in parts[:4]] != [2, 32, 16, 2]:
        return None
    try:
        trace_id, span_id, flags = int(parts[1], 16), int(parts[2], 16), int(parts[3], 16)
    except ValueError:
        return None
    found = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
    return found if found.is_valid else None


def format_context(context: SpanContext) -> str:
    """Write a span's context as a `traceparent`; empty for an invalid one."""
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags & 1:02x}"


def current_traceparent() -> str:
    """Return the `traceparent` to store or pass on; empty outside any trace."""
    return format_context(trace.get_current_span().get_span_context())


def is_sampled(traceparent: str) -> bool:
    """Tell whether spans are kept for this trace."""
    context = parse(traceparent)
    return context is not None and context.trace_flags.sampled


def attach(span: Span) -> contextvars.Token[otel_context.Context]:
    """Make a span the current one; `detach` with the token undoes it."""
    return otel_context.attach(trace.set_span_in_context(span, otel_context.Context()))


def detach(token: contextvars.Token[otel_context.Context]) -> None:
    """Undo `attach`."""
    otel_context.detach(token)


def adopt(traceparent: str | bytes | None) -> None:
    """Make a context that came from elsewhere the current one, without a span of our own."""
    context = parse(traceparent)
    if context is not None:
        attach(NonRecordingSpan(context))


@contextmanager
def under(traceparent: str) -> Iterator[None]:
    """Run a block as part of a stored trace, without a span of its own."""
    context = parse(traceparent)
    if context is None:
        yield
        return
    token = attach(NonRecordingSpan(context))
    try:
        yield
    finally:
        detach(token)


# --- spans ---------------------------------------------------------------------------------------


class OpenSpan:
    """A span that somebody will end. Every method does nothing when spans are off or not sampled."""

    __slots__ = ("_span", "traceparent")

    def __init__(self, span: Span) -> None:
        self._span = span
        self.traceparent = format_context(span.get_span_context())

    def set(self, attributes: Attributes) -> None:
        """Add attributes."""
        self._span.set_attributes(dict(attributes))

    def end(self, error: str | None = None, attributes: Attributes | None = None) -> None:
        """End the span; `error` is a reason code, never a text with contents."""
        if attributes:
            self.set(attributes)
        if error is not None:
            self._span.set_attribute("error.type", error)
            self._span.set_status(Status(StatusCode.ERROR, error))
        self._span.end()

    @contextmanager
    def current(self) -> Iterator[None]:
        """Run a block under this span; does not end it."""
        token = attach(self._span)
        try:
            yield
        finally:
            detach(token)


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
    parent = parse(traceparent)
    telemetry = _active
    if telemetry is None:
        return OpenSpan(NonRecordingSpan(parent) if parent else trace.INVALID_SPAN)
    context = otel_context.Context()
    if parent is not None:
        context = trace.set_span_in_context(NonRecordingSpan(parent), context)
    span = _tracer(telemetry, service).start_span(
        name, context, _KINDS[kind], dict(attributes or {}), _links(links), start_ns
    )
    return OpenSpan(span)


def reserve(traceparent: str) -> str:
    """Draw the ids of a span that `record` will write later, as its `traceparent`.

    A child of `traceparent`, which also decides whether it is sampled; without one, a trace of its own.
    """
    parent = parse(traceparent)
    if parent is not None:
        own = SpanContext(parent.trace_id, _random.getrandbits(64) or 1, False, parent.trace_flags)
        return format_context(own)
    if _active is None:
        return ""
    trace_id = _random.getrandbits(128) or 1
    sampled = _active.provider.sampler.should_sample(None, trace_id, "", SpanKind.INTERNAL)
    flags = _SAMPLED if sampled.decision.name == "RECORD_AND_SAMPLE" else TraceFlags(0)
    return format_context(SpanContext(trace_id, _random.getrandbits(64) or 1, False, flags))


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
    telemetry, own = _active, parse(traceparent)
    if telemetry is None or own is None or not own.trace_flags.sampled:
        return
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    described = dict(attributes or {})
    status = Status()
    if error is not None:
        described["error.type"] = error
        status = Status(StatusCode.ERROR, error)
    telemetry.end(
        ReadableSpan(
            name,
            context=own,
            parent=parse(parent),
            resource=telemetry.provider.resource,
            attributes=described,
            links=_links(links),
            kind=_KINDS[kind],
            status=status,
            start_time=start_ns,
            end_time=end_ns if end_ns is not None else time.time_ns(),
            instrumentation_scope=InstrumentationScope(_scope(service)),
        )
    )


def _links(traceparents: Sequence[str]) -> list[Link]:
    return [Link(context) for text in traceparents if (context := parse(text)) is not None]


def _scope(service: str) -> str:
    return f"hopline.{service}" if service else "hopline"


def _tracer(telemetry: Telemetry, service: str) -> trace.Tracer:
    return telemetry.provider.get_tracer(_scope(service))


class RpcSpans:
    """The server spans of one service's calls."""

    def __init__(self, service: str) -> None:
        self._service = service
        self._telemetry: Telemetry | None = None
        self._tracer: trace.Tracer | None = None

    def start(self, method: str, traceparent: str | bytes | None, *, edge: bool) -> Span | None:
        """Begin the span of a call and make it current; None when the call gets none.

        Calls that come over a socket get a span where the sampler says so. Calls inside the process
        only when their trace is kept: the edge has decided that.
        """
        telemetry = _active
        parent = parse(traceparent)
        if telemetry is None or (not (edge and parent is None) and not _kept(parent)):
            if parent is not None:
                attach(NonRecordingSpan(parent))
            return None
        if self._telemetry is not telemetry or self._tracer is None:
            self._telemetry, self._tracer = telemetry, _tracer(telemetry, self._service)
        context = otel_context.Context()
        if parent is not None:
            context = trace.set_span_in_context(NonRecordingSpan(parent), context)
        name = method[1:]
        span = self._tracer.start_span(
            name, context, SpanKind.SERVER, {"rpc.system.name": "grpc", "rpc.method": name}
        )
        attach(span)
        return span if span.is_recording() else None


def _kept(parent: SpanContext | None) -> bool:
    return parent is not None and parent.trace_flags.sampled


def end_rpc_span(span: Span, code: str, reason: str | None) -> None:
    """End a call's span with its status; only what is the server's fault marks it as failed."""
    span.set_attribute("rpc.response.status_code", code)
    if reason is not None:
        span.set_attribute("error.type", reason)
        if reason in {"internal", "unavailable", "deadline_exceeded"}:
            span.set_status(Status(StatusCode.ERROR, reason))
    span.end()


# --- the local store -----------------------------------------------------------------------------


def sqlite_exporter(path: Path | str, max_spans: int | None = None) -> SpanExporter:
    """Return the exporter that writes the local span store (`hopline_rpc.spans`)."""
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    from hopline_rpc.spans import MAX_SPANS, SpanStore

    class SqliteSpanExporter(SpanExporter):
        """Writes spans to a SQLite file; a full disk costs spans, nothing else."""

        def __init__(self) -> None:
            self._store = SpanStore(path, max_spans or MAX_SPANS)

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            """Write one batch."""
            try:
                self._store.write(_row(span) for span in spans)
            except Exception:
                log.warning("the local span store cannot be written", exc_info=True)
                return SpanExportResult.FAILURE
            return SpanExportResult.SUCCESS

        def shutdown(self) -> None:
            """Close the file."""
            self._store.close()

    return SqliteSpanExporter()


def _row(span: ReadableSpan) -> tuple[str, str, str, str, str, str, int, int, str, str, str]:
    context = span.get_span_context() or trace.INVALID_SPAN_CONTEXT
    scope = span.instrumentation_scope.name if span.instrumentation_scope else ""
    service = scope.removeprefix("hopline.") if scope.startswith("hopline.") else _resource_name(span)
    return (
        f"{context.trace_id:032x}",
        f"{context.span_id:016x}",
        f"{span.parent.span_id:016x}" if span.parent else "",
        span.name,
        span.kind.name.lower(),
        service,
        span.start_time or 0,
        span.end_time or 0,
        span.status.status_code.name.lower(),
        json.dumps(dict(span.attributes or {}), default=list),
        json.dumps([format_context(link.context) for link in span.links]),
    )


def _resource_name(span: ReadableSpan) -> str:
    name: Any = span.resource.attributes.get("service.name", "")
    return str(name)
