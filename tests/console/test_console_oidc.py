"""Signing in with an identity provider: the whole way, and every way in which it may not end."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import AsyncIterator, Iterator
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import aiohttp
import pytest
from hopline.registry.v1 import identity_pb2
from hopline_console.oidc import PENDING_SECONDS, Pending
from hopline_console.sealing import Seal
from hopline_rpc.clock import ManualClock

from tests.console.conftest import PATIENT
from tests.support.browser import Browser, accessible, screenshots
from tests.support.mesh_process import MeshProcess, Space, processes, until
from tests.support.oidc import CLIENT, SECRET, Provider, provider
from tests.support.pages import Answer, Visitor

ALICE = "alice@example.org"


@pytest.fixture(scope="module")
def issuer() -> Iterator[Provider]:
    """A provider in a thread of its own: it serves whatever loop a test has."""
    ready, over, found = threading.Event(), asyncio.Event(), []

    async def serve() -> None:
        async with provider(time.time) as started:
            found.append((started, asyncio.get_running_loop()))
            ready.set()
            await over.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    ready.wait()
    started, loop = found[0]
    yield started
    loop.call_soon_threadsafe(over.set)
    thread.join()


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory, issuer: Provider) -> Iterator[MeshProcess]:
    """A mesh that this provider's people sign in to."""
    folder = tmp_path_factory.mktemp("oidc")
    (folder / "client.secret").write_text(f"{SECRET}\n")
    env = {
        "HOPLINE_OIDC_ISSUER": issuer.issuer,
        "HOPLINE_OIDC_CLIENT_ID": CLIENT,
        "HOPLINE_OIDC_CLIENT_SECRET_FILE": str(folder / "client.secret"),
        "HOPLINE_OIDC_NAME": "Example & Sons",
        **PATIENT,
    }
    with processes(folder) as started:
        found = MeshProcess(started, env=env)
        found.start()
        yield found
        assert found.complaints() == []
        for secret in (SECRET, "id_token", "eyJ"):
            assert secret not in found.up.said


@pytest.fixture
async def alice(space: Space, issuer: Provider) -> AsyncIterator[Visitor]:
    """Alice's browser; an admin has linked her."""
    issuer.twisted, issuer.forge, issuer.refuses, issuer.is_down = {}, None, "", False
    request = identity_pb2.CreateUserRequest(name="alice", login=ALICE)
    await space.admin.identities.CreateUser(request)
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
        yield Visitor(space, http)


async def leave(visitor: Visitor, next_page: str = "/floor") -> str:
    """Go to the provider; returns the address of the console that it sends the browser back to."""
    query = urlencode({"workspace": visitor.space.name, "next": next_page})
    page = await visitor.get(f"/signin/oidc/start?{query}")
    assert page.status == 200, page.text
    found = re.search(r'content="0; url=([^"]+)"', page.html)
    assert found is not None, page.html
    async with visitor.http.get(unescape(found[1]), allow_redirects=False) as answer:
        assert answer.status == 302, await answer.text()
        back = urlsplit(answer.headers["Location"])
    assert f"{back.scheme}://{back.netloc}" == visitor.url
    return f"{back.path}?{back.query}"


async def sign_in(visitor: Visitor, next_page: str = "/floor") -> Answer:
    return await visitor.get(await leave(visitor, next_page))


def refused(answer: Answer, *words: str) -> bool:
    """Tell whether nobody was signed in, and why not."""
    assert answer.status in (401, 503), answer.status
    assert "hopline_console=" not in answer.headers.get("Set-Cookie", "")
    assert all(word in answer.text for word in words), answer.text
    return True


async def tokens_of(visitor: Visitor) -> list[identity_pb2.Token]:
    found = await visitor.space.admin.identities.ListTokens(identity_pb2.ListTokensRequest(page_size=200))
    return [
        each for each in found.tokens if each.name == "console sign-in" and not each.HasField("revoked_at")
    ]


# --- the way ---------------------------------------------------------------------------------------


async def test_a_person_signs_in_at_the_provider_and_comes_back_to_where_they_wanted(alice: Visitor) -> None:
    assert "Sign in with Example & Sons" in (await alice.get("/signin")).text
    answer = await sign_in(alice, "/floor?agent=x")
    assert (answer.status, answer.location) == (303, "/floor?agent=x")
    page = await alice.get("/floor")
    assert (page.status, "alice" in page.text) == (200, True)
    (token,) = await tokens_of(alice)
    assert 43_000 < token.expires_at.seconds - time.time() <= 43_200


