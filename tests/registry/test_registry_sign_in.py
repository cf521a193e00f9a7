"""Signing in by the word of an identity provider: whose word holds, whom it means, and when that ends."""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from hopline.registry.v1.identity_pb2 import (
    CreateUserRequest,
    ListTokensRequest,
    ListUsersRequest,
    RevokeTokenRequest,
    SetUserLoginRequest,
    SignInRequest,
    SignInResponse,
)
from hopline.registry.v1.visibility_pb2 import GetSelfRequest, WatchChangesRequest
from hopline_directory import VIEWER
from hopline_registry.provider import AGAIN_SECONDS, KEEP_SECONDS
from hopline_registry.settings import RegistrySettings
from hopline_rpc.clock import ManualClock
from hopline_rpc.errors import HoplineError, to_status

from tests.registry.builders import Rig, copied, refusal
from tests.support.oidc import CLIENT, Provider, provider

NONCE = "a nonce of the console's"
ALICE = "alice@example.org"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def issuer(clock: ManualClock) -> AsyncIterator[Provider]:
    async with provider(clock.now) as found:
        yield found


@pytest.fixture
async def rig(started: Path, tmp_path: Path, issuer: Provider, clock: ManualClock) -> AsyncIterator[Rig]:
    """A registry with a provider, and Alice, whom it knows by her address."""
    settings = {"oidc_issuer": issuer.issuer, "oidc_client_id": CLIENT}
    made = await Rig.open(copied(started, tmp_path / "data"), clock, **settings)
    await made.admin.identity.CreateUser(CreateUserRequest(name="alice", login="Alice@Example.org"))
    yield made
    await made.registry.close()


async def sign_in(rig: Rig, id_token: str, nonce: str = NONCE, workspace: str = "") -> SignInResponse:
    console = await rig.service("console")
    request = SignInRequest(id_token=id_token, nonce=nonce, workspace=workspace)
    return await console.identity.SignIn(request)


async def refused(rig: Rig, id_token: str, nonce: str = NONCE, workspace: str = "") -> HoplineError:
    return await refusal(sign_in(rig, id_token, nonce, workspace))


async def set_login(rig: Rig, user: str, login: str) -> str:
    request = SetUserLoginRequest(user=user, login=login)
    return (await rig.admin.identity.SetUserLogin(request)).user.login


# --- whom it means ---------------------------------------------------------------------------------


async def test_a_person_whom_the_provider_knows_gets_a_token_of_their_own(rig: Rig, issuer: Provider) -> None:
    made = await sign_in(rig, issuer.id_token(NONCE))
    assert made.user.name == "alice"
    assert made.user.login == ""  # for admins alone
    caller = rig.caller(made.token)
    assert (await caller.visibility.GetSelf(GetSelfRequest())).owner.id == made.user.id


async def test_a_sign_in_is_listed_as_such_and_ends_when_it_is_revoked(rig: Rig, issuer: Provider) -> None:
    made = await sign_in(rig, issuer.id_token(NONCE))
    alice = rig.caller(made.token)
    listed = {each.id: each for each in (await alice.identity.ListTokens(ListTokensRequest())).tokens}
    assert listed[made.info.id].name == "console sign-in"
    assert listed[made.info.id].expires_at.seconds == int(rig.clock.now()) + 43_200
    await rig.admin.identity.RevokeToken(RevokeTokenRequest(token_id=made.info.id))
    assert (await refusal(alice.visibility.GetSelf(GetSelfRequest()))).reason == "unauthenticated"


async def test_a_sign_in_ends_by_itself(rig: Rig, issuer: Provider) -> None:
    made = await sign_in(rig, issuer.id_token(NONCE))
    await rig.clock.advance(43_201)
    error = await refusal(rig.caller(made.token).visibility.GetSelf(GetSelfRequest()))
    assert error.reason == "unauthenticated"


async def test_addresses_are_compared_without_regard_to_case(rig: Rig, issuer: Provider) -> None:
    made = await sign_in(rig, issuer.id_token(NONCE, email="ALICE@example.ORG"))
    assert made.user.name == "alice"


@pytest.mark.parametrize(
    "twisted",
    [
        {"email": "mallory@example.org"},
        {"email_verified": False},
        {"email_verified": "true"},
        {"email_verified": None},
        {"email": None},
        {"email": ["alice@example.org"]},
        {"email": ""},
    ],
)
async def test_who_is_linked_with_nobody_is_told_whom_to_ask(
    rig: Rig, issuer: Provider, twisted: dict[str, Any]
) -> None:
    error = await refused(rig, issuer.id_token(NONCE, **twisted))
    assert error.reason == "permission_denied"
    assert "ask an admin" in error.message


