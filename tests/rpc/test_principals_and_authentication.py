"""Tokens, assertions, and how a call's credential becomes a principal."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from hopline_rpc.auth import Authenticator
from hopline_rpc.clock import ManualClock
from hopline_rpc.errors import HoplineError
from hopline_rpc.principals import (
    AssertionSigner,
    AssertionVerifier,
    Principal,
    hash_token,
    load_public_key,
    load_signing_key,
    looks_like_token,
    new_signing_key,
    new_token,
)

MESH = "mesh"
AGENT = Principal("agent", "ag_1", "ws_1", name="planner", token_id="tok_1")


class World:
    """A registry's keys and a service that knows them."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.key = new_signing_key("k1")
        self.published: dict[str, Ed25519PublicKey] = {"k1": self.key.public()}
        self.signer = AssertionSigner([self.key], MESH, self.clock)
        self.revoked: set[str] = set()
        self.verifier = AssertionVerifier(
            self.published.get, MESH, self.clock, lambda who: who.token_id in self.revoked
        )

    def forged(self, claims: Mapping[str, Any] = {}, **headers: Any) -> str:
        now = int(self.clock.now())
        base = {"aud": MESH, "iat": now, "exp": now + 60, "jti": "j", "sub": "ag_1", "kind": "agent"}
        everything = {key: value for key, value in {**base, **claims}.items() if value is not None}
        return jwt.encode(everything, self.key.private, algorithm="EdDSA", headers={"kid": "k1", **headers})


@pytest.fixture
def world() -> World:
    return World()


def refused(world: World, assertion: str) -> None:
    with pytest.raises(HoplineError) as caught:
        world.verifier.verify(assertion)
    assert caught.value.reason == "unauthenticated"
    assert caught.value.message == "a valid credential is needed"


# --- tokens --------------------------------------------------------------------------------------


def test_a_token_says_its_kind_and_nothing_else() -> None:
    for kind in ("agent", "user", "plugin", "service"):
        token = new_token(kind)
        assert token.startswith(f"hpl_{kind[0]}_")
        assert len(token) == 6 + 43
        assert looks_like_token(token)
    assert new_token("agent") != new_token("agent")


def test_a_token_is_stored_as_its_hash() -> None:
    token = new_token("user", lambda size: b"\1" * size)
    assert hash_token(token) == hash_token(token)
    assert len(hash_token(token)) == 64
    assert token not in hash_token(token)


@pytest.mark.parametrize(
    "text", ["", "hpl_", "hpl_x_" + "a" * 43, "hpl_a_" + "a" * 42, "hpl_a_" + "a" * 44, "hpl_a_" + "!" * 43]
)
def test_other_text_does_not_look_like_a_token(text: str) -> None:
    assert not looks_like_token(text)


# --- assertions ----------------------------------------------------------------------------------


def test_an_assertion_says_who_it_speaks_for(world: World) -> None:
    assertion = world.signer.sign(AGENT)
    found = world.verifier.verify(assertion)
    assert (found.kind, found.id, found.workspace_id, found.name, found.token_id) == (
        "agent",
        "ag_1",
        "ws_1",
        "planner",
        "tok_1",
    )
    assert not found.installation
    assert found.assertion == assertion
    assert found.expires_at == world.clock.now() + 60


def test_an_assertion_does_not_show_when_a_principal_is_printed(world: World) -> None:
    assertion = world.signer.sign(AGENT)
    assert assertion not in repr(world.verifier.verify(assertion))


async def test_an_assertion_holds_a_minute_at_most(world: World) -> None:
    assertion = world.signer.sign(AGENT, life=3600)
    await world.clock.advance(59.9)
    world.verifier.verify(assertion)
    await world.clock.advance(0.2)
    refused(world, assertion)


async def test_an_assertion_never_outlives_its_token(world: World) -> None:
    soon = Principal("agent", "ag_1", "ws_1", expires_at=world.clock.now() + 10)
    assertion = world.signer.sign(soon)
    await world.clock.advance(10)
    refused(world, assertion)


async def test_a_verified_assertion_is_refused_once_revoked(world: World) -> None:
    assertion = world.signer.sign(AGENT)
    world.verifier.verify(assertion)
    world.revoked.add("tok_1")
    refused(world, assertion)


def test_a_verified_assertion_is_refused_once_its_key_is_withdrawn(world: World) -> None:
    assertion = world.signer.sign(AGENT)
    world.verifier.verify(assertion)
    del world.published["k1"]
    refused(world, assertion)


