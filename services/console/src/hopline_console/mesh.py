"""The RPCs behind the pages, made in the person's name."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, cast

import grpc.aio
from hopline.quota.v1 import credit_pb2_grpc, usage_pb2_grpc
from hopline.registry.v1 import (
    agent_pb2_grpc,
    crew_pb2_grpc,
    identity_pb2_grpc,
    model_pb2_grpc,
    plugin_pb2_grpc,
    visibility_pb2_grpc,
    workspace_pb2_grpc,
)
from hopline.relay.v1 import (
    audit_pb2_grpc,
    dead_letter_pb2_grpc,
    delegation_pb2_grpc,
    draft_pb2_grpc,
    escalation_pb2_grpc,
    exchange_pb2_grpc,
    floor_pb2_grpc,
    hook_state_pb2_grpc,
    message_pb2_grpc,
    schedule_pb2_grpc,
    session_pb2_grpc,
    timer_pb2_grpc,
    todo_pb2_grpc,
    webhook_pb2_grpc,
)
from hopline_rpc.auth import AUTHORIZATION

if TYPE_CHECKING:
    from hopline.quota.v1.credit_pb2_grpc import CreditServiceAsyncStub
    from hopline.quota.v1.usage_pb2_grpc import UsageServiceAsyncStub
    from hopline.registry.v1.agent_pb2_grpc import AgentServiceAsyncStub
    from hopline.registry.v1.crew_pb2_grpc import CrewServiceAsyncStub
    from hopline.registry.v1.identity_pb2_grpc import IdentityServiceAsyncStub
    from hopline.registry.v1.model_pb2_grpc import ModelServiceAsyncStub
    from hopline.registry.v1.plugin_pb2_grpc import PluginServiceAsyncStub
    from hopline.registry.v1.visibility_pb2_grpc import VisibilityServiceAsyncStub
    from hopline.registry.v1.workspace_pb2_grpc import WorkspaceServiceAsyncStub
    from hopline.relay.v1.audit_pb2_grpc import AuditServiceAsyncStub
    from hopline.relay.v1.dead_letter_pb2_grpc import DeadLetterServiceAsyncStub
    from hopline.relay.v1.delegation_pb2_grpc import DelegationServiceAsyncStub
    from hopline.relay.v1.draft_pb2_grpc import DraftServiceAsyncStub
    from hopline.relay.v1.escalation_pb2_grpc import EscalationServiceAsyncStub
    from hopline.relay.v1.exchange_pb2_grpc import ExchangeServiceAsyncStub
    from hopline.relay.v1.floor_pb2_grpc import FloorServiceAsyncStub
    from hopline.relay.v1.hook_state_pb2_grpc import HookStateServiceAsyncStub
    from hopline.relay.v1.message_pb2_grpc import MessageServiceAsyncStub
    from hopline.relay.v1.schedule_pb2_grpc import ScheduleServiceAsyncStub
    from hopline.relay.v1.session_pb2_grpc import SessionServiceAsyncStub
    from hopline.relay.v1.timer_pb2_grpc import TimerServiceAsyncStub
    from hopline.relay.v1.todo_pb2_grpc import TodoServiceAsyncStub
    from hopline.relay.v1.webhook_pb2_grpc import WebhookServiceAsyncStub

# A page is not worth waiting longer for.
CALL_SECONDS: Final = 15.0


class _As:
    """A channel whose calls are made with one assertion; all that generated stubs use of one."""

    def __init__(self, channel: grpc.aio.Channel, assertion: str) -> None:
        self._channel = channel
        self._metadata = ((AUTHORIZATION, f"Bearer {assertion}"),)

    def unary_unary(self, *shape: Any, **more: Any) -> Callable[..., Awaitable[Any]]:
        """Return the callable of a method with one answer."""
        method: Any = self._channel.unary_unary(*shape, **more)

        def call(request: Any, timeout: float = CALL_SECONDS) -> Awaitable[Any]:
            answer: Awaitable[Any] = method(request, timeout=timeout, metadata=self._metadata)
            return answer

        return call

    def unary_stream(self, *shape: Any, **more: Any) -> Callable[..., AsyncIterator[Any]]:
        """Return the callable of a method with a stream of answers."""
        method: Any = self._channel.unary_stream(*shape, **more)

        def call(request: Any, timeout: float | None = None) -> AsyncIterator[Any]:
            answers: AsyncIterator[Any] = method(request, timeout=timeout, metadata=self._metadata)
            return answers

        return call


class Mesh:
    """Typed stubs of every service, for one person's page: calls raise `HoplineError`."""

    def __init__(self, channels: dict[str, grpc.aio.Channel], assertion: str) -> None:
        self._registry = cast("grpc.aio.Channel", _As(channels["registry"], assertion))
        self._relay = cast("grpc.aio.Channel", _As(channels["relay"], assertion))
        self._quota = cast("grpc.aio.Channel", _As(channels["quota"], assertion))

    @functools.cached_property
    def agents(self) -> AgentServiceAsyncStub:
        """Agents."""
        return agent_pb2_grpc.AgentServiceStub(self._registry)

    @functools.cached_property
    def crews(self) -> CrewServiceAsyncStub:
        """Crews and their members."""
        return crew_pb2_grpc.CrewServiceStub(self._registry)

    @functools.cached_property
    def identities(self) -> IdentityServiceAsyncStub:
        """People, roles and tokens."""
        return identity_pb2_grpc.IdentityServiceStub(self._registry)

    @functools.cached_property
    def models(self) -> ModelServiceAsyncStub:
        """The models that agents run."""
        return model_pb2_grpc.ModelServiceStub(self._registry)

    @functools.cached_property
    def plugins(self) -> PluginServiceAsyncStub:
        """Plugins."""
        return plugin_pb2_grpc.PluginServiceStub(self._registry)

    @functools.cached_property
    def visibility(self) -> VisibilityServiceAsyncStub:
        """Who sees and reaches whom."""
        return visibility_pb2_grpc.VisibilityServiceStub(self._registry)

    @functools.cached_property
    def workspaces(self) -> WorkspaceServiceAsyncStub:
        """Workspaces and their limits."""
        return workspace_pb2_grpc.WorkspaceServiceStub(self._registry)

    @functools.cached_property
    def events(self) -> AuditServiceAsyncStub:
        """The audit log."""
        return audit_pb2_grpc.AuditServiceStub(self._relay)

    @functools.cached_property
    def dead(self) -> DeadLetterServiceAsyncStub:
        """Messages that never got through."""
        return dead_letter_pb2_grpc.DeadLetterServiceStub(self._relay)

    @functools.cached_property
    def turns(self) -> DelegationServiceAsyncStub:
        """Turns, roots and cancelling."""
        return delegation_pb2_grpc.DelegationServiceStub(self._relay)

    @functools.cached_property
    def drafts(self) -> DraftServiceAsyncStub:
        """Answers that are held."""
        return draft_pb2_grpc.DraftServiceStub(self._relay)

    @functools.cached_property
    def escalations(self) -> EscalationServiceAsyncStub:
        """Questions of agents to their owners."""
        return escalation_pb2_grpc.EscalationServiceStub(self._relay)

    @functools.cached_property
    def exchanges(self) -> ExchangeServiceAsyncStub:
        """What agents have sent and received."""
        return exchange_pb2_grpc.ExchangeServiceStub(self._relay)

    @functools.cached_property
    def floor(self) -> FloorServiceAsyncStub:
        """What goes on right now, and why something does not."""
        return floor_pb2_grpc.FloorServiceStub(self._relay)

    @functools.cached_property
    def hooks(self) -> HookStateServiceAsyncStub:
        """How hooks are doing."""
        return hook_state_pb2_grpc.HookStateServiceStub(self._relay)

    @functools.cached_property
    def messages(self) -> MessageServiceAsyncStub:
        """Messages and threads."""
        return message_pb2_grpc.MessageServiceStub(self._relay)

    @functools.cached_property
    def schedules(self) -> ScheduleServiceAsyncStub:
        """Schedules."""
        return schedule_pb2_grpc.ScheduleServiceStub(self._relay)

    @functools.cached_property
    def sessions(self) -> SessionServiceAsyncStub:
        """Sessions, prompts and presence."""
        return session_pb2_grpc.SessionServiceStub(self._relay)

    @functools.cached_property
    def timers(self) -> TimerServiceAsyncStub:
        """Timers of sessions."""
        return timer_pb2_grpc.TimerServiceStub(self._relay)

    @functools.cached_property
    def todos(self) -> TodoServiceAsyncStub:
        """Todos of sessions."""
        return todo_pb2_grpc.TodoServiceStub(self._relay)

    @functools.cached_property
    def webhooks(self) -> WebhookServiceAsyncStub:
        """Incoming webhooks."""
        return webhook_pb2_grpc.WebhookServiceStub(self._relay)

    @functools.cached_property
    def credits(self) -> CreditServiceAsyncStub:
        """Credits of the workspace."""
        return credit_pb2_grpc.CreditServiceStub(self._quota)

    @functools.cached_property
    def usage(self) -> UsageServiceAsyncStub:
        """What is used of every limit."""
        return usage_pb2_grpc.UsageServiceStub(self._quota)
