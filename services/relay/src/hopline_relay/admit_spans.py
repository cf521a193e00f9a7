"""The spans of a call to the counters: one in the trace of each message that it was for.

Many messages share the call, so none of their traces holds all of it; each says how its own message came out.
What the quota service itself records belongs to the first of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from hopline.common.v1 import errors_pb2
from hopline.quota.v1.admission_pb2 import AdmitResult
from hopline_rpc import telemetry

_METHOD: Final = "hopline.quota.v1.AdmissionService/Admit"


class AdmitSpans:
    """Nothing where no trace is kept."""

    def __init__(self, traces: Sequence[str]) -> None:
        self._spans: dict[int, telemetry.OpenSpan] = {}
        if telemetry.active() is None:
            return
        for index, trace in enumerate(traces):
            if trace.endswith("1"):
                described = {"rpc.system.name": "grpc", "rpc.method": _METHOD}
                self._spans[index] = telemetry.span_from(trace, _METHOD, "client", described, service="relay")

    def current(self) -> AbstractContextManager[None]:
        """Run the call as part of the first trace."""
        for span in self._spans.values():
            return span.current()
        return nullcontext()

    def end(self, results: Sequence[AdmitResult]) -> None:
        """Say what became of each message: a refusal is an answer, and says so."""
        for index, span in self._spans.items():
            result = results[index]
            attributes: dict[str, str | int] = {"hopline.batch.size": len(results)}
            if result.HasField("admitted"):
                attributes["hopline.depth"] = result.admitted.depth
            else:
                attributes["hopline.refusal"] = _name(result.refusal.reason)
            span.end(attributes=attributes)

    def fail(self, reason: str) -> None:
        """Say that the call failed."""
        for span in self._spans.values():
            span.end(reason)


def _name(reason: errors_pb2.ErrorReason.ValueType) -> str:
    return errors_pb2.ErrorReason.Name(reason).removeprefix("ERROR_REASON_").lower()
