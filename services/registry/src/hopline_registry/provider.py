"""The identity provider: its published keys, and whether it has signed an ID token.

It is asked when its keys are needed and not at hand: at most twice a minute, however many unknown keys turn
up.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any, Final
from urllib.parse import urlsplit

import jwt
from hopline_rpc.clock import Clock
from hopline_rpc.errors import HoplineError
from hopline_rpc.tls import is_loopback

log = logging.getLogger("hopline.registry")

# Signatures that a public key checks; `none`, and secrets shared with somebody, are out.
ALGORITHMS: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
_DISCOVERY: Final = "/.well-known/openid-configuration"
# How long keys are taken for good, and how soon they are asked for again because of an unknown one.
KEEP_SECONDS: Final = 3600.0
AGAIN_SECONDS: Final = 30.0
_SECONDS: Final = 5.0
_BYTES: Final = 1024 * 1024
_KEYS: Final = 100


class BadIdTokenError(Exception):
    """The text is no ID token of the provider's; says why, for the log."""


class Provider:
    """An OpenID Connect provider, by its issuer."""

    def __init__(self, issuer: str, clock: Clock) -> None:
        self.issuer = issuer
        self._clock = clock
        self._keys: dict[str, dict[str, Any]] = {}
        self._read_at = -KEEP_SECONDS
        self._asked_at = -AGAIN_SECONDS
        self._asking = asyncio.Lock()

    async def claims(self, id_token: str) -> dict[str, Any]:
        """Return what an ID token says, if the provider has signed it."""
        try:
            header = jwt.get_unverified_header(id_token)
        except jwt.PyJWTError as error:
            raise BadIdTokenError(f"not a JWT: {error}") from None
        algorithm, kid = header.get("alg"), header.get("kid", "")
        if algorithm not in ALGORITHMS:
            raise BadIdTokenError(f"the algorithm {algorithm!r}")
        key = await self._key(str(kid))
        if key.get("alg", algorithm) != algorithm or key.get("use", "sig") != "sig":
            raise BadIdTokenError("the key is for something else")
        try:
            found: dict[str, Any] = jwt.decode(
                id_token,
                jwt.PyJWK.from_dict(key, algorithm=algorithm),
                algorithms=[algorithm],
                # Looked at by `domain/logins.py`, which goes by our clock.
                options={
                    "verify_aud": False,
                    "verify_exp": False,
                    "verify_iat": False,
                    "verify_iss": False,
                    "verify_nbf": False,
                },
            )
        except jwt.PyJWTError as error:
            raise BadIdTokenError(f"the signature: {error}") from None
        return found

    async def _key(self, kid: str) -> dict[str, Any]:
        """Return a key; an unknown one may be new, so they are read again then, within bounds."""
        if (key := self._at_hand(kid)) is not None:
            return key
        async with self._asking:
            now = self._clock.now()
            if self._at_hand(kid) is None and now >= self._asked_at + AGAIN_SECONDS:
                self._asked_at = now
                self._keys = await self._read()
                self._read_at = now
        if (key := self._at_hand(kid)) is not None:
            return key
        if self._clock.now() >= self._read_at + KEEP_SECONDS:
            raise _silent()
        raise BadIdTokenError(f"no key {kid!r}")

    def _at_hand(self, kid: str) -> dict[str, Any] | None:
        return self._keys.get(kid) if self._clock.now() < self._read_at + KEEP_SECONDS else None

    async def _read(self) -> dict[str, dict[str, Any]]:
        import aiohttp  # not needed by a mesh without a provider, and it takes its time

        try:
            async with (
                asyncio.timeout(_SECONDS),
                aiohttp.ClientSession() as session,
            ):
                about = await _json(session, self.issuer.rstrip("/") + _DISCOVERY)
                if about.get("issuer") != self.issuer:
                    raise ValueError(f"it calls itself {about.get('issuer')!r}")
                found = await _json(session, _allowed(about.get("jwks_uri")))
                return _by_kid(found.get("keys"))
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            log.warning(
                "the identity provider %s gives no keys: %s", self.issuer, error or "no answer in time"
            )
            raise _silent() from None


def _silent() -> HoplineError:
    return HoplineError("unavailable", "the identity provider does not answer; try again in a minute")


def _allowed(url: object) -> str:
    """Return an address that the provider names, if it is as safe as the one it was named at."""
    parts = urlsplit(url if isinstance(url, str) else "")
    host = parts.hostname or ""
    if parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host)):
        return parts.geturl()
    raise ValueError("its jwks_uri is no https:// URL")


async def _json(session: Any, url: str) -> dict[str, Any]:
    async with session.get(url, allow_redirects=False) as answer:
        if answer.status != 200:
            raise ValueError(f"{url} answered {answer.status}")
        body = bytearray()
        async for part in answer.content.iter_chunked(64 * 1024):
            body += part
            if len(body) > _BYTES:
                raise ValueError(f"{url} answered more than {_BYTES} bytes")
    found = json.loads(bytes(body))
    if not isinstance(found, dict):
        raise ValueError(f"{url} answered no JSON object")  # noqa: TRY004 - what comes from outside has a bad value
    return found


def _by_kid(keys: object) -> dict[str, dict[str, Any]]:
    if not isinstance(keys, list):
        raise ValueError("it publishes no keys")  # noqa: TRY004 - as above
    return {str(key.get("kid", "")): key for key in keys[:_KEYS] if isinstance(key, dict)}
