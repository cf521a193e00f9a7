"""WebhookService."""

from __future__ import annotations

from typing import Any

from hopline.relay.v1 import webhook_pb2 as pb
from hopline.relay.v1.webhook_pb2_grpc import WebhookServiceServicer
from hopline_rpc.auth import current_principal

from hopline_relay.arrivals import Arrivals
from hopline_relay.webhooks import Webhooks


class WebhookServicer(WebhookServiceServicer):
    """The service."""

    def __init__(self, webhooks: Webhooks, arrivals: Arrivals) -> None:
        self._webhooks = webhooks
        self._arrivals = arrivals

    async def AddWebhook(self, request: pb.AddWebhookRequest, context: Any) -> pb.AddWebhookResponse:
        """Add one."""
        return await self._webhooks.add(current_principal(), request)

    async def ListWebhooks(self, request: pb.ListWebhooksRequest, context: Any) -> pb.ListWebhooksResponse:
        """Return a page."""
        return await self._webhooks.list(current_principal(), request)

    async def RotateWebhook(self, request: pb.RotateWebhookRequest, context: Any) -> pb.RotateWebhookResponse:
        """Give one another secret."""
        return await self._webhooks.rotate(current_principal(), request)

    async def RemoveWebhook(self, request: pb.RemoveWebhookRequest, context: Any) -> pb.RemoveWebhookResponse:
        """Remove one."""
        await self._webhooks.remove(current_principal(), request)
        return pb.RemoveWebhookResponse()

    async def DeliverWebhook(
        self, request: pb.DeliverWebhookRequest, context: Any
    ) -> pb.DeliverWebhookResponse:
        """Give an agent what came in."""
        return pb.DeliverWebhookResponse(turn=await self._arrivals.deliver(request))
