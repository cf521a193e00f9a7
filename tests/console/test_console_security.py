"""What holds of every route of the console, whoever wrote it, and of whatever it answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import quote

import aiohttp
import pytest
from hopline.relay.v1 import audit_pb2

from tests.console.walk import FORMS, OPEN, PAGES, WAYS, Way
from tests.support.mesh_process import Space
from tests.support.pages import Answer, Visitor, visitor

UNSIGNED_FORMS = {"/signin"}


@pytest.fixture
async def admin(space: Space) -> AsyncIterator[Visitor]:
    async with visitor(space) as found:
        yield found


@pytest.fixture
async def stranger(space: Space) -> AsyncIterator[Visitor]:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as http:
        yield Visitor(space, http)


def each(ways: list[Way]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("way", ways, ids=lambda way: f"{way.method} {way.pattern}")


async def newest(space: Space) -> int:
    """Return the number of the newest event: whatever is done has one."""
    request = audit_pb2.ListEventsRequest(page_size=1, descending=True)
    found = (await space.admin.events.ListEvents(request)).events
    return found[0].seq if found else 0


def protected(answer: Answer) -> bool:
    """Look at what every answer has to carry."""
    policy = dict(
        part.strip().partition(" ")[::2] for part in answer.headers["Content-Security-Policy"].split(";")
    )
    assert policy == {
        "default-src": "'none'",
        "script-src": "'self'",
        "style-src": "'self'",
        "img-src": "'self' data:",
        "connect-src": "'self'",
        "form-action": "'self'",
        "frame-ancestors": "'none'",
        "base-uri": "'none'",
    }
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Referrer-Policy"] in {"same-origin", "no-referrer"}
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert answer.headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert "Access-Control-Allow-Origin" not in answer.headers
    assert "Server" not in answer.headers
    return True


# --- who is not signed in ----------------------------------------------------------------------------


@each(PAGES)
async def test_who_is_not_signed_in_is_led_to_it_and_shown_nothing(stranger: Visitor, way: Way) -> None:
    answer = await stranger.get(f"{way.path}?agent=x")
    if way.pattern == "/live":
        assert (answer.status, answer.html) == (401, "sign in")
    elif way.pattern == "/":
        assert (answer.status, answer.location, answer.html) == (303, "/floor", "")
    else:
        assert (answer.status, answer.html) == (303, "")
        assert answer.location == f"/signin?next={quote(way.path, safe='')}%3Fagent%3Dx"
    assert answer.headers["Cache-Control"] == "no-store"


@each([way for way in FORMS if way.pattern not in UNSIGNED_FORMS])
async def test_who_is_not_signed_in_sends_no_form(stranger: Visitor, space: Space, way: Way) -> None:
    before = await newest(space)
    answer = await stranger.post(way.path, {"csrf": "guess"})
    assert (answer.status, answer.location, answer.html) == (303, "/signin", "")
    assert await newest(space) == before


@pytest.mark.parametrize("cookie", ["", "x", "gAAAAA", "A" * 4000, "é"])
async def test_a_cookie_that_nobody_sealed_is_none(stranger: Visitor, cookie: str) -> None:
    answer = await stranger.get("/floor", Cookie=f"hopline_console={cookie}; hopline_flash={cookie}")
    assert (answer.status, answer.location) == (303, "/signin?next=%2Ffloor")


async def test_one_cookie_is_not_taken_for_another(admin: Visitor, stranger: Visitor) -> None:
    sealed = next(each.value for each in admin.http.cookie_jar if each.key == "hopline_console")
    answer = await stranger.get("/signin/oidc", Cookie=f"hopline_signin={sealed}")
    assert answer.status in (401, 404) or answer.location.startswith("/signin")
    text = (await admin.get("/floor", Cookie=f"hopline_console={sealed}; hopline_flash={sealed}")).text
    assert admin.space.mesh.admin_token not in text


# --- forms that are not ours -------------------------------------------------------------------------


@each([way for way in FORMS if way.pattern not in UNSIGNED_FORMS])
async def test_a_form_without_the_secret_of_this_very_sign_in_does_nothing(
    admin: Visitor, space: Space, way: Way
) -> None:
    async with visitor(space) as other:
        others = other.csrf
    before = await newest(space)
    for csrf in ("", "guess", "\ud83d", "é" * 24, others):
        answer = await admin.post(way.path, {"csrf": csrf.encode(errors="replace").decode()})
        assert answer.status == 403, csrf
    body = aiohttp.MultipartWriter("form-data")
    body.append("x").set_content_disposition("form-data", name="csrf", filename="csrf")
    sent = await admin.http.post(admin.url + way.path, data=body, allow_redirects=False)
    assert sent.status in (400, 403)
    assert await newest(space) == before
    assert (await admin.get("/floor")).status == 200


FOREIGN = (
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": ""},
    {"Origin": "http://127.0.0.1"},
    {"Origin": "http://127.0.0.1:1"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
)


@each(FORMS)
async def test_a_form_of_another_site_does_nothing_though_it_had_the_secret(
    admin: Visitor, space: Space, way: Way
) -> None:
    before = await newest(space)
    for headers in FOREIGN:
        answer = await admin.post(way.path, headers=headers)
        assert answer.status == 403, headers
        assert "Set-Cookie" not in answer.headers
    assert await newest(space) == before
    assert (await admin.get("/floor")).status == 200


@each(WAYS)
async def test_a_route_takes_its_own_methods_alone(admin: Visitor, space: Space, way: Way) -> None:
    taken = {each.method for each in WAYS if each.fits(way.path)}
    before = await newest(space)
    for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"} - taken:
        headers = {"Origin": admin.url, "X-CSRF-Token": admin.csrf}
        async with admin.http.request(
            method, admin.url + way.path, headers=headers, data={"csrf": admin.csrf}
        ) as answer:
            assert answer.status == (404 if way.pattern.startswith("/signin/oidc") else 405), method
    assert await newest(space) == before


# --- what every answer carries -----------------------------------------------------------------------


@each(WAYS)
async def test_every_answer_carries_what_protects_it(admin: Visitor, stranger: Visitor, way: Way) -> None:
    if way.method == "POST":
        answers = [await admin.post(way.path, {"csrf": "guess"}), await stranger.post(way.path)]
        answers.append(await admin.post(way.path, headers={"Origin": "https://evil.example"}))
    else:
        answers = [await stranger.get(way.path), await admin.get(way.path, Host="evil.example")]
        answers += [] if way.pattern == "/live" else [await admin.get(way.path)]
    for answer in answers:
        assert protected(answer)
        assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    "path", ["/nowhere", "/static/console.css", "/static/live.js", "/static/nowhere", "/static/../app.py"]
)
async def test_so_does_what_is_no_page(admin: Visitor, path: str) -> None:
    answer = await admin.get(path)
    assert protected(answer)
    assert answer.status in (200, 404)
    assert "import" not in answer.html or path.endswith(".js")


# --- names and sizes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:7404", "127.0.0.1.evil.example", "localhost@evil.example", "", "[::1"],
)
async def test_a_host_of_another_name_gets_nothing(stranger: Visitor, host: str) -> None:
    answer = await stranger.get("/signin", Host=host)
    assert answer.status in (400, 421)
    assert "hopline_" not in answer.headers.get("Set-Cookie", "")


@each(FORMS)
async def test_a_body_has_its_bounds(admin: Visitor, space: Space, way: Way) -> None:
    before = await newest(space)
    assert (await admin.post(way.path, {"more": "x" * 1_100_000})).status == 413

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b"x" * 64 * 1024

    headers = {"Origin": admin.url, "Content-Type": "application/x-www-form-urlencoded"}
    try:
        async with admin.http.post(admin.url + way.path, data=endless(), headers=headers) as answer:
            assert answer.status == 413
    except aiohttp.ClientConnectionError:
        pass  # it does not read on, and says so by closing
    many = {f"field-{number}": "x" for number in range(1500)}
    assert (await admin.post(way.path, many)).status in (400, 403)
    assert await newest(space) == before


# --- what leads elsewhere ----------------------------------------------------------------------------

ELSEWHERE = (
    "https://evil.example",
    "//evil.example",
    "///evil.example",
    "/\\evil.example",
    "\\\\evil.example",
    "/\t/evil.example",
    "/\n/evil.example",
    "\t//evil.example",
    " //evil.example",
    "javascript:alert(1)",
    "http:evil.example",
    "evil.example",
    "/\x00/evil.example",
    "/\u2028/evil.example",
    "@evil.example",
    "/floor\r\nSet-Cookie: a=b",
)


@pytest.mark.parametrize("target", ELSEWHERE)
async def test_no_sign_in_leads_to_another_site(
    stranger: Visitor, admin: Visitor, space: Space, target: str
) -> None:
    asked = f"/signin?next={quote(target, safe='')}"
    assert (await admin.get(asked)).location == "/"
    assert 'name="next" value="/"' in (await stranger.get(asked)).html
    fields = {"token": space.mesh.admin_token, "workspace": space.name, "next": target}
    answer = await stranger.post("/signin", fields)
    assert (answer.status, answer.location) == (303, "/")


async def test_the_page_asked_for_comes_back_whole(stranger: Visitor, space: Space) -> None:
    wanted = "/floor?agent=x&channel=relay&q=%22%3E%3Cscript%3E"
    answer = await stranger.get(wanted)
    page = await stranger.get(answer.location)
    assert "<script>" not in page.html
    fields = {"token": space.mesh.admin_token, "workspace": space.name, "next": wanted}
    assert (await stranger.post("/signin", fields)).location == wanted


def test_what_is_open_to_everybody_is_a_short_list() -> None:
    assert {way.pattern for way in WAYS if way.method == "GET"} >= OPEN
    assert {way.pattern for way in FORMS} >= UNSIGNED_FORMS
