"""SessionService."""

from __future__ import annotations

from typing import Any

from hopline.relay.v1 import session_pb2 as pb
from hopline.relay.v1.session_pb2_grpc import SessionServiceServicer
from hopline_rpc import telemetry
from hopline_rpc.auth import current_principal

from hopline_relay.asks import Asks
from hopline_relay.drafts import Draft
from hopline_relay.plugins.commands import Commands
from hopline_relay.servicers.messages import wait_of
from hopline_relay.sessions import Sessions


class SessionServicer(SessionServiceServicer):
    """The service."""

    def __init__(self, sessions: Sessions, asks: Asks, commands: Commands) -> None:
        self._sessions = sessions
        self._asks = asks
        self._commands = commands

    async def ListSessions(self, request: pb.ListSessionsRequest, context: Any) -> pb.ListSessionsResponse:
        """List sessions."""
        return await self._sessions.list_sessions(current_principal(), request)

    async def GetSession(self, request: pb.GetSessionRequest, context: Any) -> pb.GetSessionResponse:
        """Return one."""
        session = await self._sessions.get(current_principal(), request.session_id)
        return pb.GetSessionResponse(session=session)

    async def ReadSession(self, request: pb.ReadSessionRequest, context: Any) -> pb.ReadSessionResponse:
        """Return a transcript."""
        return await self._sessions.read(current_principal(), request)

    async def Prompt(self, request: pb.PromptRequest, context: Any) -> pb.PromptResponse:
        """Prompt an agent and wait."""
        draft = Draft(
            principal=current_principal(),
            kind="prompt",
            to=(request.agent,),
            text=request.text,
            session_id=request.session_id,
            request_id=request.request_id.lower(),
            traceparent=telemetry.current_traceparent(),
            own_endpoint=request.own_endpoint,
        )
        # An agent's own endpoint is that agent's alone.
        if not request.own_endpoint:
            self._commands.apply(draft)
        return pb.PromptResponse(turn=await self._asks.ask(draft, wait_of(request)))

    async def GetContext(self, request: pb.GetContextRequest, context: Any) -> pb.GetContextResponse:
        """Return where the caller stands."""
        return await self._sessions.context(current_principal(), request)

    async def GetPresence(self, request: pb.GetPresenceRequest, context: Any) -> pb.GetPresenceResponse:
        """Return who is there."""
        presence = self._sessions.presence(current_principal(), request.agents)
        return pb.GetPresenceResponse(presence=presence)
