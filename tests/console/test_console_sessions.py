"""How often one may try to sign in, what a wrong token tells, and all that ends a session, everywhere."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest
from hopline.registry.v1 import identity_pb2
from hopline_rpc.principals import new_token

from tests.opaque.questions import Question
from tests.opaque.times import leaks
from tests.support.mesh_process import MeshProcess, Space, processes, until
from tests.support.pages import Visitor, visitor

PUBLIC = "https://console.example.org"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeshProcess]:
    """A mesh whose console stands behind a proxy on this machine, with the usual limits."""
    env = {
        "HOPLINE_CONSOLE_PROXIES": "127.0.0.1",
        "HOPLINE_CONSOLE_URL": PUBLIC,
        "HOPLINE_CONSOLE_SIGNINS": "1000",
        "HOPLINE_OIDC_ISSUER": "http://127.0.0.1:9",
        "HOPLINE_OIDC_CLIENT_ID": "console",
    }
    with processes(tmp_path_factory.mktemp("guarded")) as started:
        found = MeshProcess(started, env=env)
        found.start()
        yield found
        assert found.complaints() == []


@pytest.fixture
async def stranger(guarded: MeshProcess) -> AsyncIterator[Visitor]:
    jar = aiohttp.CookieJar(unsafe=True)
    async with guarded.space() as space, aiohttp.ClientSession(cookie_jar=jar) as http:
        yield Visitor(space, http)


async def attempt(stranger: Visitor, address: str, token: str) -> tuple[int, str]:
    """Try a token from an address; returns the status, and how long to wait."""
    fields = {"token": token, "workspace": stranger.space.name}
    headers = {"X-Forwarded-For": address, "Origin": stranger.url}
    answer = await stranger.post("/signin", fields, headers=headers)
    return answer.status, answer.headers.get("Retry-After", "")


# --- how often ---------------------------------------------------------------------------------------


async def test_who_tries_too_often_waits_and_nobody_else_does(stranger: Visitor) -> None:
    good = stranger.space.mesh.admin_token
    wrong = [await attempt(stranger, "192.0.2.1", new_token("user")) for _ in range(10)]
    assert {status for status, _ in wrong} == {401}
    status, wait = await attempt(stranger, "192.0.2.1", new_token("user"))
    assert (status, 1 <= int(wait) <= 7) == (429, True)
    assert (await attempt(stranger, "192.0.2.1", good))[0] == 429  # a right one tells nothing either
    assert (await attempt(stranger, "198.51.100.9, 192.0.2.1", good))[0] == 429
    assert (await attempt(stranger, "192.0.2.2", good))[0] == 303


async def test_the_page_says_how_long_to_wait(stranger: Visitor) -> None:
    for _ in range(10):
        await attempt(stranger, "192.0.2.3", "nonsense")
    headers = {"X-Forwarded-For": "192.0.2.3", "Origin": stranger.url}
    answer = await stranger.post("/signin", {"token": "nonsense", "next": "/usage"}, headers=headers)
    assert answer.status == 429
    assert "there were too many attempts to sign in; try again in" in answer.text
    assert 'name="next" value="/usage"' in answer.html


async def test_good_sign_ins_are_not_counted(stranger: Visitor) -> None:
    for _ in range(15):
        assert (await attempt(stranger, "192.0.2.4", stranger.space.mesh.admin_token))[0] == 303


async def test_attempts_at_once_are_counted_each(stranger: Visitor) -> None:
    tries = [attempt(stranger, "2001:db8::1", new_token("user")) for _ in range(30)]
    statuses = [status for status, _ in await asyncio.gather(*tries)]
    assert (statuses.count(401), statuses.count(429)) == (10, 20)
    # The next address of the same network is the same one.
    assert (await attempt(stranger, "2001:db8::2", new_token("user")))[0] == 429


async def test_ways_back_from_a_provider_are_counted_too(stranger: Visitor) -> None:
    headers = {"X-Forwarded-For": "192.0.2.5"}
    statuses = [(await stranger.get("/signin/oidc?code=x&state=y", **headers)).status for _ in range(11)]
    assert statuses == [401] * 10 + [429]


# --- what a wrong token tells ------------------------------------------------------------------------


async def test_whatever_is_wrong_with_a_token_the_answer_and_its_time_are_the_same(space: Space) -> None:
    token = await space.person("ann", identity_pb2.ROLE_ADMIN)
    request = identity_pb2.CreateTokenRequest(user="ann", name="short", expires_in_seconds=1)
    over = await space.admin.identities.CreateToken(request)
    listed = (await space.admin.identities.ListTokens(identity_pb2.ListTokensRequest(page_size=200))).tokens
    revoked = next(
        each for each in listed if each.subject_id == over.info.subject_id and each.name == "first"
    )
    await space.admin.identities.RevokeToken(identity_pb2.RevokeTokenRequest(token_id=revoked.id))
    references = {
        "never there": new_token("user"),
        "revoked": token,
        "over": over.token,
        "of no shape": "nonsense",
        "of an agent, never there": new_token("agent"),
    }
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as http:
        stranger = Visitor(space, http)

        async def ask(reference: str) -> str:
            answer = await stranger.post("/signin", {"token": reference, "workspace": ""})
            kept = {name: value for name, value in answer.headers.items() if name != "Date"}
            return f"{answer.status} {kept} {answer.html}"

        async def is_over() -> bool:
            return (await ask(over.token)).startswith("401")

        await until(is_over, "the end of the token")
        question = Question("signin", references, ask)
        answers = await question.answers()
        assert set(answers.values()) == {answers["never there"]}
        assert await leaks(question, space.mesh.up.pid) == {}


# --- what ends a session -----------------------------------------------------------------------------


async def test_a_session_ends_when_its_token_does(space: Space) -> None:
    await space.person("ann", identity_pb2.ROLE_VIEWER)
    request = identity_pb2.CreateTokenRequest(user="ann", expires_in_seconds=3)
    made = await space.admin.identities.CreateToken(request)
    async with visitor(space, made.token) as ann:
        assert (await ann.get("/floor")).status == 200

        async def over() -> bool:
            return "ended=1" in (await ann.get("/floor")).location

        await until(over, "the end of the session")
        assert (await ann.post("/signout")).location.startswith("/signin")
        assert (await ann.get("/live")).status == 401


async def test_a_token_that_is_revoked_ends_every_page_that_is_looked_at(space: Space) -> None:
    token = await space.person("ann", identity_pb2.ROLE_ADMIN)
    async with visitor(space, token) as ann, visitor(space, token) as elsewhere:
        async with ann.http.get(f"{ann.url}/live") as live, elsewhere.http.get(f"{ann.url}/live") as other:
            assert await live.content.readline() == await other.content.readline() == b"retry: 3000\n"
            found = (await ann.space.admin.identities.ListTokens(identity_pb2.ListTokensRequest())).tokens
            mine = next(each for each in found if each.subject_name == "ann")
            await space.admin.identities.RevokeToken(identity_pb2.RevokeTokenRequest(token_id=mine.id))
            for stream in (live, other):
                await asyncio.wait_for(_to_its_end(stream), 60)
        for each in (ann, elsewhere):
            assert (await each.get("/floor")).location == "/signin?ended=1&next=%2Ffloor"


async def _to_its_end(stream: aiohttp.ClientResponse) -> None:
    with contextlib.suppress(aiohttp.ClientPayloadError):  # broken off is ended too
        await stream.content.read()


async def test_a_role_that_is_lost_is_lost_on_the_next_page(space: Space) -> None:
    agent = await space.agent("planner")
    token = await space.person("ann", identity_pb2.ROLE_ADMIN)
    async with visitor(space, token) as ann:
        assert "planner" in (await ann.get("/floor")).text
        assert (await ann.get(f"/agents/{agent.id}")).status == 200
        await space.admin.identities.RevokeRole(identity_pb2.RevokeRoleRequest(user="ann"))
        assert "planner" not in (await ann.get("/floor")).text
        assert (await ann.get(f"/agents/{agent.id}")).status == 404
        assert (await ann.post(f"/agents/{agent.id}/pause")).status in (403, 404)


async def test_signing_out_elsewhere_leaves_a_session_with_the_same_token_alone(space: Space) -> None:
    token = await space.person("ann", identity_pb2.ROLE_VIEWER)
    async with visitor(space, token) as ann, visitor(space, token) as elsewhere:
        assert (await ann.post("/signout", {"csrf": elsewhere.csrf})).status == 403
        assert (await ann.post("/signout")).location == "/signin"
        assert (await elsewhere.get("/floor")).status == 200


# --- behind a proxy ----------------------------------------------------------------------------------


async def test_behind_https_cookies_go_over_https_alone(stranger: Visitor) -> None:
    headers = {"Host": "console.example.org", "Origin": PUBLIC}
    fields = {"token": stranger.space.mesh.admin_token, "workspace": stranger.space.name, "next": "/floor"}
    answer = await stranger.post("/signin", fields, headers=headers)
    assert (answer.status, answer.location) == (303, "/floor")
    cookie = answer.headers["Set-Cookie"]
    for word in ("Secure", "HttpOnly", "SameSite=lax", "Path=/", "Max-Age=43200"):
        assert word in cookie, cookie
    assert "Domain" not in cookie


async def test_a_form_of_the_same_host_over_plain_http_is_of_another_site(stranger: Visitor) -> None:
    fields = {"token": stranger.space.mesh.admin_token, "workspace": stranger.space.name}
    for origin in ("http://console.example.org", "https://console.example.org:8443"):
        headers = {"Host": "console.example.org", "Origin": origin}
        assert (await stranger.post("/signin", fields, headers=headers)).status == 403, origin
