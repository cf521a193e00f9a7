"""The standard `OTEL_*` variables that decide who is told of traces and metrics at all."""

from __future__ import annotations

import os
from typing import Final

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
