"""The mesh a command talks to: found once, one channel a service, calls that fail with `HoplineError`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hopline_client import discovery
from hopline_rpc.auth import AUTHORIZATION, WORKSPACE
from hopline_rpc.channels import ClientChannel, Pairs, dial
from hopline_rpc.errors import HoplineError
from hopline_rpc.settings import ServiceSettings

if TYPE_CHECKING:
    from hopline.quota.v1.usage_pb2_grpc import UsageServiceAsyncStub
    from hopline.registry.v1.agent_pb2_grpc import AgentServiceAsyncStub
    from hopline.registry.v1.identity_pb2_grpc import IdentityServiceAsyncStub
    from hopline.registry.v1.workspace_pb2_grpc import WorkspaceServiceAsyncStub
    from hopline.relay.v1.audit_pb2_grpc import AuditServiceAsyncStub
    from hopline.relay.v1.delegation_pb2_grpc import DelegationServiceAsyncStub
    from hopline.relay.v1.message_pb2_grpc import MessageServiceAsyncStub
    from hopline.relay.v1.session_pb2_grpc import SessionServiceAsyncStub

PAGE: Final = 200


class Mesh:
    """A found mesh and the credential to use there."""

    def __init__(self, endpoints: discovery.Endpoints, token: str, workspace: str = "") -> None:
        self.endpoints = endpoints
        self._token = token
        self._workspace = workspace
        self._channels: dict[str, ClientChannel] = {}

    def _credentials(self) -> Pairs:
        pairs: Pairs = ((AUTHORIZATION, f"Bearer {self._token}"),)
        return (*pairs, (WORKSPACE, self._workspace)) if self._workspace else pairs

    def channel(self, service: str) -> ClientChannel:
        """Return the channel to `registry`, `relay` or `quota`."""
        found = self._channels.get(service)
        if found is None:
            settings = ServiceSettings.load()
            found = dial(
                self.endpoints.target(service),
                tls=settings.tls or None,
                insecure=settings.insecure,
                credentials=self._credentials,
            )
            self._channels[service] = found
        return found

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
    def events(self) -> AuditServiceAsyncStub:
        """The audit log."""
        from hopline.relay.v1.audit_pb2_grpc import AuditServiceStub

        return AuditServiceStub(self.channel("relay"))

    @property
    def usage(self) -> UsageServiceAsyncStub:
        """What is used of each limit."""
        from hopline.quota.v1.usage_pb2_grpc import UsageServiceStub

        return UsageServiceStub(self.channel("quota"))


async def find(data: Path | None, workspace: str | None) -> Mesh:
    """Find the mesh by data directory (given, or by the environment) or by URL, with the token for it."""
    source = discovery.source(data)
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
