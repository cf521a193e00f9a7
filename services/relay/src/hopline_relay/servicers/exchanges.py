"""ExchangeService."""

from __future__ import annotations

from typing import Any

from hopline.relay.v1 import exchange_pb2 as pb
from hopline.relay.v1.exchange_pb2_grpc import ExchangeServiceServicer
from hopline_rpc.auth import current_principal

from hopline_relay.exchanges import Exchanges


class ExchangeServicer(ExchangeServiceServicer):
    """The service."""

    def __init__(self, exchanges: Exchanges) -> None:
        self._exchanges = exchanges

    async def ListExchanges(self, request: pb.ListExchangesRequest, context: Any) -> pb.ListExchangesResponse:
        """Return what an agent has sent and received."""
        return await self._exchanges.list_exchanges(current_principal(), request)
