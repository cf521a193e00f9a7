"""PluginSessionService."""

from __future__ import annotations

from typing import Any

from hopline.relay.v1 import plugin_session_pb2 as pb
from hopline.relay.v1.plugin_session_pb2_grpc import PluginSessionServiceServicer
from hopline_rpc.auth import current_principal

from hopline_relay.plugins.chats import Chats
from hopline_relay.plugins.leaving import Leaving


class PluginSessionServicer(PluginSessionServiceServicer):
    """The service."""

    def __init__(self, chats: Chats, leaving: Leaving) -> None:
        self._chats = chats
        self._leaving = leaving

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

    async def CreateSessionTodos(
        self, request: pb.CreateSessionTodosRequest, context: Any
    ) -> pb.CreateSessionTodosResponse:
        """Note todos."""
        return await self._leaving.create(current_principal(), request)

    async def ListSessionTodos(
        self, request: pb.ListSessionTodosRequest, context: Any
    ) -> pb.ListSessionTodosResponse:
        """List them."""
        return await self._leaving.list(current_principal(), request)

    async def UpdateSessionTodo(
        self, request: pb.UpdateSessionTodoRequest, context: Any
    ) -> pb.UpdateSessionTodoResponse:
        """Change one."""
        return await self._leaving.update(current_principal(), request)

    async def CompleteSessionTodo(
        self, request: pb.CompleteSessionTodoRequest, context: Any
    ) -> pb.CompleteSessionTodoResponse:
        """Complete one."""
        return await self._leaving.complete(current_principal(), request)

    async def DeleteSessionTodo(
        self, request: pb.DeleteSessionTodoRequest, context: Any
    ) -> pb.DeleteSessionTodoResponse:
        """Delete one."""
        return await self._leaving.delete(current_principal(), request)

    async def ScheduleNotify(
        self, request: pb.ScheduleNotifyRequest, context: Any
    ) -> pb.ScheduleNotifyResponse:
        """Set a timer."""
        return await self._leaving.notify(current_principal(), request)
