"""PluginToolService."""

from __future__ import annotations

from typing import Any

from hopline.relay.v1 import plugin_tool_pb2 as pb
from hopline.relay.v1.plugin_tool_pb2_grpc import PluginToolServiceServicer
from hopline_rpc.auth import current_principal

from hopline_relay.plugins.contributed import Contributed


class PluginToolServicer(PluginToolServiceServicer):
    """The service."""

    def __init__(self, contributed: Contributed) -> None:
        self._contributed = contributed

    async def CallPluginTool(
        self, request: pb.CallPluginToolRequest, context: Any
    ) -> pb.CallPluginToolResponse:
        """Run a tool."""
        return await self._contributed.call(current_principal(), request)

    async def UseSkill(self, request: pb.UseSkillRequest, context: Any) -> pb.UseSkillResponse:
        """Return a skill."""
        return self._contributed.use_skill(current_principal(), request.skill)
