"""PluginSessionService."""

from __future__ import annotations

from typing import Any

from hopline.relay.v1 import plugin_session_pb2 as pb
from hopline.relay.v1.plugin_session_pb2_grpc import PluginSessionServiceServicer
from hopline_rpc.auth import current_principal

from hopline_relay.plugins.chats import Chats


class PluginSessionServicer(PluginSessionServiceServicer):
    """The service."""

    def __init__(self, chats: Chats) -> None:
        self._chats = chats

    async def SpawnSubagent(self, request: pb.SpawnSubagentRequest, context: Any) -> pb.SpawnSubagentResponse:
        """Start a subagent."""
        return await self._chats.spawn(current_principal(), request)

    async def SendPeer(self, request: pb.SendPeerRequest, context: Any) -> pb.SendPeerResponse:
        """Send into another session."""
        return await self._chats.send(current_principal(), request)

    async def GetPeer(self, request: pb.GetPeerRequest, context: Any) -> pb.GetPeerResponse:
        """Return another session."""
        return await self._chats.peer(current_principal(), request)

    async def ReadConversation(
        self, request: pb.ReadConversationRequest, context: Any
    ) -> pb.ReadConversationResponse:
        """Return a transcript."""
        return await self._chats.read(current_principal(), request)

    async def PostMessage(self, request: pb.PostMessageRequest, context: Any) -> pb.PostMessageResponse:
        """Post into the session."""
        return await self._chats.post(current_principal(), request)
