"""AdmissionService."""

from __future__ import annotations

from typing import Any

from hopline.quota.v1 import admission_pb2 as pb
from hopline.quota.v1.admission_pb2_grpc import AdmissionServiceServicer

from hopline_quota.admission import Admission
from hopline_quota.servicers import convert
from hopline_quota.store import CountersLostError, Store

_STATES = {True: pb.BEGIN_STATE_STARTED, False: pb.BEGIN_STATE_NO_SLOT}


class AdmissionServicer(AdmissionServiceServicer):
    """Every method answers `counters_lost`, having done nothing, when the store is of another epoch."""

    def __init__(self, store: Store, admission: Admission) -> None:
        self._store = store
        self._admission = admission

    async def Admit(self, request: pb.AdmitRequest, context: Any) -> pb.AdmitResponse:
        """Settle, then decide each item in order."""
        settled = convert.settlements(request.settled)
        entries = [(convert.item(entry), entry.subject_assertion) for entry in request.items]
        try:
            decisions = await self._admission.admit(request.epoch, settled, entries)
        except CountersLostError:
            return pb.AdmitResponse(counters_lost=True)
        return pb.AdmitResponse(results=[convert.result(decision) for decision in decisions])

    async def Refund(self, request: pb.RefundRequest, context: Any) -> pb.RefundResponse:
        """Settle charges."""
        try:
            await self._store.settle(request.epoch, convert.settlements(request.settled))
        except CountersLostError:
            return pb.RefundResponse(counters_lost=True)
        return pb.RefundResponse()

    async def BeginTurn(self, request: pb.BeginTurnRequest, context: Any) -> pb.BeginTurnResponse:
        """Make turns running, each with a slot where it needs one."""
        try:
            started = await self._store.begin(
                request.epoch, [convert.begin(entry) for entry in request.items]
            )
        except CountersLostError:
            return pb.BeginTurnResponse(counters_lost=True)
        return pb.BeginTurnResponse(states=[_STATES[each] for each in started])

    async def EndTurn(self, request: pb.EndTurnRequest, context: Any) -> pb.EndTurnResponse:
        """Take turns out of what runs and is queued, or put them back."""
        try:
            await self._store.end(request.epoch, [convert.end(entry) for entry in request.items])
        except CountersLostError:
            return pb.EndTurnResponse(counters_lost=True)
        return pb.EndTurnResponse()

    async def SetWaiting(self, request: pb.SetWaitingRequest, context: Any) -> pb.SetWaitingResponse:
        """Give slots back, or retake them."""
        try:
            await self._store.set_waiting(request.epoch, [convert.waiting(entry) for entry in request.items])
        except CountersLostError:
            return pb.SetWaitingResponse(counters_lost=True)
        return pb.SetWaitingResponse()

    async def ExtendRoot(self, request: pb.ExtendRootRequest, context: Any) -> pb.ExtendRootResponse:
        """Let a root start more turns."""
        try:
            await self._store.extend_root(
                request.epoch, request.workspace_id, request.root_id, request.extra_turns
            )
        except CountersLostError:
            return pb.ExtendRootResponse(counters_lost=True)
        return pb.ExtendRootResponse()

    async def Seed(self, request: pb.SeedRequest, context: Any) -> pb.SeedResponse:
        """Replace all counters, once an epoch."""
        accepted, epoch = await self._store.seed(request.epoch, convert.record(request))
        return pb.SeedResponse(accepted=accepted, epoch=epoch)
