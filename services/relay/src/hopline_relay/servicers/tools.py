"""ToolService."""

from __future__ import annotations

from typing import Any

from hopline.relay.v1 import tool_pb2 as pb
from hopline.relay.v1.tool_pb2_grpc import ToolServiceServicer
from hopline_rpc.auth import current_principal

from hopline_relay.neighbours import HANDED_ON
from hopline_relay.servicers.messages import MessageHandlers


class ToolServicer(ToolServiceServicer):
    """The service."""

    def __init__(self, handlers: MessageHandlers) -> None:
        self._handlers = handlers

    async def ListServerTools(
        self, request: pb.ListServerToolsRequest, context: Any
    ) -> pb.ListServerToolsResponse:
        """List an agent's tools."""
        here = _was_handed_on(context)
        return await self._handlers.list_server_tools(current_principal(), request, here=here)

    async def CallTool(self, request: pb.CallToolRequest, context: Any) -> pb.CallToolResponse:
        """Run a tool."""
        here = _was_handed_on(context)
        return await self._handlers.call_tool(current_principal(), request, here=here)


def _was_handed_on(context: Any) -> bool:
    """Tell whether another relay has sent the caller here."""
    return any(key == HANDED_ON for key, _ in context.invocation_metadata() or ())
