"""The exporter that writes the local span store (`hopline_rpc.spans`)."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from hopline_rpc.spans import MAX_SPANS, Row, SpanStore
from hopline_rpc.tracecontext import format_context

log = logging.getLogger("hopline.telemetry")

_encode: Final = json.JSONEncoder(default=list, separators=(",", ":")).encode


class SqliteSpanExporter(SpanExporter):
    """Writes spans to a SQLite file; a full disk costs spans, nothing else."""

    def __init__(self, path: Path | str, max_spans: int = MAX_SPANS) -> None:
        self._store = SpanStore(path, max_spans)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Write one batch."""
        try:
            self._store.write([_row(span) for span in spans])
        except Exception:
            log.warning("the local span store cannot be written", exc_info=True)
            return SpanExportResult.FAILURE
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Close the file."""
        self._store.close()


def _row(span: ReadableSpan) -> Row:
    context = span.get_span_context() or trace.INVALID_SPAN_CONTEXT
    attributes = dict(span.attributes or {})
    return Row(
        f"{context.trace_id:032x}",
        f"{context.span_id:016x}",
        f"{span.parent.span_id:016x}" if span.parent else "",
        span.name,
        span.kind.name.lower(),
        _service(span),
        span.start_time or 0,
        span.end_time or 0,
        span.status.status_code.name.lower(),
        _encode(attributes),
        _encode([format_context(link.context) for link in span.links]) if span.links else "[]",
    )


def _service(span: ReadableSpan) -> str:
    """Name the service a span comes from: its scope, or the process where the scope is foreign."""
    scope = span.instrumentation_scope.name if span.instrumentation_scope is not None else ""
    if scope.startswith("hopline."):
        return scope.removeprefix("hopline.")
    return str(span.resource.attributes.get("service.name", ""))