async def test_what_goes_to_the_provider_is_a_challenge_and_never_a_secret(
    alice: Visitor, issuer: Provider
) -> None:
    page = await alice.get(f"/signin/oidc/start?workspace={alice.space.name}")
    found = re.search(r'content="0; url=([^"]+)"', page.html)
    assert found is not None
    query = {name: values[0] for name, values in parse_qs(urlsplit(unescape(found[1])).query).items()}
    assert query["redirect_uri"] == f"{alice.url}/signin/oidc"
    assert (query["response_type"], query["code_challenge_method"]) == ("code", "S256")
    assert query["scope"] == "openid email"
    assert len({query["state"], query["nonce"], query["code_challenge"]}) == 3
    assert SECRET not in page.html
    other = await alice.get("/signin/oidc/start")
    assert all(query[name] not in other.html for name in ("state", "nonce", "code_challenge"))
    cookie = page.headers["Set-Cookie"]
    assert all(word in cookie for word in ("HttpOnly", "SameSite=lax", "Path=/signin/oidc", "Max-Age=600"))
    issuer.forms.clear()
    await sign_in(alice)
    assert issuer.forms[0]["code_verifier"] not in page.html


async def test_signing_out_ends_the_token_that_the_sign_in_made(alice: Visitor) -> None:
    await sign_in(alice)
    page = await alice.get("/floor")
    found = re.search(r'name="csrf" value="([^"]+)"', page.html)
    assert found is not None
    alice.csrf = found[1]
    assert len(await tokens_of(alice)) == 1
    assert (await alice.post("/signout")).location == "/signin"
    assert await tokens_of(alice) == []


@pytest.mark.parametrize("end", ["unlink", "revoke"])
async def test_a_session_ends_when_an_admin_says_so(alice: Visitor, end: str) -> None:
    await sign_in(alice)
    assert (await alice.get("/floor")).status == 200
    (token,) = await tokens_of(alice)
    admin = alice.space.admin.identities
    if end == "unlink":
        await admin.SetUserLogin(identity_pb2.SetUserLoginRequest(user="alice"))
    else:
        await admin.RevokeToken(identity_pb2.RevokeTokenRequest(token_id=token.id))

    async def over() -> bool:
        return "ended=1" in (await alice.get("/floor")).location

    await until(over, "the end of the session")


@pytest.mark.parametrize("target", ["https://evil.example", "//evil.example", "/\\evil.example", "/\tx", ""])
async def test_the_way_back_leads_nowhere_else(alice: Visitor, target: str) -> None:
    answer = await sign_in(alice, target)
    assert (answer.status, answer.location) == (303, "/")


# --- what another one has begun, or has stolen -------------------------------------------------------


async def test_a_stolen_way_back_is_worth_nothing_in_another_browser(alice: Visitor) -> None:
    back = await leave(alice)
    async with aiohttp.ClientSession() as http:
        thief = Visitor(alice.space, http)
        assert refused(await thief.get(back), "was not begun here")
    assert (await alice.get(back)).status == 303


async def test_nobody_is_signed_in_as_whoever_sends_them_a_way_back(alice: Visitor) -> None:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
        mallory = Visitor(alice.space, http)
        theirs = await leave(mallory)
    await leave(alice)
    assert refused(await alice.get(theirs), "was not begun here")


