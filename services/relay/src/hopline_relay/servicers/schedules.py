"""ScheduleService."""

from __future__ import annotations

from typing import Any

from hopline.relay.v1 import schedule_pb2 as pb
from hopline.relay.v1.schedule_pb2_grpc import ScheduleServiceServicer
from hopline_rpc.auth import current_principal

from hopline_relay.schedules import Schedules


class ScheduleServicer(ScheduleServiceServicer):
    """The service."""

    def __init__(self, schedules: Schedules) -> None:
        self._schedules = schedules

    async def AddSchedule(self, request: pb.AddScheduleRequest, context: Any) -> pb.AddScheduleResponse:
        """Set one."""
        return pb.AddScheduleResponse(schedule=await self._schedules.add(current_principal(), request))

    async def ListSchedules(self, request: pb.ListSchedulesRequest, context: Any) -> pb.ListSchedulesResponse:
        """Return a page."""
        return await self._schedules.list(current_principal(), request)

    async def GetSchedule(self, request: pb.GetScheduleRequest, context: Any) -> pb.GetScheduleResponse:
        """Return one."""
        found = await self._schedules.get(current_principal(), request.schedule_id)
        return pb.GetScheduleResponse(schedule=found)

    async def PauseSchedule(self, request: pb.PauseScheduleRequest, context: Any) -> pb.PauseScheduleResponse:
        """Let it fire no more."""
        paused = await self._schedules.pause(current_principal(), request.schedule_id)
        return pb.PauseScheduleResponse(schedule=paused)

    async def ResumeSchedule(
        self, request: pb.ResumeScheduleRequest, context: Any
    ) -> pb.ResumeScheduleResponse:
        """Let it fire again."""
        resumed = await self._schedules.resume(current_principal(), request.schedule_id)
        return pb.ResumeScheduleResponse(schedule=resumed)

    async def RemoveSchedule(
        self, request: pb.RemoveScheduleRequest, context: Any
    ) -> pb.RemoveScheduleResponse:
        """Remove it."""
        await self._schedules.remove(current_principal(), request.schedule_id)
        return pb.RemoveScheduleResponse()
