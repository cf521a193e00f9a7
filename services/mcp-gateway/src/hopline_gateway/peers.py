"""Whether the services behind the gateway serve: asked by their health, now and then."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from hopline_rpc.clock import Clock
from hopline_rpc.errors import HoplineError

_KEPT_SECONDS: Final = 5.0
_BAD_SECONDS: Final = 0.2
_PATIENCE_SECONDS: Final = 3.0
# What a service answers that is there and has no health to speak of.
_ANSWERS: Final = frozenset({"failed_precondition", "not_found", "unauthenticated", "permission_denied"})


class Peers:
    """Asks them, at most every few seconds."""

    def __init__(self, channels: Mapping[str, Any], clock: Clock) -> None:
        self._channels = channels
        self._clock = clock
        self._found: list[str] = []
        self._until = -1.0
        self._asking = asyncio.Lock()

    async def missing(self) -> list[str]:
        """Return which of them cannot serve, in words."""
        async with self._asking:
            if self._clock.monotonic() >= self._until:
                answers = await asyncio.gather(*(self._ask(*each) for each in self._channels.items()))
                self._found = [answer for answer in answers if answer]
                kept = _BAD_SECONDS if self._found else _KEPT_SECONDS
                self._until = self._clock.monotonic() + kept
            return list(self._found)

    async def _ask(self, name: str, channel: Any) -> str:
        from grpc_health.v1 import health_pb2, health_pb2_grpc

        stub = health_pb2_grpc.HealthStub(channel)
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                found = await stub.Check(health_pb2.HealthCheckRequest())
        except TimeoutError:
            return f"the {name} does not answer"
        except HoplineError as error:
            return "" if error.reason in _ANSWERS else f"the {name} cannot be reached"
        return "" if found.status == health_pb2.HealthCheckResponse.SERVING else f"the {name} is not ready"
