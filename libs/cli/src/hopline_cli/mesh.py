"""The mesh a command talks to: found once, one channel a service, calls that fail with `HoplineError`."""

from __future__ import annotations

import dataclasses
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import grpc.aio
from hopline_client import discovery
from hopline_client.dialing import bearer, dialer
from hopline_rpc.errors import HoplineError, from_rpc_error
from hopline_rpc.tls import TlsSettings

from hopline_cli.tls import client_context

if TYPE_CHECKING:
    from hopline.quota.v1.credit_pb2_grpc import CreditServiceAsyncStub
    from hopline.quota.v1.usage_pb2_grpc import UsageServiceAsyncStub
    from hopline.registry.v1.agent_pb2_grpc import AgentServiceAsyncStub
    from hopline.registry.v1.crew_pb2_grpc import CrewServiceAsyncStub
    from hopline.registry.v1.identity_pb2_grpc import IdentityServiceAsyncStub
    from hopline.registry.v1.model_pb2_grpc import ModelServiceAsyncStub
    from hopline.registry.v1.plugin_pb2_grpc import PluginServiceAsyncStub
    from hopline.registry.v1.workspace_pb2_grpc import WorkspaceServiceAsyncStub
    from hopline.relay.v1.audit_pb2_grpc import AuditServiceAsyncStub
    from hopline.relay.v1.dead_letter_pb2_grpc import DeadLetterServiceAsyncStub
    from hopline.relay.v1.delegation_pb2_grpc import DelegationServiceAsyncStub
    from hopline.relay.v1.draft_pb2_grpc import DraftServiceAsyncStub
    from hopline.relay.v1.escalation_pb2_grpc import EscalationServiceAsyncStub
    from hopline.relay.v1.exchange_pb2_grpc import ExchangeServiceAsyncStub
    from hopline.relay.v1.floor_pb2_grpc import FloorServiceAsyncStub
    from hopline.relay.v1.message_pb2_grpc import MessageServiceAsyncStub
    from hopline.relay.v1.schedule_pb2_grpc import ScheduleServiceAsyncStub
    from hopline.relay.v1.session_pb2_grpc import SessionServiceAsyncStub
    from hopline.relay.v1.timer_pb2_grpc import TimerServiceAsyncStub
    from hopline.relay.v1.todo_pb2_grpc import TodoServiceAsyncStub
    from hopline.relay.v1.webhook_pb2_grpc import WebhookServiceAsyncStub

PAGE: Final = 200


_WORKSPACE: Final = "hopline-workspace"
# As long as the longest wait of a call, and room to answer.
_CALL_SECONDS: Final = 60.0


class CallingChannel:
    """A channel for stubs whose calls carry the credential and fail with `HoplineError`."""

    def __init__(self, channel: grpc.aio.Channel, metadata: tuple[tuple[str, str], ...]) -> None:
        self._channel = channel
        self._metadata = metadata
        self.close = channel.close

    def unary_unary(self, *shape: Any, **more: Any) -> Callable[[Any], Awaitable[Any]]:
        """Return the callable of a method with one answer."""
        method: Any = self._channel.unary_unary(*shape, **more)

        async def call(request: Any) -> Any:
            try:
                return await method(request, timeout=_CALL_SECONDS, metadata=self._metadata)
            except grpc.aio.AioRpcError as error:
                raise from_rpc_error(error) from error

        return call

    def unary_stream(self, *shape: Any, **more: Any) -> Callable[[Any], AsyncIterator[Any]]:
        """Return the callable of a method with a stream of answers."""
        method: Any = self._channel.unary_stream(*shape, **more)

        async def call(request: Any) -> AsyncIterator[Any]:
            try:
                async for answer in method(request, metadata=self._metadata):
                    yield answer
            except grpc.aio.AioRpcError as error:
                raise from_rpc_error(error) from error

        return call