async def test_a_person_is_of_one_workspace_and_none_other_can_be_told_from_none(
    rig: Rig, issuer: Provider
) -> None:
    other = await rig.workspace("other")
    strange = await refused(rig, issuer.id_token(NONCE), workspace="other")
    nowhere = await refused(rig, issuer.id_token(NONCE), workspace="never was")
    assert to_status(strange) == to_status(nowhere)
    await other.identity.CreateUser(CreateUserRequest(name="alice", login=ALICE))
    made = await sign_in(rig, issuer.id_token(NONCE), workspace="other")
    found = await rig.caller(made.token).visibility.GetSelf(GetSelfRequest())
    assert found.workspace.name == "other"


async def test_the_providers_own_name_for_a_person_can_be_what_counts(
    started: Path, tmp_path: Path, issuer: Provider, clock: ManualClock
) -> None:
    settings = {"oidc_issuer": issuer.issuer, "oidc_client_id": CLIENT, "oidc_claim": "sub"}
    rig = await Rig.open(copied(started, tmp_path / "data"), clock, **settings)
    await rig.admin.identity.CreateUser(CreateUserRequest(name="alice", login="U-1"))
    assert (await refused(rig, issuer.id_token(NONCE))).reason == "permission_denied"
    await set_login(rig, "alice", "u-1")
    assert (await sign_in(rig, issuer.id_token(NONCE, email_verified=False))).user.name == "alice"
    await rig.registry.close()


# --- whose word holds ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "twisted",
    [
        {"iss": "https://elsewhere.example.org"},
        {"iss": None},
        {"aud": "another client"},
        {"aud": ["another client"]},
        {"aud": None},
        {"aud": [CLIENT, "another client"]},
        {"aud": [CLIENT, "another client"], "azp": "another client"},
        {"azp": "another client"},
        {"nonce": "another nonce of the console"},
        {"nonce": None},
        {"nonce": 7},
        {"exp": None},
        {"iat": None},
        {"exp": "soon"},
        {"exp": True},
        {"exp": 0},
        {"iat": 32_503_680_000},
        {"nbf": 32_503_680_000},
    ],
)
async def test_what_was_said_for_somebody_or_something_else_gets_one_answer(
    rig: Rig, issuer: Provider, twisted: dict[str, Any]
) -> None:
    error = await refused(rig, issuer.id_token(NONCE, **twisted))
    assert to_status(error) == to_status(await refused(rig, "no token at all"))
    assert error.reason == "unauthenticated"


async def test_several_audiences_hold_where_the_word_is_for_us(rig: Rig, issuer: Provider) -> None:
    told = issuer.id_token(NONCE, aud=["another client", CLIENT], azp=CLIENT)
    assert (await sign_in(rig, told)).user.name == "alice"


async def test_an_id_token_ends_and_is_taken_with_a_minute_of_difference(rig: Rig, issuer: Provider) -> None:
    told = issuer.id_token(NONCE)
    await rig.clock.advance(359)
    await sign_in(rig, told)
    await rig.clock.advance(2)
    assert (await refused(rig, told)).reason == "unauthenticated"


async def test_an_id_token_with_a_long_life_is_taken_for_an_hour_at_most(rig: Rig, issuer: Provider) -> None:
    told = issuer.id_token(NONCE, exp=int(rig.clock.now()) + 10 * 86_400)
    await rig.clock.advance(3601)
    assert (await refused(rig, told)).reason == "unauthenticated"


def _unsigned(claims: dict[str, Any], algorithm: str) -> str:
    parts = [json.dumps(each).encode() for each in ({"alg": algorithm, "kid": "key-1"}, claims)]
    return ".".join(base64.urlsafe_b64encode(each).rstrip(b"=").decode() for each in parts) + "."


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "", "HS256", "RS256"])
async def test_a_word_that_nobody_signed_is_refused(rig: Rig, issuer: Provider, algorithm: str) -> None:
    issuer.forge = lambda claims: _unsigned(claims, algorithm)
    assert (await refused(rig, issuer.id_token(NONCE))).reason == "unauthenticated"


async def test_the_public_key_is_no_secret_to_sign_with(rig: Rig, issuer: Provider) -> None:
    secret = json.dumps(issuer.public[0]).encode()

    def forge(claims: dict[str, Any]) -> str:
        text = _unsigned(claims, "HS256").rstrip(".")
        signature = hmac.digest(secret, text.encode(), "sha256")
        return f"{text}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"

    issuer.forge = forge
    assert (await refused(rig, issuer.id_token(NONCE))).reason == "unauthenticated"


