"""Signing in with a token, what every answer carries, and how a session ends."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest
from hopline.registry.v1 import identity_pb2

from tests.support.mesh_process import MeshProcess, Space, until
from tests.support.pages import Visitor, visitor


@pytest.fixture
async def admin(space: Space) -> AsyncIterator[Visitor]:
    async with visitor(space) as found:
        yield found


@pytest.fixture
async def stranger(space: Space) -> AsyncIterator[Visitor]:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
        yield Visitor(space, http)


async def test_who_is_not_signed_in_is_led_to_it_and_back(stranger: Visitor) -> None:
    answer = await stranger.get("/floor?agent=x")
    assert (answer.status, answer.location) == (303, "/signin?next=%2Ffloor%3Fagent%3Dx")
    page = await stranger.get(answer.location)
    assert 'name="next" value="/floor?agent=x"' in page.html
    assert (await stranger.post("/signout")).location.startswith("/signin")


async def test_a_person_signs_in_and_sees_the_floor_of_the_workspace(admin: Visitor, space: Space) -> None:
    await space.agents("planner", "reviewer")
    page = await admin.get("/floor")
    assert page.status == 200
    for text in (f"workspace {space.name}", "planner", "reviewer", "offline", "Sign out"):
        assert text in page.text
    assert space.mesh.admin_token not in page.html


@pytest.mark.parametrize("token", ["", "nonsense", "hpl_u_" + "x" * 43, "hpl_a_" + "x" * 43])
async def test_a_token_that_is_nobodys_is_refused_in_the_same_words(stranger: Visitor, token: str) -> None:
    answer = await stranger.sign_in(token)
    assert answer.status == 401
    assert "no person has this token, or not in this workspace" in answer.text
    assert "Set-Cookie" not in answer.headers


async def test_the_token_of_an_agent_opens_no_page(stranger: Visitor, space: Space) -> None:
    agent = await space.agent("planner")
    answer = await stranger.sign_in(agent.token)
    assert answer.status == 401
    assert "the console is for people" in answer.text


async def test_cookies_are_for_the_browser_alone_and_headers_keep_others_out(
    stranger: Visitor, space: Space
) -> None:
    answer = await stranger.sign_in(space.mesh.admin_token)
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert space.mesh.admin_token not in cookie
    for path in ("/floor", "/signin", "/nowhere", "/static/console.css"):
        headers = (await stranger.get(path)).headers
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"


async def test_a_form_without_its_secret_or_from_another_site_does_nothing(admin: Visitor) -> None:
    assert (await admin.post("/signout", {"csrf": "guess"})).status == 403
    for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        assert (await admin.post("/signout", headers=headers)).status == 403
    assert (await admin.get("/floor")).status == 200
    assert (await admin.post("/signout")).location == "/signin"
    assert (await admin.get("/floor")).status == 303


async def test_a_host_of_another_name_is_not_served(admin: Visitor) -> None:
    assert (await admin.get("/floor", Host="evil.example")).status == 421


@pytest.mark.parametrize("target", ["https://evil.example", "//evil.example", "/\\evil.example", "nowhere"])
async def test_signing_in_leads_nowhere_else(stranger: Visitor, space: Space, target: str) -> None:
    fields = {"token": space.mesh.admin_token, "workspace": space.name, "next": target}
    assert (await stranger.post("/signin", fields)).location == "/"


async def test_a_session_ends_with_its_token(space: Space) -> None:
    token = await space.person("ann", identity_pb2.ROLE_ADMIN)
    async with visitor(space, token) as ann:
        assert (await ann.get("/floor")).status == 200
        listed = await space.admin.identities.ListTokens(identity_pb2.ListTokensRequest())
        gone = identity_pb2.RevokeTokenRequest(
            token_id=next(each.id for each in listed.tokens if each.subject_name == "ann")
        )
        await space.admin.identities.RevokeToken(gone)

        async def over() -> bool:
            return "ended=1" in (await ann.get("/floor")).location

        await until(over, "the end of the session")
        assert (await ann.get("/live")).status == 401


async def test_what_is_hidden_and_what_never_was_is_one_page(admin: Visitor) -> None:
    answer = await admin.get("/nowhere")
    assert answer.status == 404
    assert "Nothing of this name exists, or it is not for you to see." in answer.text


async def test_a_body_that_is_too_large_is_refused(admin: Visitor) -> None:
    assert (await admin.post("/signout", {"more": "x" * 1_100_000})).status == 413


async def test_a_page_hears_that_something_has_happened(admin: Visitor, space: Space) -> None:
    async with admin.http.get(f"{admin.url}/live") as stream:
        assert stream.status == 200
        assert stream.content_type == "text/event-stream"
        assert await stream.content.readline() == b"retry: 3000\n"
        await stream.content.readline()
        await space.agent("newcomer")
        assert await stream.content.readline() == b"event: changed\n"


async def test_a_stranger_gets_no_hints(stranger: Visitor) -> None:
    assert (await stranger.get("/live")).status == 401


async def test_a_session_outlives_a_restart_of_the_mesh(own_mesh: MeshProcess) -> None:
    async with own_mesh.space() as space, visitor(space) as admin:
        own_mesh.up.terminate()
        await own_mesh.up.ended()
        await own_mesh.restart()
        admin.url = str(own_mesh.endpoints["console"])
        assert (await admin.get("/floor")).status == 200
