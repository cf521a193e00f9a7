"""WakeService."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from hopline.relay.v1 import wake_pb2 as pb
from hopline.relay.v1.wake_pb2_grpc import WakeServiceServicer
from hopline_rpc.auth import current_principal

from hopline_relay.work import Work


class WakeServicer(WakeServiceServicer):
    """The service."""

    def __init__(self, work: Work) -> None:
        self._work = work

    async def WatchWork(
        self, request: pb.WatchWorkRequest, context: Any
    ) -> AsyncIterator[pb.WatchWorkResponse]:
        """Say which agents have work."""
        async for response in self._work.watch(current_principal(), request):
            yield response