async def test_a_key_that_the_provider_has_not_published_is_refused(rig: Rig, issuer: Provider) -> None:
    issuer.rotate(publish=False)
    assert (await refused(rig, issuer.id_token(NONCE))).reason == "unauthenticated"
    issuer.forge = lambda claims: issuer.signed(claims, kid="key-1")
    assert (await refused(rig, issuer.id_token(NONCE))).reason == "unauthenticated"


async def test_a_key_to_encrypt_with_signs_nothing(rig: Rig, issuer: Provider) -> None:
    issuer.public[0]["use"] = "enc"
    assert (await refused(rig, issuer.id_token(NONCE))).reason == "unauthenticated"


async def test_a_token_that_brings_its_own_key_is_refused(rig: Rig, issuer: Provider) -> None:
    issuer.rotate(publish=False)
    own = jwt.algorithms.RSAAlgorithm.to_jwk(issuer.keys[-1][2].public_key(), as_dict=True)
    issuer.forge = lambda claims: issuer.signed(claims, jwk=own, jku=f"{issuer.issuer}/jwks")
    assert (await refused(rig, issuer.id_token(NONCE))).reason == "unauthenticated"


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "EdDSA"])
@pytest.mark.parametrize("named", [True, False])
async def test_keys_of_each_kind_are_good(rig: Rig, issuer: Provider, algorithm: str, named: bool) -> None:
    issuer.rotate(algorithm, named=named)
    assert (await sign_in(rig, issuer.id_token(NONCE))).user.name == "alice"


async def test_only_a_service_of_the_mesh_brings_id_tokens(rig: Rig, issuer: Provider) -> None:
    request = SignInRequest(id_token=issuer.id_token(NONCE), nonce=NONCE)
    assert (await refusal(rig.admin.identity.SignIn(request))).reason == "permission_denied"
    assert (await refusal(rig.caller("").identity.SignIn(request))).reason == "unauthenticated"


# --- the provider's keys ---------------------------------------------------------------------------


async def test_keys_are_read_once_and_again_only_for_a_new_one(rig: Rig, issuer: Provider) -> None:
    for _ in range(3):
        await sign_in(rig, issuer.id_token(NONCE))
    assert issuer.asked == ["discovery", "jwks"]
    issuer.rotate()
    await rig.clock.advance(AGAIN_SECONDS)
    await sign_in(rig, issuer.id_token(NONCE))
    assert issuer.asked == ["discovery", "jwks"] * 2


async def test_however_many_unknown_keys_turn_up_the_provider_is_asked_twice_a_minute(
    rig: Rig, issuer: Provider
) -> None:
    await sign_in(rig, issuer.id_token(NONCE))
    issuer.rotate(publish=False)
    for _ in range(20):
        issuer.forge = lambda claims: issuer.signed(claims, kid=f"unknown-{len(issuer.asked)}")
        assert (await refused(rig, issuer.id_token(NONCE))).reason == "unauthenticated"
        await rig.clock.advance(4)
    assert issuer.asked.count("jwks") == 3


async def test_a_key_that_the_provider_took_back_is_refused_within_an_hour(
    rig: Rig, issuer: Provider
) -> None:
    await sign_in(rig, issuer.id_token(NONCE))
    issuer.public.clear()
    await rig.clock.advance(KEEP_SECONDS)
    assert (await refused(rig, issuer.id_token(NONCE))).reason == "unauthenticated"


async def test_a_provider_that_does_not_answer_is_said_and_asked_again_later(
    rig: Rig, issuer: Provider
) -> None:
    issuer.is_down = True
    for _ in range(3):
        error = await refused(rig, issuer.id_token(NONCE))
        assert (error.reason, error.retryable) == ("unavailable", True)
    assert issuer.asked == ["discovery"]
    issuer.is_down = False
    await rig.clock.advance(AGAIN_SECONDS)
    await sign_in(rig, issuer.id_token(NONCE))


async def test_a_provider_that_is_down_keeps_nobody_out_while_its_keys_are_known(
    rig: Rig, issuer: Provider
) -> None:
    await sign_in(rig, issuer.id_token(NONCE))
    issuer.is_down = True
    await rig.clock.advance(KEEP_SECONDS - 1)
    await sign_in(rig, issuer.id_token(NONCE))


# --- who links whom --------------------------------------------------------------------------------


