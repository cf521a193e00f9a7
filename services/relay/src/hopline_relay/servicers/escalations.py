"""EscalationService."""

from __future__ import annotations

from typing import Any

from hopline.relay.v1 import escalation_pb2 as pb
from hopline.relay.v1.escalation_pb2_grpc import EscalationServiceServicer
from hopline_rpc.auth import current_principal

from hopline_relay.owners import Owners
from hopline_relay.servicers.messages import MessageHandlers, take_back_if_lost


class EscalationServicer(EscalationServiceServicer):
    """The service."""

    def __init__(self, handlers: MessageHandlers, owners: Owners) -> None:
        self._handlers = handlers
        self._owners = owners

    async def AskOwner(self, request: pb.AskOwnerRequest, context: Any) -> pb.AskOwnerResponse:
        """Ask, and wait."""
        principal = current_principal()
        response = await self._handlers.ask_owner(principal, request)
        take_back_if_lost(self._handlers, principal, response, context)
        return response

    async def CheckEscalation(
        self, request: pb.CheckEscalationRequest, context: Any
    ) -> pb.CheckEscalationResponse:
        """Look, or wait."""
        principal = current_principal()
        response = await self._handlers.check_escalation(principal, request)
        take_back_if_lost(self._handlers, principal, response, context)
        return response

    async def ListEscalations(
        self, request: pb.ListEscalationsRequest, context: Any
    ) -> pb.ListEscalationsResponse:
        """List questions."""
        return await self._owners.list(current_principal(), request)

    async def GetEscalation(self, request: pb.GetEscalationRequest, context: Any) -> pb.GetEscalationResponse:
        """Return one."""
        found = await self._owners.get(current_principal(), request.escalation_id)
        return pb.GetEscalationResponse(escalation=found)

    async def AnswerEscalation(
        self, request: pb.AnswerEscalationRequest, context: Any
    ) -> pb.AnswerEscalationResponse:
        """Answer."""
        ended = await self._owners.answer(current_principal(), request.escalation_id, request.text)
        return pb.AnswerEscalationResponse(escalation=ended)

    async def WithdrawEscalation(
        self, request: pb.WithdrawEscalationRequest, context: Any
    ) -> pb.WithdrawEscalationResponse:
        """Take back."""
        ended = await self._owners.withdraw(current_principal(), request.escalation_id, request.reason)
        return pb.WithdrawEscalationResponse(escalation=ended)
