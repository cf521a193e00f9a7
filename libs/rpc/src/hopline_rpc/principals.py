"""Who is calling: principals, opaque tokens, and the signed assertions that travel between services.

An edge exchanges a token for an assertion, a JWT of at most a minute signed by the registry. Every
service verifies it with the registry's published keys. EdDSA is the only algorithm; a header that
says anything else is refused before any key is looked at.
"""

from __future__ import annotations

import hashlib
import math
import re
import secrets
from base64 import urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from hopline_rpc.clock import Clock
from hopline_rpc.errors import unauthenticated

PrincipalKind = Literal["agent", "user", "plugin", "service"]
KINDS: Final[tuple[PrincipalKind, ...]] = get_args(PrincipalKind)
ALGORITHM: Final = "EdDSA"
MAX_LIFE: Final = 60.0
# What two machines' clocks may differ by before an assertion counts as expired or not yet issued.
SKEW: Final = 2.0
_TOKEN: Final = re.compile(r"hpl_[aups]_[A-Za-z0-9_-]{43}\Z")
_MAX_ASSERTION: Final = 4096
_REQUIRED: Final = ["aud", "exp", "iat", "jti", "sub"]


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller. What it may do is decided elsewhere; this is only who it is."""

    kind: PrincipalKind
    id: str
    workspace_id: str
    name: str = ""
    token_id: str = ""
    installation: bool = False
    expires_at: float = 0.0
    assertion: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A key of the registry. It is published before `not_before` and signs from then on."""

    kid: str
    private: Ed25519PrivateKey = field(repr=False)
    not_before: float = 0.0

    def public(self) -> Ed25519PublicKey:
        """Return the half that is published."""
        return self.private.public_key()


def new_signing_key(kid: str, not_before: float = 0.0) -> SigningKey:
    """Make a fresh key pair."""
    return SigningKey(kid, Ed25519PrivateKey.generate(), not_before)


def load_signing_key(kid: str, private: bytes, not_before: float = 0.0) -> SigningKey:
    """Read a key pair from its 32 private bytes."""
    return SigningKey(kid, Ed25519PrivateKey.from_private_bytes(private), not_before)


def load_public_key(raw: bytes) -> Ed25519PublicKey:
    """Read a published key from its 32 bytes."""
    return Ed25519PublicKey.from_public_bytes(raw)


def new_token(kind: PrincipalKind, randbytes: Callable[[int], bytes] = secrets.token_bytes) -> str:
    """Make an opaque credential: `hpl_<first letter of the kind>_<256 random bits>`."""
    secret = urlsafe_b64encode(randbytes(32)).rstrip(b"=").decode()
    return f"hpl_{kind[0]}_{secret}"


def hash_token(token: str) -> str:
    """Return what is stored in a token's place. The token is random, so one plain SHA-256 is enough."""
    return hashlib.sha256(token.encode()).hexdigest()


def looks_like_token(text: str) -> bool:
    """Tell whether text has the shape of one of our tokens."""
    return text.startswith("hpl_") and _TOKEN.match(text) is not None


class AssertionSigner:
    """Signs assertions; only the registry has one."""

    def __init__(self, keys: Sequence[SigningKey], mesh_id: str, clock: Clock) -> None:
        self._keys = sorted(keys, key=lambda key: key.not_before)
        self._mesh_id = mesh_id
        self._clock = clock

    def sign(self, principal: Principal, *, life: float = MAX_LIFE) -> str:
        """Write who `principal` is; it holds for `life` seconds and never past the token's own end."""
        now = self._clock.now()
        ends = now + min(life, MAX_LIFE)
        if principal.expires_at:
            ends = min(ends, principal.expires_at)
        key = self._active(now)
        claims = {
            "aud": self._mesh_id,
            "iat": math.floor(now),
            "exp": math.floor(ends),
            "jti": secrets.token_hex(8),
            "sub": principal.id,
            "kind": principal.kind,
            "ws": principal.workspace_id,
            "tid": principal.token_id,
            "name": principal.name,
            "ins": principal.installation,
        }
        return jwt.encode(claims, key.private, algorithm=ALGORITHM, headers={"kid": key.kid})

    def _active(self, now: float) -> SigningKey:
        """Return the newest key whose time has come; where the clock was set back before all, the oldest."""
        usable = [key for key in self._keys if key.not_before <= now]
        return usable[-1] if usable else self._keys[0]


class AssertionVerifier:
    """Verifies assertions. A signature is checked once; expiry and revocation on every call."""

    def __init__(
        self,
        keys: Callable[[str], Ed25519PublicKey | None],
        mesh_id: str,
        clock: Clock,
        revoked: Callable[[Principal], bool] = lambda principal: False,
        *,
        max_cached: int = 10_000,
    ) -> None:
        self._keys = keys
        self._mesh_id = mesh_id
        self._clock = clock
        self._revoked = revoked
        self._max_cached = max_cached
        self._cached: OrderedDict[str, tuple[Principal, str]] = OrderedDict()

    def verify(self, assertion: str) -> Principal:
        """Return who the assertion speaks for, or raise `unauthenticated`."""
        known = self._cached.get(assertion)
        if known is None:
            principal, kid = self._decode(assertion)
        else:
            principal, kid = known
        if not self.still_good(principal) or self._keys(kid) is None:
            self._cached.pop(assertion, None)
            raise unauthenticated()
        if known is None:
            self._remember(assertion, principal, kid)
        return principal

    def still_good(self, principal: Principal) -> bool:
        """Tell whether a principal verified before is neither expired nor revoked by now."""
        return self._clock.now() < principal.expires_at and not self._revoked(principal)

    def _remember(self, assertion: str, principal: Principal, kid: str) -> None:
        self._cached[assertion] = (principal, kid)
        if len(self._cached) > self._max_cached:
            self._cached.popitem(last=False)

    def _decode(self, assertion: str) -> tuple[Principal, str]:
        if len(assertion) > _MAX_ASSERTION:
            raise unauthenticated()
        try:
            header = jwt.get_unverified_header(assertion)
            kid = header.get("kid")
            if header.get("alg") != ALGORITHM or not isinstance(kid, str):
                raise unauthenticated()
            key = self._keys(kid)
            if key is None:
                raise unauthenticated()
            claims = jwt.decode(
                assertion,
                key,
                algorithms=[ALGORITHM],
                audience=self._mesh_id,
                # PyJWT reads the system's clock; ours may be a test's, so the times are checked below.
                options={
                    "require": _REQUIRED,
                    "strict_aud": True,
                    "verify_exp": False,
                    "verify_iat": False,
                    "verify_nbf": False,
                },
            )
        except jwt.PyJWTError:
            raise unauthenticated() from None
        return self._principal(claims, assertion), kid

    def _principal(self, claims: dict[str, Any], assertion: str) -> Principal:
        issued, expires, kind = claims["iat"], claims["exp"], claims.get("kind")
        if not isinstance(issued, int) or not isinstance(expires, int) or kind not in KINDS:
            raise unauthenticated()
        if expires - issued > MAX_LIFE + SKEW or issued > self._clock.now() + SKEW:
            raise unauthenticated()
        return Principal(
            kind=kind,
            id=claims["sub"],
            workspace_id=str(claims.get("ws", "")),
            name=str(claims.get("name", "")),
            token_id=str(claims.get("tid", "")),
            installation=claims.get("ins") is True,
            expires_at=float(expires),
            assertion=assertion,
        )