async def test_a_key_signs_from_its_time_on_and_both_are_accepted(world: World) -> None:
    later = new_signing_key("k2", not_before=world.clock.now() + 30)
    world.published["k2"] = later.public()
    signer = AssertionSigner([later, world.key], MESH, world.clock)
    first = signer.sign(AGENT)
    await world.clock.advance(31)
    second = signer.sign(AGENT)
    assert [jwt.get_unverified_header(each)["kid"] for each in (first, second)] == ["k1", "k2"]
    world.verifier.verify(first)
    world.verifier.verify(second)


def test_a_clock_set_back_before_every_key_signs_with_the_oldest(world: World) -> None:
    keys = [
        new_signing_key("k3", world.clock.now() + 90_000),
        new_signing_key("k2", world.clock.now() + 80_000),
    ]
    world.published["k2"] = keys[1].public()
    signed = AssertionSigner(keys, MESH, world.clock).sign(AGENT)
    assert world.verifier.verify(signed).id == AGENT.id


def test_keys_survive_being_stored() -> None:
    key = new_signing_key("k1")
    raw = key.private.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
    public = load_signing_key("k1", raw).public().public_bytes(Encoding.Raw, PublicFormat.Raw)
    assert public == key.public().public_bytes(Encoding.Raw, PublicFormat.Raw)
    assert load_public_key(public).public_bytes(Encoding.Raw, PublicFormat.Raw) == public


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "another-mesh"},
        {"aud": [MESH, "another-mesh"]},
        {"aud": None},
        {"exp": None},
        {"iat": None},
        {"jti": None},
        {"sub": None},
        {"kind": None},
        {"kind": "root"},
        {"iat": "now"},
        {"iat": 1_750_000_000 - 100},  # lives longer than a minute
        {"iat": 1_750_000_000 + 10, "exp": 1_750_000_000 + 60},  # not issued yet
        {"exp": 1_750_000_000},
    ],
    ids=str,
)
def test_an_assertion_with_wrong_claims_is_refused(world: World, claims: dict[str, Any]) -> None:
    world.verifier.verify(world.forged())
    refused(world, world.forged(claims))


def test_an_assertion_without_a_known_key_is_refused(world: World) -> None:
    claims = {
        "aud": MESH,
        "iat": 1_750_000_000,
        "exp": 1_750_000_060,
        "jti": "j",
        "sub": "x",
        "kind": "agent",
    }
    refused(world, jwt.encode(claims, world.key.private, algorithm="EdDSA"))
    refused(world, world.forged(kid="k9"))
    other = AssertionSigner([new_signing_key("k1")], MESH, world.clock)
    refused(world, other.sign(AGENT))


def _part(data: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(data).encode()).rstrip(b"=").decode()


def test_no_other_algorithm_is_accepted(world: World) -> None:
    good = world.signer.sign(AGENT)
    _, payload, signature = good.split(".")
    for algorithm in ("none", "None", "HS256", "RS256", "ES256"):
        header = _part({"alg": algorithm, "typ": "JWT", "kid": "k1"})
        refused(world, f"{header}.{payload}.{signature}")
        refused(world, f"{header}.{payload}.")
    public = world.key.public().public_bytes(Encoding.Raw, PublicFormat.Raw)
    claims = {"aud": MESH, "iat": 0, "exp": 60, "jti": "j", "sub": "x", "kind": "service"}
    # The classic: the published key used as an HMAC secret.
    refused(world, jwt.encode(claims, public, algorithm="HS256", headers={"kid": "k1"}))


def test_a_changed_assertion_is_refused(world: World) -> None:
    header, payload, signature = world.signer.sign(AGENT).split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
    refused(world, f"{header}.{_part({**claims, 'kind': 'service'})}.{signature}")
    for text in ("", ".", "..", "a.b.c", "x" * 10_000, f"{header}.{payload}"):
        refused(world, text)


def test_the_verifier_remembers_a_bounded_number(world: World) -> None:
    verifier = AssertionVerifier(world.published.get, MESH, world.clock, max_cached=3)
    for number in range(10):
        verifier.verify(world.signer.sign(Principal("agent", f"ag_{number}", "ws_1")))
    assert len(verifier._cached) == 3


# --- exchanging tokens ---------------------------------------------------------------------------


