"""Whatever stands in the record, a page shows it as text; whatever is sent, it is answered in words."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from urllib.parse import parse_qsl, quote, urlsplit

import pytest
from hopline.registry.v1 import identity_pb2

from tests.console.hostile import INVISIBLE, TEXT, poison
from tests.console.walk import Crawl, Markup, crawl, kind_of
from tests.support.forms import forms
from tests.support.mesh_process import Space
from tests.support.pages import Answer, Visitor, visitor

# Pages to which no link leads in the poisoned workspace, and why.
UNLINKED = {
    "/live": "the script's own",
    "/": "leads to the floor",
    "/dead/{turn}": "nothing has died there: that takes a queue's whole time",
}
RUNS = {"iframe", "object", "embed", "applet", "base", "style", "frame", "portal", "math", "template"}
TOKEN = re.compile(r"hpl_[aups]_[A-Za-z0-9_-]{43}")


@pytest.fixture
async def admin(space: Space) -> AsyncIterator[Visitor]:
    await poison(space)
    # Not the installation's own token, which could end the services' too.
    async with visitor(space, await space.person("root", identity_pb2.ROLE_ADMIN)) as found:
        yield found


@pytest.fixture
async def crawled(admin: Visitor) -> Crawl:
    return await crawl(admin)


def html(found: Crawl) -> dict[str, Answer]:
    return {
        address: answer
        for address, answer in found.pages.items()
        if "html" in answer.headers.get("Content-Type", "") and answer.html
    }


async def test_every_page_is_reached_by_links_and_answers(crawled: Crawl) -> None:
    assert crawled.unseen() - UNLINKED.keys() == set()
    answers = {address: each.status for address, each in crawled.pages.items()}
    assert {address: status for address, status in answers.items() if status not in (200, 303)} == {}


async def test_nothing_that_others_wrote_is_an_element_an_attribute_or_a_link(crawled: Crawl) -> None:
    assert len(html(crawled)) > 10
    for address, answer in html(crawled).items():
        for tag, attributes in Markup(answer.html).elements:
            where = f"{address}: <{tag} {attributes}>"
            assert tag not in RUNS, where
            assert not [name for name in attributes if name.startswith("on") or name == "style"], where
            if tag == "script":
                assert attributes.get("src", "").startswith("/static/"), where
            if tag == "meta":
                assert attributes.get("http-equiv", "") == "", where
            for name in ("href", "src", "action", "formaction", "data", "poster", "srcdoc", "ping"):
                target = attributes.get(name)
                if target is not None:
                    assert target.startswith(("/", "#", "?")), where
                    assert not target.startswith("//"), where


async def test_what_would_hide_or_turn_a_text_is_shown_and_never_sent(crawled: Crawl) -> None:
    shown = ""
    for address, answer in html(crawled).items():
        found = INVISIBLE & set(answer.html)
        assert not found, f"{address}: {found}"
        assert "49" not in re.findall(r"\{\{7\*7\}\}|\$\{7\*7\}|(?<=\")49(?=\")", answer.html), address
        shown += answer.text
    for text in ("{{7*7}}", "javascript:window.ran=1", "<script>window.ran=1</script>", "&lt;b&gt;"):
        assert text in shown, text


async def test_every_form_that_changes_something_carries_its_secret_and_no_other_does(
    admin: Visitor, crawled: Crawl
) -> None:
    for address, answer in html(crawled).items():
        actions = [
            (attributes.get("method", "get").lower(), attributes.get("action", ""))
            for tag, attributes in Markup(answer.html).elements
            if tag == "form"
        ]
        for (method, action), (_, fields) in zip(actions, forms(answer), strict=True):
            if method == "post":
                assert fields.get("csrf") == admin.csrf, (address, action)
            else:
                assert "csrf" not in fields, (address, action)
        assert admin.csrf not in "".join(Markup(answer.html).links), address


async def test_no_token_stands_in_any_page_or_log(space: Space, crawled: Crawl) -> None:
    for address, answer in crawled.pages.items():
        assert not TOKEN.search(answer.html), address
        assert not TOKEN.search(str(dict(answer.headers))), address
    assert not TOKEN.search(space.mesh.up.said)


async def test_who_may_see_little_sees_no_more_by_links(space: Space, admin: Visitor) -> None:
    token = await space.person("nobody in particular")
    async with visitor(space, token) as stranger:
        found = await crawl(stranger)
    assert not [address for address, answer in found.pages.items() if answer.status >= 500]
    words = "".join(answer.html for answer in found.pages.values())
    for text in ("window.ran=1</script> evil", TEXT[:200]):
        assert text not in words


BAD = (
    "%ED%A0%80",
    "%FF%FE",
    "%00",
    "%0D%0AX-Bad:%201",
    "9" * 400,
    "-1",
    "%3Cscript%3E",
    "%E2%80%AE",
    "x" * 6000,
)


async def test_whatever_is_asked_for_is_answered_in_words(admin: Visitor, crawled: Crawl) -> None:
    kinds = {kind_of(address): address for address in crawled.pages if not address.startswith("/live")}
    for address in kinds.values():
        parts = urlsplit(address)
        names = {
            "page",
            "agent",
            "q",
            *(name for name, _ in parse_qsl(parts.query)),
            *_names(crawled, address),
        }
        for bad in BAD:
            query = "&".join(f"{quote(name)}={bad}" for name in sorted(names))
            asked = [f"{parts.path}?{query}"[:30_000]]
            if len(bad) < 500 and parts.path.count("/") > 1:
                asked.append(f"{parts.path.rpartition('/')[0]}/{bad}")
            for each in asked:
                answer = await admin.get(each)
                assert answer.status < 500, (each[:300], answer.text[:300])
                assert "X-Bad" not in answer.headers
                assert "<script>" not in answer.html


def _names(found: Crawl, address: str) -> set[str]:
    """Return what the forms of a page would ask it for."""
    page = html(found).get(address)
    return {name for _, fields in forms(page) for name in fields if name != "csrf"} if page else set()


SENT = ("", "\ufffd\u202e\x01", "<script>window.ran=1</script>", "-1", "9" * 30, "x" * 9000, "\U0001f600")


async def test_whatever_is_sent_is_answered_in_words(admin: Visitor, crawled: Crawl) -> None:
    sendable: dict[str, tuple[str, dict[str, str]]] = {}
    for answer in html(crawled).values():
        for action, fields in forms(answer):
            if "csrf" in fields and action != "/signout":
                sendable.setdefault(re.sub(r"[a-z]{3}_[0-9a-z]{26}", "ID", action), (action, fields))
    assert len(sendable) > 10
    for action, fields in sendable.values():
        for value in SENT:
            wrong = {name: admin.csrf if name == "csrf" else value for name in fields}
            answer = await admin.post(action, wrong)
            assert answer.status < 500, (action, value, answer.text[:300])
            assert "<script>" not in answer.html, action
    bare = {"csrf": admin.csrf}
    for action, _ in sendable.values():
        assert (await admin.post(action, bare)).status < 500, action


async def test_what_a_person_types_and_the_mesh_refuses_comes_back_as_text(
    space: Space, admin: Visitor
) -> None:
    typed = '"><script>window.ran=1</script>\x07'
    fields = {"name": typed, "holder": "admin", "kind": "user", "text": typed}
    for path in ("/users", "/tokens", "/agents/new", "/models", "/schedules"):
        answer = await admin.post(path, fields)
        assert answer.status < 500, path
        assert "<script>window" not in answer.html, path
    made = await space.admin.identities.ListUsers(identity_pb2.ListUsersRequest())
    assert typed not in [user.name for user in made.users]
