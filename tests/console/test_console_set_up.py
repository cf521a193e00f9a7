"""What all set-up pages have in common: who may, what is refused and how, what never shows twice."""

from __future__ import annotations

import pytest
from hopline.registry.v1 import identity_pb2

from tests.console.hidden import two_spaces
from tests.support.forms import done, fill, form, send
from tests.support.mesh_process import Space
from tests.support.pages import visitor

PAGES = (
    "/agents",
    "/agents/new",
    "/usage",
    "/audit",
    "/audit/check",
    "/crews",
    "/schedules",
    "/webhooks",
    "/plugins",
    "/hooks",
    "/users",
    "/tokens",
    "/policy",
    "/models",
    "/credits",
)


@pytest.mark.parametrize("path", PAGES)
async def test_a_page_has_one_heading_and_stands_in_the_menu(space: Space, path: str) -> None:
    async with visitor(space) as admin:
        page = await admin.get(path)
    assert page.status == 200
    assert page.html.count("<h1>") == 1
    assert 'aria-current="page"' in page.html
    assert page.headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("path", PAGES)
async def test_whoever_is_not_signed_in_is_led_to_sign_in(space: Space, path: str) -> None:
    async with visitor(space) as admin:
        await admin.post("/signout")
        assert (await admin.get(path)).location.startswith("/signin?next=")


async def test_a_form_without_its_token_changes_nothing(space: Space) -> None:
    await space.agent("planner")
    async with visitor(space) as admin:
        for path in ("/tokens", "/users", "/policy", "/agents/planner/delete", "/credits", "/crews/plan"):
            answer = await admin.post(
                path, {"csrf": "guess", "name": "x", "kind": "agent", "holder": "planner"}
            )
            assert answer.status == 403, path
        assert "planner" in (await admin.get("/agents")).text


async def test_what_belongs_to_another_workspace_is_the_page_of_what_never_existed(space: Space) -> None:
    async with two_spaces(space) as (admin, foreign):
        for what, path in foreign.items():
            there, missing = await admin.get(path), await admin.get(path.replace(what, "nothing_at_all"))
            assert (there.status, there.text) == (missing.status, missing.text), path
            assert there.status == 404, path
        for path in ("/agents", "/tokens", "/users", "/plugins", "/schedules", "/webhooks", "/crews"):
            text = (await admin.get(path)).html
            assert not [each for each in foreign if each in text], path


async def test_a_viewer_sees_no_form_that_would_be_refused_and_is_told_why_when_sending_one(
    space: Space,
) -> None:
    await space.agent("planner")
    token = await space.person("vera", identity_pb2.ROLE_VIEWER)
    async with visitor(space, token) as vera:
        for path in ("/agents", "/policy", "/models", "/credits", "/crews", "/agents/planner"):
            page = await vera.get(path)
            assert page.status == 200, path
            for word in ("Create an agent", "Save", "Pay in", "Pause", "Delete", "Apply a crew"):
                assert word not in page.text, (path, word)
        for path in ("/agents/planner/pause", "/agents/planner/delete"):
            answer = await vera.post(path)
            assert answer.status == 403, path
            assert "this needs the role" in answer.text
        for path in ("/policy", "/credits", "/models", "/agents/new", "/crews/plan", "/crews/apply"):
            answer = await vera.post(path, {"amount": "5", "max_depth": "1", "name": "x"})
            assert answer.status == 403, path
            assert "this needs the role" in answer.text, path
        assert (await vera.get("/agents/planner/settings")).status == 403
        assert (await vera.get("/audit/check")).status == 403


async def test_what_was_typed_comes_back_with_what_is_wrong_at_its_field(space: Space) -> None:
    async with visitor(space) as admin:
        answer = await fill(
            admin, "/agents/new", "/agents/new", name="Planner", labels="no sign", soul="a\nb"
        )
        assert answer.status == 400
        again = form(answer, "/agents/new")
        assert (again["name"], again["labels"], again["soul"]) == ("Planner", "no sign", "a\nb")
        assert "line 1 must be NAME=VALUE." in answer.text
        assert "Nothing was changed." in answer.text
        fixed = await send(admin, again, "/agents/new", labels="team=research")
        assert fixed.status == 200
        assert "Planner is created" in fixed.text


async def test_a_secret_is_shown_once_and_the_same_form_sent_again_makes_no_second_one(space: Space) -> None:
    await space.agent("planner")
    async with visitor(space) as admin:
        fields = {**form(await admin.get("/tokens"), "/tokens"), "holder": "planner", "name": "spare"}
        first = await send(admin, fields, "/tokens")
        assert first.status == 200
        assert "hpl_a_" in first.text
        assert first.headers["Cache-Control"] == "no-store"
        again = await send(admin, fields, "/tokens")
        assert again.status == 409
        assert "hpl_a_" not in again.html
        assert "was done then" in again.text
        listed = await admin.get("/tokens?agent=planner")
        assert listed.html.count("<bdi>spare</bdi>") == 1
        assert "hpl_a_" not in listed.html


async def test_a_refused_form_may_be_sent_again(space: Space) -> None:
    async with visitor(space) as admin:
        answer = await fill(admin, "/tokens", "/tokens", holder="nobody")
        assert answer.status == 404
        assert "nobody" in answer.text
        await space.agent("somebody")
        assert "hpl_a_" in (await send(admin, form(answer, "/tokens"), "/tokens", holder="somebody")).text


async def test_paying_in_twice_with_one_form_pays_in_once(space: Space) -> None:
    async with visitor(space) as admin:
        fields = {**form(await admin.get("/credits"), "/credits"), "amount": "12.5", "note": "spring"}
        for _ in range(2):
            assert "12.5" in await done(admin, await send(admin, fields, "/credits"))
        page = await admin.get("/credits")
        assert page.text.count("spring") == 1
