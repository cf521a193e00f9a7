"""Signing in with an identity provider: the authorization code flow of OpenID Connect, with PKCE.

Authlib speaks the protocol. What the provider says of the person is not judged here: the registry verifies
its ID token, and makes the token that the session then is. What one sign-in needs until its end (state,
nonce, PKCE verifier) is sealed in a cookie of the browser that began it, so that nobody else can end it.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from hopline_rpc.clock import Clock
from hopline_rpc.errors import HoplineError
from hopline_rpc.tls import is_loopback

if TYPE_CHECKING:
    from authlib.integrations.httpx_client import AsyncOAuth2Client

    from hopline_console.settings import ConsoleSettings

log = logging.getLogger("hopline.console")

# How long a person may take at the provider.
PENDING_SECONDS: Final = 600.0
_DISCOVERY: Final = "/.well-known/openid-configuration"
_KEEP_SECONDS: Final = 3600.0
_SECONDS: Final = 10.0
_MOST_USED: Final = 10_000
_MAX_ID_TOKEN: Final = 16_384


@dataclass(frozen=True, slots=True)
class Pending:
    """A sign-in that has begun."""

    state: str = field(repr=False)
    nonce: str = field(repr=False)
    verifier: str = field(repr=False)
    workspace: str
    next_page: str
    until: float


@dataclass(frozen=True, slots=True)
class Client:
    """The console as the provider knows it."""

    issuer: str
    client_id: str
    secret: str = field(repr=False)
    scopes: str = "openid email"


class Provider:
    """The provider, as the console sees it."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._about: Mapping[str, Any] = {}
        self._read_at = -_KEEP_SECONDS
        self._used: OrderedDict[str, float] = OrderedDict()

    async def begin(self, redirect_uri: str, workspace: str, next_page: str) -> tuple[str, Pending]:
        """Return where to send the browser, and what has to be known when it comes back."""
        about = await self._discover()
        pending = Pending(
            state=secrets.token_urlsafe(24),
            nonce=secrets.token_urlsafe(24),
            verifier=secrets.token_urlsafe(48),
            workspace=workspace,
            next_page=next_page,
            until=self._clock.now() + PENDING_SECONDS,
        )
        async with self._session(redirect_uri) as session:
            url, _ = session.create_authorization_url(
                about["authorization_endpoint"],
                state=pending.state,
                nonce=pending.nonce,
                code_verifier=pending.verifier,
            )
        return str(url), pending

    async def finish(self, answer: Mapping[str, str], pending: Pending | None, redirect_uri: str) -> str:
        """Return the ID token for what the browser came back with; it comes back once, and to us."""
        if pending is None or not _same(answer.get("state", ""), pending.state):
            raise _strange()
        self._use(pending)
        if "iss" in answer and answer["iss"] != self._client.issuer:
            raise HoplineError("unauthenticated", "another provider answered; begin again")
        if error := answer.get("error"):
            log.info("the identity provider refused a sign-in: %s", error[:100])
            raise _refused()
        about = await self._discover()
        return await self._redeem(about["token_endpoint"], answer.get("code", ""), pending, redirect_uri)

    async def _redeem(self, endpoint: str, code: str, pending: Pending, redirect_uri: str) -> str:
        from authlib.integrations.base_client import OAuthError
        from httpx2 import HTTPError

        try:
            async with asyncio.timeout(_SECONDS), self._session(redirect_uri) as session:
                found = await session.fetch_token(
                    endpoint, grant_type="authorization_code", code=code, code_verifier=pending.verifier
                )
        except OAuthError as error:
            log.info("the identity provider took no code: %s", error.error)
            raise _refused() from None
        except (TimeoutError, HTTPError, ValueError) as error:
            raise self._silent(error) from None
        id_token = found.get("id_token")
        if not isinstance(id_token, str) or not 0 < len(id_token) <= _MAX_ID_TOKEN:
            raise self._silent(ValueError("it gave no ID token"))
        return id_token

    def _use(self, pending: Pending) -> None:
        """Take a state: the answer to it holds once."""
        now = self._clock.now()
        while self._used and (next(iter(self._used.values())) < now or len(self._used) >= _MOST_USED):
            self._used.popitem(last=False)
        if pending.until <= now or pending.state in self._used:
            raise _strange()
        self._used[pending.state] = pending.until

    def _session(self, redirect_uri: str) -> AsyncOAuth2Client:
        from authlib.integrations.httpx_client import AsyncOAuth2Client  # takes its time

        return AsyncOAuth2Client(
            client_id=self._client.client_id,
            client_secret=self._client.secret or None,
            scope=self._client.scopes,
            redirect_uri=redirect_uri,
            code_challenge_method="S256",
            timeout=_SECONDS,
            follow_redirects=False,
        )

    async def _discover(self) -> Mapping[str, Any]:
        """Return what the provider says of itself, anew each hour; while it is silent, what it said last."""
        now = self._clock.now()
        if now < self._read_at + _KEEP_SECONDS:
            return self._about
        try:
            self._about = await self._read()
            self._read_at = now
        except (TimeoutError, OSError, ValueError) as error:
            if not self._about:
                raise self._silent(error) from None
        return self._about

    async def _read(self) -> Mapping[str, Any]:
        import httpx2

        try:
            async with asyncio.timeout(_SECONDS), httpx2.AsyncClient(timeout=_SECONDS) as session:
                answer = await session.get(self._client.issuer.rstrip("/") + _DISCOVERY)
                answer.raise_for_status()
                about = answer.json()
        except httpx2.HTTPError as error:
            raise OSError(str(error)) from None
        if not isinstance(about, dict) or about.get("issuer") != self._client.issuer:
            raise ValueError("it calls itself otherwise")
        for name in ("authorization_endpoint", "token_endpoint"):
            if not _is_safe(about.get(name)):
                raise ValueError(f"its {name} is no https:// URL")
        return about

    def _silent(self, error: BaseException) -> HoplineError:
        log.warning("the identity provider %s: %s", self._client.issuer, error or "no answer in time")
        return HoplineError("unavailable", "the identity provider does not answer; try again in a minute")


def _refused() -> HoplineError:
    return HoplineError("unauthenticated", "the identity provider did not sign you in; begin again")


def _strange() -> HoplineError:
    return HoplineError("unauthenticated", "this sign-in was not begun here, or is over; begin again")


def provider_of(settings: ConsoleSettings, clock: Clock) -> Provider | None:
    """Return the provider that the settings name."""
    if not (settings.oidc_issuer and settings.oidc_client_id):
        return None
    file, secret = settings.oidc_client_secret_file, ""
    if file is not None:
        try:
            secret = file.read_text().strip()
        except (OSError, ValueError):
            raise HoplineError("failed_precondition", f"{file}: the client's secret cannot be read") from None
    client = Client(settings.oidc_issuer, settings.oidc_client_id, secret, settings.oidc_scopes)
    return Provider(client, clock)


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(errors="replace"), other.encode())


def _is_safe(url: object) -> bool:
    parts = urlsplit(url if isinstance(url, str) else "")
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
