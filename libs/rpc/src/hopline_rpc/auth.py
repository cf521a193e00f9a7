"""Turns a call's metadata into principals: `authorization: Bearer <token or assertion>`.

A token is exchanged at the registry and its assertion kept until shortly before it expires, so that a
busy caller costs one exchange a minute. Whatever is wrong with a credential, the answer is the same.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple

from hopline_rpc.calls import current_call
from hopline_rpc.clock import Clock
from hopline_rpc.errors import HoplineError, unauthenticated
from hopline_rpc.principals import AssertionVerifier, Principal, looks_like_token

AUTHORIZATION: Final = "authorization"
WORKSPACE: Final = "hopline-workspace"
SUBJECT: Final = "hopline-subject"
_BEARER: Final = "bearer "
# An assertion is renewed when this little of its life is left, so that it outlives the hops behind it.
_MARGIN: Final = 10.0
_EXCHANGE_TRIES: Final = 3
_EXCHANGE_SECONDS: Final = 5.0

Exchange = Callable[[str, str], Awaitable[str]]
"""`await exchange(token, workspace)` returns an assertion, or raises `unauthenticated`."""


class Identity(NamedTuple):
    """Who calls, and on whose behalf when a service says so."""

    principal: Principal
    subject: Principal | None


def current_principal() -> Principal:
    """Return who makes the call being served; outside a call, or in a public one, `unauthenticated`."""
    call = current_call()
    if call is None or call.principal is None:
        raise unauthenticated()
    return call.principal


def subject() -> Principal | None:
    """Return on whose behalf a service makes the call being served."""
    call = current_call()
    return call.subject if call is not None else None


class _Kept(NamedTuple):
    principal: Principal
    renew_at: float


class Authenticator:
    """Authenticates calls; one for each process."""

    def __init__(
        self,
        verifier: AssertionVerifier,
        exchange: Exchange | None,
        clock: Clock,
        *,
        max_cached: int = 10_000,
    ) -> None:
        self._verifier = verifier
        self._exchange = exchange
        self._clock = clock
        self._max_cached = max_cached
        self._kept: OrderedDict[tuple[str, str], _Kept] = OrderedDict()
        self._running: dict[tuple[str, str], asyncio.Task[Principal]] = {}
        self._drops = 0

    async def identify(self, metadata: Mapping[str, str | bytes]) -> Identity:
        """Return who makes the call that came with this metadata, or raise `unauthenticated`."""
        header = metadata.get(AUTHORIZATION)
        if not isinstance(header, str) or header[:7].lower() != _BEARER:
            raise unauthenticated()
        workspace = metadata.get(WORKSPACE, "")
        principal = await self.principal(header[7:].strip(), workspace if isinstance(workspace, str) else "")
        carried = metadata.get(SUBJECT)
        if carried is None:
            return Identity(principal, None)
        if principal.kind != "service":
            raise HoplineError("permission_denied", "only a service may call on behalf of another")
        if not isinstance(carried, str):
            raise unauthenticated()
        return Identity(principal, self._verifier.verify(carried))

    async def principal(self, credential: str, workspace: str = "") -> Principal:
        """Return who a token or an assertion stands for."""
        known = self.at_hand(credential, workspace)
        if known is not None:
            return known
        if not looks_like_token(credential):
            return self._verifier.verify(credential)
        return await self._exchanged(credential, workspace)

    def at_hand(self, credential: str, workspace: str = "") -> Principal | None:
        """Return who a token stands for where that is known for certain without asking; else None."""
        kept = self._kept.get((credential, workspace))
        if kept is None or self._clock.now() >= kept.renew_at:
            return None
        if not self._verifier.still_good(kept.principal):
            del self._kept[(credential, workspace)]
            return None
        return kept.principal

    def drop(self, identifier: str) -> None:
        """Forget at once what is kept for a token id or a principal id."""
        self._drops += 1
        for key, kept in list(self._kept.items()):
            if identifier in (kept.principal.token_id, kept.principal.id):
                del self._kept[key]

    def drop_all(self) -> None:
        """Forget everything; the next calls ask the registry again."""
        self._drops += 1
        self._kept.clear()

    async def _exchanged(self, token: str, workspace: str) -> Principal:
        """Exchange a token; callers with the same one at the same moment share one exchange."""
        key = (token, workspace)
        running = self._running.get(key)
        if running is None:
            # A context of its own: the first caller's deadline and identity are not the others'.
            running = asyncio.create_task(self._run_exchange(key), context=contextvars.Context())
            self._running[key] = running
            running.add_done_callback(lambda task: self._finished(key, task))
        # The exchange goes on when one of those who wait for it gives up.
        return await asyncio.shield(running)

    def _finished(self, key: tuple[str, str], task: asyncio.Task[Principal]) -> None:
        del self._running[key]
        if not task.cancelled():
            task.exception()  # whoever waited has seen it; nobody may be left to

    async def _run_exchange(self, key: tuple[str, str]) -> Principal:
        if self._exchange is None:
            raise unauthenticated()
        for _ in range(_EXCHANGE_TRIES):
            drops = self._drops
            try:
                async with asyncio.timeout(_EXCHANGE_SECONDS):
                    assertion = await self._exchange(*key)
            except TimeoutError:
                raise HoplineError("unavailable", "the registry does not answer") from None
            principal = self._verifier.verify(assertion)
            if drops == self._drops:
                self._keep(key, principal)
                return principal
            # Something was revoked while the answer was on its way: it may be older than that.
        raise HoplineError("unavailable", "credentials are changing; try again")

    def _keep(self, key: tuple[str, str], principal: Principal) -> None:
        left = principal.expires_at - self._clock.now()
        self._kept[key] = _Kept(principal, principal.expires_at - min(_MARGIN, left / 2))
        self._kept.move_to_end(key)
        if len(self._kept) > self._max_cached:
            self._kept.popitem(last=False)
