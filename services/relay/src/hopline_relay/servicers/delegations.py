"""DelegationService, and the same entry points for calls that come over a tunnel."""

from __future__ import annotations

from typing import Any

from hopline.relay.v1 import delegation_pb2 as pb
from hopline.relay.v1.delegation_pb2_grpc import DelegationServiceServicer
from hopline_rpc import telemetry
from hopline_rpc.auth import current_principal
from hopline_rpc.principals import Principal

from hopline_relay.closing import Closings
from hopline_relay.delegations import Delegations
from hopline_relay.roots import Roots
from hopline_relay.servicers.fields import checked_payload
from hopline_relay.subagents import From, Subagents


class DelegationHandlers:
    """One entry point a method, for unary calls and for calls over a tunnel alike.

    `turn_id` is the running turn that a call over a tunnel is made from.
    """

    def __init__(self, subagents: Subagents, closings: Closings) -> None:
        self._subagents = subagents
        self._closings = closings

    async def start_subagent(
        self, principal: Principal, request: pb.StartSubagentRequest, *, turn_id: str = ""
    ) -> pb.StartSubagentResponse:
        """Start a child."""
        start = await self._subagents.start(
            principal,
            request.agent,
            request.task,
            fire_and_forget=request.is_fire_and_forget,
            at=_from(request, turn_id),
        )
        return pb.StartSubagentResponse(start=start)

    async def start_self_subagent(
        self, principal: Principal, request: pb.StartSelfSubagentRequest, *, turn_id: str = ""
    ) -> pb.StartSelfSubagentResponse:
        """Start a copy of the caller."""
        start = await self._subagents.start(
            principal,
            "",
            request.task,
            fire_and_forget=request.is_fire_and_forget,
            at=_from(request, turn_id),
        )
        return pb.StartSelfSubagentResponse(start=start)

    async def report_to_caller(
        self, principal: Principal, request: pb.ReportToCallerRequest, *, turn_id: str = ""
    ) -> pb.ReportToCallerResponse:
        """Report."""
        payload = checked_payload(request.payload_json)
        return await self._subagents.report(principal, request.text, payload, _from(request, turn_id))

    async def message_agent(
        self, principal: Principal, request: pb.MessageAgentRequest, *, turn_id: str = ""
    ) -> pb.MessageAgentResponse:
        """Say something in a standing conversation."""
        payload = checked_payload(request.payload_json)
        return await self._subagents.message(
            principal, request.agent, request.text, payload, _from(request, turn_id)
        )

    async def send_message_to_session(
        self, principal: Principal, request: pb.SendMessageToSessionRequest, *, turn_id: str = ""
    ) -> pb.SendMessageToSessionResponse:
        """Say something in a session."""
        return await self._subagents.say(principal, request.session_id, request.text, _from(request, turn_id))

    async def close_subagent(
        self, principal: Principal, request: pb.CloseSubagentRequest, *, turn_id: str = ""
    ) -> pb.CloseSubagentResponse:
        """Close a child."""
        return await self._closings.close(
            principal, request.session_id, from_session_id=request.caller_session_id, from_turn_id=turn_id
        )


def _from(request: Any, turn_id: str) -> From:
    return From(
        session_id=request.caller_session_id,
        turn_id=turn_id,
        request_id=request.request_id,
        traceparent=telemetry.current_traceparent(),
    )


class DelegationServicer(DelegationServiceServicer):
    """The service."""

    def __init__(self, handlers: DelegationHandlers, delegations: Delegations, roots: Roots) -> None:
        self._handlers = handlers
        self._delegations = delegations
        self._roots = roots

    async def StartSubagent(self, request: pb.StartSubagentRequest, context: Any) -> pb.StartSubagentResponse:
        """Start a child."""
        return await self._handlers.start_subagent(current_principal(), request)

    async def StartSelfSubagent(
        self, request: pb.StartSelfSubagentRequest, context: Any
    ) -> pb.StartSelfSubagentResponse:
        """Start a copy of the caller."""
        return await self._handlers.start_self_subagent(current_principal(), request)

    async def ReportToCaller(
        self, request: pb.ReportToCallerRequest, context: Any
    ) -> pb.ReportToCallerResponse:
        """Report."""
        return await self._handlers.report_to_caller(current_principal(), request)

    async def MessageAgent(self, request: pb.MessageAgentRequest, context: Any) -> pb.MessageAgentResponse:
        """Say something in a standing conversation."""
        return await self._handlers.message_agent(current_principal(), request)

    async def SendMessageToSession(
        self, request: pb.SendMessageToSessionRequest, context: Any
    ) -> pb.SendMessageToSessionResponse:
        """Say something in a session."""
        return await self._handlers.send_message_to_session(current_principal(), request)

    async def CloseSubagent(self, request: pb.CloseSubagentRequest, context: Any) -> pb.CloseSubagentResponse:
        """Close a child."""
        return await self._handlers.close_subagent(current_principal(), request)

    async def Cancel(self, request: pb.CancelRequest, context: Any) -> pb.CancelResponse:
        """Cancel a turn."""
        return await self._delegations.cancel(current_principal(), request)

    async def GetTurn(self, request: pb.GetTurnRequest, context: Any) -> pb.GetTurnResponse:
        """Return one turn."""
        turn = await self._delegations.get(current_principal(), request.turn_id)
        return pb.GetTurnResponse(turn=turn)

    async def ListTurns(self, request: pb.ListTurnsRequest, context: Any) -> pb.ListTurnsResponse:
        """List turns."""
        return await self._delegations.list_turns(current_principal(), request)

    async def ExtendRoot(self, request: pb.ExtendRootRequest, context: Any) -> pb.ExtendRootResponse:
        """Grant a root more turns."""
        return pb.ExtendRootResponse(root=await self._roots.extend(current_principal(), request))

    async def GetRoot(self, request: pb.GetRootRequest, context: Any) -> pb.GetRootResponse:
        """Return one root."""
        return pb.GetRootResponse(root=await self._roots.get(current_principal(), request))

    async def ListExhaustedRoots(
        self, request: pb.ListExhaustedRootsRequest, context: Any
    ) -> pb.ListExhaustedRootsResponse:
        """List roots that wait for somebody to extend them."""
        return await self._roots.list_exhausted(current_principal(), request)
