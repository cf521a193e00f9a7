"""The standard `OTEL_*` variables that decide who is told of traces and metrics at all."""

from __future__ import annotations

import logging
import os
from typing import Final

log = logging.getLogger("hopline.telemetry")

_KNOWN: Final = frozenset({"otlp", "console", "prometheus", "none"})


def disabled() -> bool:
    """Tell whether the whole of it is switched off."""
    return os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def service_name(usual: str) -> str:
    """Return what this process is called in traces and metrics."""
    return os.environ.get("OTEL_SERVICE_NAME") or usual


def exporters(signal: str) -> list[str]:
    """Return the exporters of a signal (`TRACES`, `METRICS`): those named, else OTLP where an endpoint is."""
    chosen = os.environ.get(f"OTEL_{signal}_EXPORTER", "").strip().lower()
    if chosen:
        return [name.strip() for name in chosen.split(",") if name.strip() in _KNOWN]
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    return ["otlp"] if any(os.environ.get(name) for name in endpoints) else []


def over_http(signal: str) -> bool:
    """Tell whether a signal goes to its collector in protobuf over HTTP instead of gRPC."""
    names = (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    chosen = next((found for found in (os.environ.get(name, "").strip() for name in names) if found), "grpc")
    if chosen not in {"grpc", "http/protobuf"}:
        log.warning("%s: %s is not spoken here (grpc, http/protobuf); grpc it is", names[1], chosen)
    return chosen == "http/protobuf"
