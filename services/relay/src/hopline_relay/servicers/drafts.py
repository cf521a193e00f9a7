"""DraftService."""

from __future__ import annotations

from typing import Any

from hopline.relay.v1 import draft_pb2 as pb
from hopline.relay.v1.draft_pb2_grpc import DraftServiceServicer
from hopline_rpc.auth import current_principal

from hopline_relay.held_answers import HeldAnswers
from hopline_relay.servicers.messages import MessageHandlers


class DraftServicer(DraftServiceServicer):
    """The service."""

    def __init__(self, handlers: MessageHandlers, answers: HeldAnswers) -> None:
        self._handlers = handlers
        self._answers = answers

    async def ReplyToHuman(self, request: pb.ReplyToHumanRequest, context: Any) -> pb.ReplyToHumanResponse:
        """Answer a person."""
        return await self._handlers.reply_to_human(current_principal(), request)

    async def GetHold(self, request: pb.GetHoldRequest, context: Any) -> pb.GetHoldResponse:
        """Look at a session."""
        return pb.GetHoldResponse(holds=await self._answers.get(current_principal(), request.session_id))

    async def ListHeld(self, request: pb.ListHeldRequest, context: Any) -> pb.ListHeldResponse:
        """List what is held."""
        return await self._answers.list_held(current_principal(), request)

    async def ReleaseDraft(self, request: pb.ReleaseDraftRequest, context: Any) -> pb.ReleaseDraftResponse:
        """Send a draft."""
        turn = await self._answers.release(current_principal(), request.session_id, request.turn_id)
        return pb.ReleaseDraftResponse(turn=turn)
