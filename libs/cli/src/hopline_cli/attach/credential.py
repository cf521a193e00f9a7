"""A worker's credential, minted with a person's token: expiring, renewed, revoked at exit."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Final

from hopline.registry.v1 import identity_pb2 as pb
from hopline_rpc.clock import Clock
from hopline_rpc.errors import HoplineError

from hopline_cli.mesh import Mesh

log = logging.getLogger("hopline.attach")

# Long enough to outlive a mesh that is down for a while, short enough not to matter when all else fails.
LIFE_SECONDS: Final = 3600
_RETRY_SECONDS: Final = 30.0
_REVOKE_SECONDS: Final = 3.0


class MintedToken:
    """An expiring token of one agent: `current` is the one to use now, `on_renewed` hears of each new one."""

    def __init__(
        self,
        agent: str,
        find: Callable[[], Awaitable[Mesh]],
        clock: Clock,
        *,
        life: int = LIFE_SECONDS,
        name: str = "attach",
        on_renewed: Callable[[str], None] = lambda token: None,
    ) -> None:
        self._agent = agent
        self._find = find
        self._clock = clock
        self._life = life
        self._name = name
        self._on_renewed = on_renewed
        self._token = ""
        self._ids: list[str] = []
        self._renewing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Mint the first one; raises what the mesh says against it."""
        await self._mint()
        self._renewing = asyncio.create_task(self._renew(), name="renew the token")

    async def current(self) -> str:
        """Return the token to connect with."""
        return self._token

    async def close(self) -> None:
        """Revoke every token that was minted; those of a mesh that is gone expire by themselves."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait({self._renewing})
        try:
            async with asyncio.timeout(_REVOKE_SECONDS):
                mesh = await self._find()
                try:
                    for token_id in self._ids:
                        await mesh.identities.RevokeToken(pb.RevokeTokenRequest(token_id=token_id))
                finally:
                    await mesh.close()
        except (HoplineError, TimeoutError) as error:
            log.warning("the token could not be revoked, it expires within %d s: %s", self._life, error)

    async def _mint(self) -> None:
        mesh = await self._find()
        try:
            name = f"{self._name} {socket.gethostname()} {os.getpid()}"[:100]
            request = pb.CreateTokenRequest(agent=self._agent, name=name, expires_in_seconds=self._life)
            made = await mesh.identities.CreateToken(request)
        finally:
            await mesh.close()
        self._token = made.token
        # One earlier token may still be in use; those before it have expired.
        self._ids = [*self._ids[-1:], made.info.id]

    async def _renew(self) -> None:
        while True:
            await self._clock.sleep(self._life / 2)
            while not await self._has_renewed():
                await self._clock.sleep(_RETRY_SECONDS)

    async def _has_renewed(self) -> bool:
        try:
            await self._mint()
        except HoplineError as error:
            log.warning("the token could not be renewed yet: %s", error.message)
            return False
        self._on_renewed(self._token)
        return True