class Exchange:
    """A registry that exchanges tokens, counting."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.calls: list[tuple[str, str]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, token: str, workspace: str) -> str:
        self.calls.append((token, workspace))
        await self.gate.wait()
        return self.world.signer.sign(
            Principal("agent", "ag_1", workspace or "ws_1", token_id="tok_1", installation=bool(workspace))
        )


@pytest.fixture
def exchange(world: World) -> Exchange:
    return Exchange(world)


def bearer(token: str, **more: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}", **more}


async def test_a_token_is_exchanged_once_until_its_assertion_is_nearly_over(
    world: World, exchange: Exchange
) -> None:
    authenticator, token = Authenticator(world.verifier, exchange, world.clock), new_token("agent")
    for _ in range(3):
        assert (await authenticator.identify(bearer(token))).principal.id == "ag_1"
    await world.clock.advance(49)
    await authenticator.identify(bearer(token))
    assert len(exchange.calls) == 1
    await world.clock.advance(2)
    await authenticator.identify(bearer(token))
    assert len(exchange.calls) == 2


async def test_callers_of_one_token_share_one_exchange(world: World, exchange: Exchange) -> None:
    authenticator, token = Authenticator(world.verifier, exchange, world.clock), new_token("agent")
    exchange.gate.clear()
    waiting = [asyncio.create_task(authenticator.identify(bearer(token))) for _ in range(20)]
    await world.clock.settle()
    waiting[0].cancel()
    await world.clock.settle()
    exchange.gate.set()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert len(exchange.calls) == 1
    assert isinstance(results[0], asyncio.CancelledError)
    assert all(not isinstance(each, BaseException) for each in results[1:])


@pytest.mark.parametrize("identifier", ["tok_1", "ag_1"])
async def test_a_revocation_makes_a_kept_token_be_asked_about_again(
    world: World, exchange: Exchange, identifier: str
) -> None:
    authenticator, token = Authenticator(world.verifier, exchange, world.clock), new_token("agent")
    await authenticator.identify(bearer(token))
    authenticator.drop("another")
    await authenticator.identify(bearer(token))
    assert len(exchange.calls) == 1
    authenticator.drop(identifier)
    await authenticator.identify(bearer(token))
    assert len(exchange.calls) == 2


async def test_an_answer_older_than_a_revocation_is_not_used(world: World, exchange: Exchange) -> None:
    authenticator, token = Authenticator(world.verifier, exchange, world.clock), new_token("agent")
    exchange.gate.clear()
    waiting = asyncio.create_task(authenticator.identify(bearer(token)))
    await world.clock.settle()
    authenticator.drop("tok_1")
    exchange.gate.set()
    await waiting
    assert len(exchange.calls) == 2


async def test_a_kept_token_is_refused_at_once_when_the_change_feed_says_so(
    world: World, exchange: Exchange
) -> None:
    authenticator, token = Authenticator(world.verifier, exchange, world.clock), new_token("agent")
    await authenticator.identify(bearer(token))
    world.revoked.add("tok_1")
    with pytest.raises(HoplineError) as caught:
        await authenticator.identify(bearer(token))
    assert caught.value.reason == "unauthenticated"


async def test_the_workspace_goes_to_the_exchange_and_is_kept_apart(world: World, exchange: Exchange) -> None:
    authenticator, token = Authenticator(world.verifier, exchange, world.clock), new_token("user")
    one = await authenticator.identify(bearer(token, **{"hopline-workspace": "ws_a"}))
    other = await authenticator.identify(bearer(token, **{"hopline-workspace": "ws_b"}))
    assert (one.principal.workspace_id, other.principal.workspace_id) == ("ws_a", "ws_b")
    assert [workspace for _, workspace in exchange.calls] == ["ws_a", "ws_b"]


async def test_a_refusal_of_the_registry_is_not_kept(world: World) -> None:
    answers = [HoplineError("unavailable", "down"), None]

    async def exchange(token: str, workspace: str) -> str:
        error = answers.pop(0)
        if error is not None:
            raise error
        return world.signer.sign(AGENT)

    authenticator, token = Authenticator(world.verifier, exchange, world.clock), new_token("agent")
    with pytest.raises(HoplineError, match="down"):
        await authenticator.identify(bearer(token))
    assert (await authenticator.identify(bearer(token))).principal.id == "ag_1"


async def test_only_a_bounded_number_of_tokens_is_kept(world: World, exchange: Exchange) -> None:
    authenticator = Authenticator(world.verifier, exchange, world.clock, max_cached=5)
    for _ in range(20):
        await authenticator.identify(bearer(new_token("agent")))
    assert len(authenticator._kept) == 5
    assert not authenticator._running
