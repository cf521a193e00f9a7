"""An OpenID Connect provider on loopback: discovery, authorization with PKCE, tokens, rotating keys.

It does what a provider has to, and, where a test says so, what one must never do.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

CLIENT: Final = "hopline-console"
SECRET: Final = "a secret of the console"
_ALGORITHMS: Final[Mapping[str, Any]] = {
    "RS256": jwt.algorithms.RSAAlgorithm,
    "PS256": jwt.algorithms.RSAAlgorithm,
    "ES256": jwt.algorithms.ECAlgorithm,
    "EdDSA": jwt.algorithms.OKPAlgorithm,
}


def _private(algorithm: str) -> Any:
    if algorithm == "ES256":
        return ec.generate_private_key(ec.SECP256R1())
    if algorithm == "EdDSA":
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(65537, 2048)


class Provider:
    """The provider. Whoever comes to it is signed in as `person` already, and agrees."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.issuer = ""
        self.person: dict[str, Any] = {
            "sub": "u-1",
            "email": "alice@example.org",
            "email_verified": True,
        }
        # What the next ID tokens say otherwise; None leaves a claim out.
        self.twisted: dict[str, Any] = {}
        # Makes the ID token of given claims in another way.
        self.forge: Callable[[dict[str, Any]], str] | None = None
        self.keys: list[tuple[str, str, Any]] = []
        self.public: list[dict[str, Any]] = []
        self.refuses = ""
        self.is_down = False
        self.asked: list[str] = []
        self.forms: list[dict[str, str]] = []
        self._now = now
        self._codes: dict[str, dict[str, str]] = {}
        self.rotate()

    def rotate(self, algorithm: str = "RS256", *, publish: bool = True, named: bool = True) -> None:
        """Sign with a new key from now on; older ones stay published."""
        key = _private(algorithm)
        kid = f"key-{len(self.keys) + 1}"
        self.keys.append((kid, algorithm, key))
        if publish:
            public: dict[str, Any] = _ALGORITHMS[algorithm].to_jwk(key.public_key(), as_dict=True)
            self.public.append({**public, "kid": kid, "use": "sig", **({"alg": algorithm} if named else {})})

    def id_token(self, nonce: str, /, **twisted: Any) -> str:
        """Make an ID token for the person; claims given as None are left out."""
        now = int(self._now())
        claims: dict[str, Any] = {
            "iss": self.issuer,
            "aud": CLIENT,
            "iat": now,
            "exp": now + 300,
            "nonce": nonce,
            **self.person,
            **self.twisted,
            **twisted,
        }
        claims = {name: value for name, value in claims.items() if value is not None}
        return self.forge(claims) if self.forge else self.signed(claims)

    def signed(self, claims: Mapping[str, Any], **headers: Any) -> str:
        """Sign claims with the newest key."""
        kid, algorithm, key = self.keys[-1]
        return jwt.encode(dict(claims), key, algorithm=algorithm, headers={"kid": kid, **headers})

    def code_for(self, address: str) -> str:
        """Return where a browser that comes to this address of the provider is sent, with a code."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        return self._agreed(query)

    def _agreed(self, query: Mapping[str, str]) -> str:
        back = {"state": query["state"], "iss": self.issuer}
        if self.refuses:
            return f"{query['redirect_uri']}?{urlencode({**back, 'error': self.refuses})}"
        code = secrets.token_urlsafe(16)
        self._codes[code] = dict(query)
        return f"{query['redirect_uri']}?{urlencode({**back, 'code': code})}"

    # -- what it serves ----------------------------------------------------------------------------

    async def discovery(self, request: web.Request) -> web.Response:
        self.asked.append("discovery")
        if self.is_down:
            return web.Response(status=503)
        return web.json_response(
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/jwks",
                "code_challenge_methods_supported": ["S256"],
                "authorization_response_iss_parameter_supported": True,
            }
        )

    async def jwks(self, request: web.Request) -> web.Response:
        self.asked.append("jwks")
        return web.json_response({"keys": self.public})

    async def authorize(self, request: web.Request) -> web.Response:
        """Send the person straight back."""
        self.asked.append("authorize")
        query = dict(request.query)
        wanted = {"response_type": "code", "client_id": CLIENT, "code_challenge_method": "S256"}
        if any(query.get(name) != value for name, value in wanted.items()):
            return web.Response(status=400, text="not asked as it should be")
        raise web.HTTPFound(self._agreed(query))

    async def token(self, request: web.Request) -> web.Response:
        """Give the tokens for a code, once, to who knows its verifier and the client's secret."""
        self.asked.append("token")
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.forms.append(form)
        basic = base64.b64encode(f"{CLIENT}:{SECRET}".replace(" ", "%20").encode()).decode()
        plain = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if request.headers.get("Authorization") not in (f"Basic {basic}", f"Basic {plain}"):
            return web.json_response({"error": "invalid_client"}, status=401)
        asked = self._codes.pop(form.get("code", ""), None)
        challenge = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if (
            asked is None
            or asked["redirect_uri"] != form.get("redirect_uri")
            or asked["code_challenge"] != base64.urlsafe_b64encode(challenge).rstrip(b"=").decode()
        ):
            return web.json_response({"error": "invalid_grant"}, status=400)
        return web.json_response(
            {
                "access_token": secrets.token_urlsafe(16),
                "token_type": "Bearer",
                "expires_in": 300,
                "id_token": self.id_token(asked.get("nonce", "")),
            }
        )


@asynccontextmanager
async def provider(now: Callable[[], float]) -> AsyncIterator[Provider]:
    """Yield a provider that listens."""
    found = Provider(now)
    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", found.discovery)
    app.router.add_get("/jwks", found.jwks)
    app.router.add_get("/authorize", found.authorize)
    app.router.add_post("/token", found.token)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        found.issuer = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield found
    finally:
        await runner.cleanup()
