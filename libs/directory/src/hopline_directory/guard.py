"""Authentication by the live view: what every service but the registry itself puts in front of its calls."""

from __future__ import annotations

import grpc.aio
from hopline.registry.v1.identity_pb2 import AuthenticateRequest
from hopline.registry.v1.identity_pb2_grpc import IdentityServiceStub
from hopline.registry.v1.visibility_pb2 import Change
from hopline_rpc.auth import Authenticator, Exchange
from hopline_rpc.calls import CallInfo, LiveCalls
from hopline_rpc.clock import Clock
from hopline_rpc.errors import unauthenticated
from hopline_rpc.principals import AssertionVerifier, Principal

from hopline_directory.directory import Directory
from hopline_directory.follower import Follower


def exchange_at(registry: grpc.aio.Channel) -> Exchange:
    """Return what exchanges tokens for assertions at the registry. The channel needs no credential."""
    stub = IdentityServiceStub(registry)

    async def exchange(token: str, workspace: str) -> str:
        answer = await stub.Authenticate(AuthenticateRequest(token=token, workspace=workspace))
        return answer.assertion

    return exchange


class LiveAuthenticator(Authenticator):
    """Verifies by a view that is fresh: one that has fallen silent is asked about before it is trusted."""

    def __init__(self, follower: Follower, exchange: Exchange, mesh_id: str, clock: Clock) -> None:
        directory = follower.directory
        verifier = AssertionVerifier(directory.public_key, mesh_id, clock, directory.is_revoked)
        super().__init__(verifier, exchange, clock)
        self._follower = follower

    async def principal(self, credential: str, workspace: str = "") -> Principal:
        """Return who a token or an assertion stands for; `unavailable` when the registry is out of reach."""
        if not self._follower.fresh:
            await self._follower.ensure_fresh()
        return await super().principal(credential, workspace)

    def at_hand(self, credential: str, workspace: str = "") -> Principal | None:
        """Return who a token stands for where that is known and the view is fresh; else None."""
        return super().at_hand(credential, workspace) if self._follower.fresh else None


def end_revoked(
    news: list[Change], directory: Directory, authenticator: Authenticator, live: LiveCalls
) -> None:
    """Forget credentials that a change took away, and end the calls that were made with them.

    To be called for every change, by a listener of the follower: what a call does after its principal
    was revoked, its stream or its wait, must not go on.
    """
    gone = False
    for change in news:
        kind = change.WhichOneof("entity")
        if kind == "token_revoked":
            authenticator.drop(change.token_revoked.id)
            gone = True
        elif kind == "agent_deleted":
            authenticator.drop(change.agent_deleted)
            gone = True
        elif kind == "plugin_removed":
            authenticator.drop(change.plugin_removed)
            gone = True

    def revoked(call: CallInfo) -> bool:
        return any(who is not None and directory.is_revoked(who) for who in (call.principal, call.subject))

    if gone:
        live.end(revoked, unauthenticated())


class Guard:
    """A view, its follower and the authenticator that goes by them, built from one channel.

    `Guard(wiring.channel("registry"), settings.mesh_id, wiring.clock)`: the channel carries the
    service's own credential. Give `authenticator` to the server, then `protect(server.live)`, `start`.
    """

    def __init__(self, registry: grpc.aio.Channel, mesh_id: str, clock: Clock) -> None:
        self.directory = Directory(clock.now)
        self.follower = Follower(registry, self.directory, clock)
        self.authenticator = LiveAuthenticator(self.follower, exchange_at(registry), mesh_id, clock)

    def protect(self, live: LiveCalls) -> None:
        """End the calls of whoever loses its credential while they run."""
        self.follower.add_listener(lambda news: end_revoked(news, self.directory, self.authenticator, live))

    async def start(self) -> None:
        """Follow the registry, and wait until the view is complete."""
        await self.follower.start()
        await self.follower.ready()

    async def close(self) -> None:
        """Stop following."""
        await self.follower.close()