async def test_a_way_back_leads_in_once(alice: Visitor) -> None:
    back = await leave(alice)
    kept = {each.key: each.value for each in alice.http.cookie_jar if each.key == "hopline_signin"}
    assert (await alice.get(back)).status == 303
    assert refused(await alice.get(back), "was not begun here")  # the cookie is gone
    async with aiohttp.ClientSession(cookies=kept, cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
        again = Visitor(alice.space, http)
        assert refused(await again.get(back), "was not begun here")  # and its copy is of no use


async def test_a_code_is_good_only_with_what_its_own_browser_keeps(alice: Visitor, issuer: Provider) -> None:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
        stolen = parse_qs(urlsplit(await leave(Visitor(alice.space, http))).query)["code"][0]
    own = urlsplit(await leave(alice))
    query = {name: values[0] for name, values in parse_qs(own.query).items()}
    answer = await alice.get(f"{own.path}?{urlencode({**query, 'code': stolen})}")
    assert refused(answer, "the identity provider did not sign you in")


@pytest.mark.parametrize(
    ("twist", "said"),
    [
        ({"state": "another"}, "was not begun here"),
        ({"state": ""}, "was not begun here"),
        ({"state": "\ud800"}, "was not begun here"),
        ({"iss": "https://elsewhere.example.org"}, "another provider answered"),
        ({"code": ""}, "the identity provider did not sign you in"),
        ({"code": "x" * 20_000}, "the identity provider did not sign you in"),
        ({"error": "access_denied"}, "the identity provider did not sign you in"),
        ({"error": "<script>alert(1)</script>"}, "the identity provider did not sign you in"),
    ],
)
async def test_a_way_back_that_was_changed_leads_nowhere(
    alice: Visitor, twist: dict[str, str], said: str
) -> None:
    own = urlsplit(await leave(alice))
    query = {name: values[0] for name, values in parse_qs(own.query).items()} | twist
    answer = await alice.get(f"{own.path}?{urlencode(query, errors='surrogatepass')}")
    assert refused(answer, said)
    assert "<script>" not in answer.html
    assert refused(await alice.get(f"{own.path}?{own.query}"), "was not begun here")


async def test_a_bare_way_back_leads_nowhere(alice: Visitor) -> None:
    assert refused(await alice.get("/signin/oidc"), "was not begun here")


async def test_a_sign_in_that_takes_too_long_is_over() -> None:
    clock = ManualClock()
    seal = Seal([b"x" * 43 + b"="], clock)
    pending = Pending("state", "nonce", "verifier", "", "/", clock.now() + PENDING_SECONDS)
    sealed = seal.pending(pending)
    assert seal.open_pending(sealed) == pending
    assert seal.open_session(sealed) is None
    await clock.advance(PENDING_SECONDS + 1)
    assert seal.open_pending(sealed) is None


# --- what the provider says --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "twisted",
    [
        {"nonce": "of another sign-in, 16 at least"},
        {"nonce": None},
        {"aud": "another client"},
        {"iss": "https://elsewhere.example.org"},
        {"exp": 1},
        {"iat": 32_503_680_000},
    ],
)
async def test_a_word_of_the_provider_that_is_not_for_this_sign_in_is_not_taken(
    alice: Visitor, issuer: Provider, twisted: dict[str, Any]
) -> None:
    issuer.twisted = twisted
    assert refused(await sign_in(alice), "does not take the identity provider's word")
    assert await tokens_of(alice) == []


async def test_a_word_that_nobody_signed_is_not_taken(alice: Visitor, issuer: Provider) -> None:
    issuer.forge = lambda claims: issuer.signed(claims).rpartition(".")[0] + "."
    assert refused(await sign_in(alice), "does not take the identity provider's word")


async def test_a_provider_without_a_word_is_as_good_as_none(alice: Visitor, issuer: Provider) -> None:
    issuer.forge = lambda claims: ""
    assert refused(await sign_in(alice), "does not answer")


@pytest.mark.parametrize("twisted", [{"email": "bob@example.org"}, {"email_verified": False}])
async def test_whom_nobody_has_linked_is_told_whom_to_ask(
    alice: Visitor, issuer: Provider, twisted: dict[str, Any]
) -> None:
    issuer.twisted = twisted
    assert refused(await sign_in(alice), "ask an admin of it")


async def test_who_does_not_agree_at_the_provider_is_told_so(alice: Visitor, issuer: Provider) -> None:
    issuer.refuses = "access_denied"
    assert refused(await sign_in(alice), "the identity provider did not sign you in")


# --- in a browser ------------------------------------------------------------------------------------


async def test_the_whole_way_in_a_browser(alice: Visitor, browser: Browser) -> None:
    page = await browser.page()
    await page.goto(f"{alice.url}/signin")
    await accessible(page)
    await screenshots(page, "signin-provider")
    await page.get_by_text("To another workspace").click()
    await screenshots(page, "signin-provider-workspace")
    await page.get_by_label("Name of the workspace").fill(alice.space.name)
    await page.get_by_role("button", name="Sign in with Example & Sons").click()
    await page.wait_for_url(f"{alice.url}/floor")
    assert await page.get_by_role("button", name="Sign out").is_visible()
    await page.get_by_role("button", name="Sign out").click()
    await page.wait_for_url(f"{alice.url}/signin")
    assert await tokens_of(alice) == []
