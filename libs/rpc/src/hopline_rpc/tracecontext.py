"""The W3C trace context: read, written, and carried from one task to the next."""

from __future__ import annotations

import contextvars
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Span, SpanContext, TraceFlags

TRACEPARENT: Final = "traceparent"
SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
UNSAMPLED: Final = TraceFlags(0)
# Later versions may add fields behind ours; version ff is none.
_FORM: Final = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?\Z")


_NO_TRACE: Final = "0" * 32
_NO_SPAN: Final = "0" * 16
# The `traceparent` of whatever runs. Kept as text: most traces are only carried on.
_current: Final = contextvars.ContextVar("hopline_traceparent", default="")

Tokens = tuple[contextvars.Token[str], contextvars.Token[otel_context.Context] | None]


def normal(traceparent: str | bytes | None) -> str:
    """Return a `traceparent` as this version writes it; empty when there is none or it is malformed."""
    found = _FORM.match(traceparent) if isinstance(traceparent, str) else None
    if found is None:
        return ""
    trace_id, span_id, flags = found.groups()
    if trace_id == _NO_TRACE or span_id == _NO_SPAN:
        return ""
    return f"00-{trace_id}-{span_id}-{'01' if int(flags, 16) & 1 else '00'}"


def parse(traceparent: str | bytes | None) -> SpanContext | None:
    """Read a `traceparent`; None when there is none or it is malformed."""
    text = normal(traceparent) if traceparent else ""
    return context_of(text) if text else None


def context_of(text: str) -> SpanContext:
    """Read a `traceparent` in its normal form."""
    sampled = SAMPLED if text.endswith("1") else UNSAMPLED
    return SpanContext(int(text[3:35], 16), int(text[36:52], 16), is_remote=True, trace_flags=sampled)


def format_context(context: SpanContext) -> str:
    """Write a span's context as a `traceparent`; empty for an invalid one."""
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags & 1:02x}"


def current_traceparent() -> str:
    """Return the `traceparent` to store or pass on; empty outside any trace."""
    return _current.get()


def is_sampled(traceparent: str) -> bool:
    """Tell whether spans are kept for this trace."""
    return normal(traceparent).endswith("1")


def attach(traceparent: str, span: Span | None = None) -> Tokens:
    """Make a trace the current one; `detach` with the tokens undoes it.

    A span that is kept becomes OpenTelemetry's current one too, so that a library can add to it.
    """
    token = _current.set(traceparent)
    if span is None:
        return token, None
    return token, otel_context.attach(trace.set_span_in_context(span, otel_context.Context()))


def detach(tokens: Tokens) -> None:
    """Undo `attach`."""
    _current.reset(tokens[0])
    if tokens[1] is not None:
        otel_context.detach(tokens[1])


@contextmanager
def under(traceparent: str) -> Iterator[None]:
    """Run a block as part of a stored trace, without a span of its own."""
    text = normal(traceparent)
    if not text:
        yield
        return
    tokens = attach(text)
    try:
        yield
    finally:
        detach(tokens)
