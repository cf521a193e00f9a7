"""An OTLP collector on a real port, which keeps the spans that it gets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import grpc.aio
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as pb_grpc


@dataclass(frozen=True)
class Got:
    """A span as it came over the wire."""

    process: str
    name: str
    trace: str
    id: str
    parent: str
    kind: int
    failed: bool
    attributes: dict[str, Any]
    links: tuple[str, ...]
    start: int
    end: int


class Collector(pb_grpc.TraceServiceServicer):
    """Takes spans."""

    def __init__(self) -> None:
        self.spans: list[Got] = []
        self.address = ""

    async def Export(self, request: Any, context: Any) -> Any:
        for resource in request.resource_spans:
            named = _attributes(resource.resource.attributes)
            for scope in resource.scope_spans:
                self.spans += [_got(str(named["service.name"]), span) for span in scope.spans]
        return pb.ExportTraceServiceResponse()

    def of(self, trace: str) -> list[Got]:
        """Return the spans of a trace."""
        return [span for span in self.spans if span.trace == trace]


def _got(process: str, span: Any) -> Got:
    return Got(
        process,
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.kind,
        span.status.code == 2,
        _attributes(span.attributes),
        tuple(link.trace_id.hex() for link in span.links),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
    )


def _attributes(found: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in found}


@asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    """Yield a collector that listens."""
    found, server = Collector(), grpc.aio.server()
    pb_grpc.add_TraceServiceServicer_to_server(found, server)  # type: ignore[no-untyped-call]
    found.address = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        yield found
    finally:
        await server.stop(None)
