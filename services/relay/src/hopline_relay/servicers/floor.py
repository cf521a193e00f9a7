"""FloorService."""

from __future__ import annotations

from typing import Any

from hopline.relay.v1 import floor_pb2 as pb
from hopline.relay.v1.floor_pb2_grpc import FloorServiceServicer
from hopline_rpc.auth import current_principal

from hopline_relay.floor import Floor


class FloorServicer(FloorServiceServicer):
    """The service."""

    def __init__(self, floor: Floor) -> None:
        self._floor = floor

    async def GetFloor(self, request: pb.GetFloorRequest, context: Any) -> pb.GetFloorResponse:
        """Return what goes on."""
        return await self._floor.get_floor(current_principal(), request)

    async def GetTree(self, request: pb.GetTreeRequest, context: Any) -> pb.GetTreeResponse:
        """Return a tree of delegations."""
        return await self._floor.get_tree(current_principal(), request)