class Mesh:
    """A found mesh and the credential to use there."""

    def __init__(self, endpoints: discovery.Endpoints, token: str, workspace: str = "") -> None:
        self.endpoints = endpoints
        workspaces = ((_WORKSPACE, workspace),) if workspace else ()
        self._metadata = (*bearer(token), *workspaces)
        self._channels: dict[str, CallingChannel] = {}

    def channel(self, service: str) -> grpc.aio.Channel:
        """Return the channel to `registry`, `relay` or `quota`."""
        found = self._channels.get(service)
        if found is None:
            tls, insecure = tls_settings()
            dial = dialer(tls, insecure=insecure)
            found = CallingChannel(dial(self.endpoints.target(service)), self._metadata)
            self._channels[service] = found
        return cast("grpc.aio.Channel", found)  # all that generated stubs use of one

    async def outside(self) -> discovery.Endpoints:
        """Return the addresses as the gateway tells them: by the URL that others reach it by.

        A data directory knows only where it listens. Without a gateway, what is known is all there is.
        """
        url = self.endpoints.gateway
        tls = https_context() if url.startswith("https:") else None
        try:
            return await discovery.Gateway(url, tls).endpoints() if url else self.endpoints
        except HoplineError:
            return self.endpoints

    async def close(self) -> None:
        """Close the channels."""
        for channel in self._channels.values():
            await channel.close()

    @property
    def workspaces(self) -> WorkspaceServiceAsyncStub:
        """Workspaces and policies."""
        from hopline.registry.v1.workspace_pb2_grpc import WorkspaceServiceStub

        return WorkspaceServiceStub(self.channel("registry"))

    @property
    def identities(self) -> IdentityServiceAsyncStub:
        """Users, roles and tokens."""
        from hopline.registry.v1.identity_pb2_grpc import IdentityServiceStub

        return IdentityServiceStub(self.channel("registry"))

    @property
    def agents(self) -> AgentServiceAsyncStub:
        """Agents."""
        from hopline.registry.v1.agent_pb2_grpc import AgentServiceStub

        return AgentServiceStub(self.channel("registry"))

    @property
    def plugins(self) -> PluginServiceAsyncStub:
        """Plugins."""
        from hopline.registry.v1.plugin_pb2_grpc import PluginServiceStub

        return PluginServiceStub(self.channel("registry"))

    @property
    def crews(self) -> CrewServiceAsyncStub:
        """Crews."""
        from hopline.registry.v1.crew_pb2_grpc import CrewServiceStub

        return CrewServiceStub(self.channel("registry"))

    @property
    def models(self) -> ModelServiceAsyncStub:
        """The catalogue of models."""
        from hopline.registry.v1.model_pb2_grpc import ModelServiceStub

        return ModelServiceStub(self.channel("registry"))

    @property
    def messages(self) -> MessageServiceAsyncStub:
        """Messages, asks and inboxes."""
        from hopline.relay.v1.message_pb2_grpc import MessageServiceStub

        return MessageServiceStub(self.channel("relay"))

    @property
    def sessions(self) -> SessionServiceAsyncStub:
        """Sessions."""
        from hopline.relay.v1.session_pb2_grpc import SessionServiceStub

        return SessionServiceStub(self.channel("relay"))

    @property
    def turns(self) -> DelegationServiceAsyncStub:
        """Turns."""
        from hopline.relay.v1.delegation_pb2_grpc import DelegationServiceStub

        return DelegationServiceStub(self.channel("relay"))

    @property
    def escalations(self) -> EscalationServiceAsyncStub:
        """Questions to owners."""
        from hopline.relay.v1.escalation_pb2_grpc import EscalationServiceStub

        return EscalationServiceStub(self.channel("relay"))

    @property
    def drafts(self) -> DraftServiceAsyncStub:
        """Answers that are held."""
        from hopline.relay.v1.draft_pb2_grpc import DraftServiceStub

        return DraftServiceStub(self.channel("relay"))

    @property
    def letters(self) -> DeadLetterServiceAsyncStub:
        """Dead letters."""
        from hopline.relay.v1.dead_letter_pb2_grpc import DeadLetterServiceStub

        return DeadLetterServiceStub(self.channel("relay"))

    @property
    def todos(self) -> TodoServiceAsyncStub:
        """Return the todo service."""
        from hopline.relay.v1.todo_pb2_grpc import TodoServiceStub

        return TodoServiceStub(self.channel("relay"))

    @property
    def timers(self) -> TimerServiceAsyncStub:
        """Return the timer service."""
        from hopline.relay.v1.timer_pb2_grpc import TimerServiceStub

        return TimerServiceStub(self.channel("relay"))

    @property
    def schedules(self) -> ScheduleServiceAsyncStub:
        """Schedules."""
        from hopline.relay.v1.schedule_pb2_grpc import ScheduleServiceStub

        return ScheduleServiceStub(self.channel("relay"))

    @property
    def webhooks(self) -> WebhookServiceAsyncStub:
        """Incoming webhooks."""
        from hopline.relay.v1.webhook_pb2_grpc import WebhookServiceStub

        return WebhookServiceStub(self.channel("relay"))

    @property
    def events(self) -> AuditServiceAsyncStub:
        """The audit log."""
        from hopline.relay.v1.audit_pb2_grpc import AuditServiceStub

        return AuditServiceStub(self.channel("relay"))

    @property
    def usage(self) -> UsageServiceAsyncStub:
        """What is used of each limit."""
        from hopline.quota.v1.usage_pb2_grpc import UsageServiceStub

        return UsageServiceStub(self.channel("quota"))

    @property
    def exchanges(self) -> ExchangeServiceAsyncStub:
        """What agents have sent and received."""
        from hopline.relay.v1.exchange_pb2_grpc import ExchangeServiceStub

        return ExchangeServiceStub(self.channel("relay"))

    @property
    def floor(self) -> FloorServiceAsyncStub:
        """What goes on right now, and why something does not."""
        from hopline.relay.v1.floor_pb2_grpc import FloorServiceStub

        return FloorServiceStub(self.channel("relay"))

    @property
    def credits(self) -> CreditServiceAsyncStub:
        """What was paid in and what is left."""
        from hopline.quota.v1.credit_pb2_grpc import CreditServiceStub

        return CreditServiceStub(self.channel("quota"))


