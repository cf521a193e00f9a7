"""The W3C trace context: read, written, and carried from one task to the next."""

from __future__ import annotations

import contextvars
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, TraceFlags

TRACEPARENT: Final = "traceparent"
SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
UNSAMPLED: Final = TraceFlags(0)
# Later versions may add fields behind ours; version ff is none.
_FORM: Final = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?\Z")


def parse(traceparent: str | bytes | None) -> SpanContext | None:
    """Read a `traceparent`; None when there is none or it is malformed."""
    found = _FORM.match(traceparent) if isinstance(traceparent, str) else None
    if found is None:
        return None
    trace_id, span_id, flags = found.groups()
    sampled = SAMPLED if int(flags, 16) & 1 else UNSAMPLED
    context = SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=sampled)
    return context if context.is_valid else None


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