async def test_only_an_admin_links_people_and_sees_with_whom(rig: Rig) -> None:
    viewer = await rig.user("vera", VIEWER)
    request = SetUserLoginRequest(user="vera", login=ALICE)
    assert (await refusal(viewer.identity.SetUserLogin(request))).reason == "permission_denied"
    seen = {each.name: each.login for each in (await viewer.identity.ListUsers(ListUsersRequest())).users}
    assert set(seen.values()) == {""}
    seen = {each.name: each.login for each in (await rig.admin.identity.ListUsers(ListUsersRequest())).users}
    assert seen == {"admin": "", "alice": ALICE, "vera": ""}


async def test_two_people_of_a_workspace_are_never_the_same_one(rig: Rig) -> None:
    await rig.user("bob")
    request = SetUserLoginRequest(user="bob", login=ALICE)
    error = await refusal(rig.admin.identity.SetUserLogin(request))
    assert (error.reason, "alice" in error.message) == ("failed_precondition", True)
    error = await refusal(rig.admin.identity.CreateUser(CreateUserRequest(name="carol", login=ALICE)))
    assert error.reason == "failed_precondition"
    names = [each.name for each in (await rig.admin.identity.ListUsers(ListUsersRequest())).users]
    assert names == ["admin", "alice", "bob"]  # and no Carol without her login


async def test_whoever_loses_the_link_loses_their_sign_ins_and_no_other_token(
    rig: Rig, issuer: Provider
) -> None:
    bob = await rig.user("bob")
    await set_login(rig, "alice", "")
    await set_login(rig, "bob", ALICE)
    made = await sign_in(rig, issuer.id_token(NONCE))
    assert made.user.name == "bob"
    assert await set_login(rig, "bob", ALICE) == ALICE  # the same again changes nothing
    await rig.caller(made.token).visibility.GetSelf(GetSelfRequest())
    assert await set_login(rig, "bob", "") == ""
    error = await refusal(rig.caller(made.token).visibility.GetSelf(GetSelfRequest()))
    assert error.reason == "unauthenticated"
    await bob.visibility.GetSelf(GetSelfRequest())
    assert (await refused(rig, issuer.id_token(NONCE))).reason == "permission_denied"


@pytest.mark.parametrize(
    "login", ["alice", "@example.org", "alice@", "al ice@example.org", "a\u202e@b.c", " "]
)
async def test_what_is_no_address_is_no_login(rig: Rig, login: str) -> None:
    request = SetUserLoginRequest(user="alice", login=login)
    error = await refusal(rig.admin.identity.SetUserLogin(request))
    assert (error.reason, [field for field, _ in error.violations]) == ("invalid_argument", ["login"])


async def test_a_repeated_creation_returns_the_login_and_no_second_token(rig: Rig) -> None:
    request = CreateUserRequest(name="dora", login="dora@example.org", request_id="r-1")
    first = await rig.admin.identity.CreateUser(request)
    again = await rig.admin.identity.CreateUser(request)
    assert (again.user, again.token) == (first.user, "")
    assert again.user.login == "dora@example.org"


async def test_no_login_is_in_what_the_services_are_told(rig: Rig, issuer: Provider) -> None:
    await sign_in(rig, issuer.id_token(NONCE))
    watcher = await rig.service("relay")
    stream = watcher.visibility.WatchChanges(WatchChangesRequest())
    told = await anext(aiter(stream))
    stream.cancel()
    assert b"alice" in told.SerializeToString()
    assert ALICE.encode() not in told.SerializeToString()


# --- settings --------------------------------------------------------------------------------------


async def test_without_a_provider_nobody_signs_in_so(started: Path, tmp_path: Path) -> None:
    rig = await Rig.open(copied(started, tmp_path / "data"))
    error = await refused(rig, "a token")
    assert (error.reason, "HOPLINE_OIDC_ISSUER" in error.message) == ("failed_precondition", True)
    await rig.registry.close()


@pytest.mark.parametrize(
    "settings",
    [
        {"oidc_issuer": "http://id.example.org", "oidc_client_id": "c"},
        {"oidc_issuer": "id.example.org", "oidc_client_id": "c"},
        {"oidc_issuer": "https://id.example.org?x=1", "oidc_client_id": "c"},
        {"oidc_issuer": "https://user@id.example.org", "oidc_client_id": "c"},
        {"oidc_issuer": "https://id.example.org"},
        {"oidc_client_id": "c"},
        {"oidc_claim": "name"},
        {"oidc_session_seconds": "0"},
    ],
)
def test_a_provider_that_cannot_be_trusted_stops_the_start(settings: dict[str, str]) -> None:
    with pytest.raises(HoplineError, match="OIDC_"):
        RegistrySettings.load(settings)
