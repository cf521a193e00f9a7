"""DelegationService."""

from __future__ import annotations

from typing import Any

from hopline.relay.v1 import delegation_pb2 as pb
from hopline.relay.v1.delegation_pb2_grpc import DelegationServiceServicer
from hopline_rpc.auth import current_principal

from hopline_relay.delegations import Delegations
from hopline_relay.roots import Roots


class DelegationServicer(DelegationServiceServicer):
    """The service."""

    def __init__(self, delegations: Delegations, roots: Roots) -> None:
        self._delegations = delegations
        self._roots = roots

    async def Cancel(self, request: pb.CancelRequest, context: Any) -> pb.CancelResponse:
        """Cancel a turn."""
        return await self._delegations.cancel(current_principal(), request)

    async def GetTurn(self, request: pb.GetTurnRequest, context: Any) -> pb.GetTurnResponse:
        """Return one turn."""
        turn = await self._delegations.get(current_principal(), request.turn_id)
        return pb.GetTurnResponse(turn=turn)

    async def ListTurns(self, request: pb.ListTurnsRequest, context: Any) -> pb.ListTurnsResponse:
        """List turns."""
        return await self._delegations.list_turns(current_principal(), request)

    async def ExtendRoot(self, request: pb.ExtendRootRequest, context: Any) -> pb.ExtendRootResponse:
        """Grant a root more turns."""
        return pb.ExtendRootResponse(root=await self._roots.extend(current_principal(), request))

    async def GetRoot(self, request: pb.GetRootRequest, context: Any) -> pb.GetRootResponse:
        """Return one root."""
        return pb.GetRootResponse(root=await self._roots.get(current_principal(), request))

    async def ListExhaustedRoots(
        self, request: pb.ListExhaustedRootsRequest, context: Any
    ) -> pb.ListExhaustedRootsResponse:
        """List roots that wait for somebody to extend them."""
        return await self._roots.list_exhausted(current_principal(), request)
