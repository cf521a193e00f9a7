"""What an identity provider says of a person: whether its word holds, and whom it means."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from hopline_registry.domain.names import name_problem

Claim = Literal["email", "sub"]

# What the provider's clock may differ from ours by.
SKEW: Final = 60.0
# Nobody signs in with what was said longer ago than this, whatever end the provider gave it.
MAX_AGE: Final = 3600.0


class Expected(NamedTuple):
    """What has to stand in an ID token."""

    issuer: str
    client_id: str
    nonce: str


def claims_problem(claims: Mapping[str, Any], expected: Expected, now: float) -> str | None:
    """Say why the claims of an ID token, whose signature is good, are none for us; None when they are."""
    if claims.get("iss") != expected.issuer:
        return "another issuer"
    audience = claims.get("aud")
    audiences = [audience] if isinstance(audience, str) else audience
    if not isinstance(audiences, list) or expected.client_id not in audiences:
        return "another audience"
    party = claims.get("azp")
    if party not in (None, expected.client_id) or (party is None and len(audiences) > 1):
        return "another party"
    return _time_problem(claims, now) or _nonce_problem(claims.get("nonce"), expected.nonce)


def _time_problem(claims: Mapping[str, Any], now: float) -> str | None:
    times: list[Any] = [claims.get("iat"), claims.get("exp"), claims.get("nbf", 0)]
    if not all(isinstance(each, int | float) and not isinstance(each, bool) for each in times):
        return "no times"
    issued, expires, begins = times
    if now >= expires + SKEW or now >= issued + MAX_AGE:
        return "expired"
    return "not yet valid" if max(issued, begins) > now + SKEW else None


def _nonce_problem(said: Any, expected: str) -> str | None:
    same = isinstance(said, str) and hmac.compare_digest(said.encode(errors="replace"), expected.encode())
    return None if same else "another nonce"


def login_of(claims: Mapping[str, Any], claim: Claim) -> str | None:
    """Return whom the claims mean; None where they do not say, or the provider has not verified it."""
    login = claims.get(claim)
    if not isinstance(login, str) or not login:
        return None
    if claim == "email" and claims.get("email_verified") is not True:
        return None
    return plain(login, claim)


def plain(login: str, claim: Claim) -> str:
    """Return a login as it is compared: addresses without regard to case."""
    return login.casefold() if claim == "email" else login


def login_problem(login: str, claim: Claim) -> str | None:
    """Say what is wrong with the login that an admin gives a person; None when nothing is."""
    if problem := name_problem(login):
        return problem
    local, _, domain = login.rpartition("@")
    if claim == "email" and not (local and domain and " " not in login):
        return "must be an address such as alice@example.org (HOPLINE_OIDC_CLAIM is email)"
    return None