def tls_settings() -> tuple[TlsSettings | None, bool]:
    """Return how connections are secured, by the same variables as the services read."""

    def path(name: str) -> Path | None:
        value = os.environ.get(name)
        return Path(value) if value else None

    tls = TlsSettings(path("HOPLINE_TLS_CERT"), path("HOPLINE_TLS_KEY"), path("HOPLINE_TLS_CA"))
    insecure = os.environ.get("HOPLINE_INSECURE", "").lower() in {"1", "true", "yes", "on"}
    return (tls if tls else None), insecure


def source_of(data: Path | None) -> discovery.Source:
    """Return how the mesh is found: by data directory, given or by the environment, or by URL."""
    source = discovery.source(data)
    if isinstance(source, discovery.Gateway) and source.url.startswith("https:"):
        return dataclasses.replace(source, tls=https_context())
    return source


def https_context() -> ssl.SSLContext:
    """Return how HTTPS is spoken here; certificates that cannot be read are named."""
    try:
        return client_context()
    except OSError as error:
        text = f"HOPLINE_TLS_*: the certificates cannot be read: {error}"
        raise HoplineError("failed_precondition", text) from None


async def find(data: Path | None, workspace: str | None) -> Mesh:
    """Find the mesh, and the token for it."""
    source = source_of(data)
    endpoints = await source.endpoints()
    if isinstance(source, discovery.DataDir):
        token = discovery.read_token(source.admin_token)
    else:
        token = await discovery.token_source()()
    return Mesh(endpoints, token, workspace or "")


Page = Callable[[int, str], Awaitable[tuple[list[Any], str]]]


async def pages(read: Page, limit: int, cursor: str = "") -> tuple[list[Any], str]:
    """Read pages until `limit` items are there (0: all); returns them and where the next would start."""
    if limit < 0:
        raise HoplineError("invalid_argument", "--limit: must not be negative")
    items: list[Any] = []
    while True:
        size = PAGE if not limit else min(PAGE, limit - len(items))
        found, cursor = await read(size, cursor)
        items += found
        if not cursor or (limit and len(items) >= limit):
            return items, cursor
