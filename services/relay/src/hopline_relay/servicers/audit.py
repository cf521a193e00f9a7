"""AuditService."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from hopline.relay.v1 import audit_pb2 as pb
from hopline.relay.v1.audit_pb2_grpc import AuditServiceServicer
from hopline_rpc.auth import current_principal

from hopline_relay.audit import Audit
from hopline_relay.verifying import Verifying


class AuditServicer(AuditServiceServicer):
    """The service."""

    def __init__(self, audit: Audit, verifying: Verifying) -> None:
        self._audit = audit
        self._verifying = verifying

    async def ListEvents(self, request: pb.ListEventsRequest, context: Any) -> pb.ListEventsResponse:
        """Return a page."""
        return await self._audit.list_events(current_principal(), request)

    async def WatchEvents(
        self, request: pb.WatchEventsRequest, context: Any
    ) -> AsyncIterator[pb.WatchEventsResponse]:
        """Follow the log."""
        async for response in self._audit.watch(current_principal(), request):
            yield response

    async def VerifyEvents(
        self, request: pb.VerifyEventsRequest, context: Any
    ) -> AsyncIterator[pb.VerifyEventsResponse]:
        """Prove the log."""
        async for response in self._verifying.verify(current_principal(), request):
            yield response
