"""The RPCs behind the tools, made in the caller's name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import grpc.aio
from hopline.quota.v1 import usage_pb2_grpc
from hopline.registry.v1 import visibility_pb2_grpc
from hopline.relay.v1 import (
    delegation_pb2_grpc,
    draft_pb2_grpc,
    escalation_pb2_grpc,
    message_pb2_grpc,
    plugin_tool_pb2_grpc,
    session_pb2_grpc,
    timer_pb2_grpc,
    todo_pb2_grpc,
    tool_pb2_grpc,
    webhook_pb2_grpc,
)
from hopline_rpc.auth import AUTHORIZATION
from hopline_rpc.errors import from_rpc_error
from hopline_rpc.principals import Principal
from hopline_rpc.telemetry import TRACEPARENT, current_traceparent

Answer = TypeVar("Answer")
CALL_SECONDS: Final = 10.0
# What an RPC that waits gets beyond its wait, to begin and to answer.
WAIT_MARGIN: Final = 8.0


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a request, and which of its sessions the request is bound to (empty: its inbox session)."""

    principal: Principal
    session_id: str = ""


class Mesh:
    """Stubs of the services that the tools need."""

    def __init__(self, registry: grpc.aio.Channel, relay: grpc.aio.Channel, quota: grpc.aio.Channel) -> None:
        self.visibility = visibility_pb2_grpc.VisibilityServiceStub(registry)
        self.messages = message_pb2_grpc.MessageServiceStub(relay)
        self.sessions = session_pb2_grpc.SessionServiceStub(relay)
        self.tools = tool_pb2_grpc.ToolServiceStub(relay)
        self.plugin_tools = plugin_tool_pb2_grpc.PluginToolServiceStub(relay)
        self.delegation = delegation_pb2_grpc.DelegationServiceStub(relay)
        self.drafts = draft_pb2_grpc.DraftServiceStub(relay)
        self.todos = todo_pb2_grpc.TodoServiceStub(relay)
        self.timers = timer_pb2_grpc.TimerServiceStub(relay)
        self.escalations = escalation_pb2_grpc.EscalationServiceStub(relay)
        # Called as this service itself.
        self.webhooks = webhook_pb2_grpc.WebhookServiceStub(relay)
        self.usage = usage_pb2_grpc.UsageServiceStub(quota)


async def call(
    method: Callable[..., Awaitable[Answer]],
    request: object,
    caller: Caller,
    seconds: float = CALL_SECONDS,
) -> Answer:
    """Make one RPC with the caller's assertion, within `seconds`; raises HoplineError."""
    metadata = [(AUTHORIZATION, f"Bearer {caller.principal.assertion}")]
    if traceparent := current_traceparent():
        metadata.append((TRACEPARENT, traceparent))
    try:
        return await method(request, timeout=seconds, metadata=tuple(metadata))
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error) from error
