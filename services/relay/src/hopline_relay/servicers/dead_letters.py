"""DeadLetterService."""

from __future__ import annotations

from typing import Any

from hopline.relay.v1 import dead_letter_pb2 as pb
from hopline.relay.v1.dead_letter_pb2_grpc import DeadLetterServiceServicer
from hopline_rpc.auth import current_principal

from hopline_relay.dead_letters import DeadLetters


class DeadLetterServicer(DeadLetterServiceServicer):
    """The service."""

    def __init__(self, letters: DeadLetters) -> None:
        self._letters = letters

    async def ListDeadLetters(
        self, request: pb.ListDeadLettersRequest, context: Any
    ) -> pb.ListDeadLettersResponse:
        """Return a page."""
        return await self._letters.list_letters(current_principal(), request)

    async def GetDeadLetter(self, request: pb.GetDeadLetterRequest, context: Any) -> pb.GetDeadLetterResponse:
        """Return one."""
        letter = await self._letters.get(current_principal(), request.turn_id)
        return pb.GetDeadLetterResponse(dead_letter=letter)

    async def RetryDeadLetters(
        self, request: pb.RetryDeadLettersRequest, context: Any
    ) -> pb.RetryDeadLettersResponse:
        """Send again."""
        queued = await self._letters.retry(current_principal(), list(request.turn_ids))
        return pb.RetryDeadLettersResponse(turn_ids=queued)

    async def PurgeDeadLetters(
        self, request: pb.PurgeDeadLettersRequest, context: Any
    ) -> pb.PurgeDeadLettersResponse:
        """Strike off."""
        purged = await self._letters.purge(current_principal(), list(request.turn_ids))
        return pb.PurgeDeadLettersResponse(purged=purged)
