"""Owners are told of questions by webhooks: signed, tried again, told once, and only where they may be."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

import pytest
from aiohttp import web
from hopline.registry.v1 import agent_pb2, identity_pb2
from hopline_relay.domain.notices import MAX_ATTEMPTS, may_call, pause
from hopline_relay.posting import HttpPoster
from hypothesis import given
from hypothesis import strategies as st

from tests.support.hooks import served
from tests.support.owners import answer, ask_owner
from tests.support.posts import SECRET, URL, Taken, set_webhook, waiting
from tests.support.relay_mesh import RelayMesh, refusal, until


async def test_an_owner_is_told_of_a_question_under_a_signature(mesh: RelayMesh) -> None:
    taken = Taken(mesh)
    await set_webhook(mesh)
    ada = await mesh.agent("ada")
    pending = await ask_owner(ada, "Deploy?", options=["yes", "no"])
    await until(lambda: taken.posts, "the post")
    [(url, body, headers)] = taken.posts
    assert url == URL
    stamp, digest = headers["Hopline-Signature"].split(",")
    at = stamp.removeprefix("t=")
    assert int(at) == int(mesh.clock.now())
    expected = hmac.new(SECRET.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    assert digest == f"v1={expected}"
    told = json.loads(body)
    assert told["event"] == "escalation.asked"
    assert told["delivery_id"] == headers["Hopline-Delivery"]
    assert (told["escalation"]["id"], told["escalation"]["question"]) == (pending.id, "Deploy?")
    assert told["escalation"]["options"] == ["yes", "no"]
    assert told["escalation"]["agent"]["name"] == "ada"
    assert pending.id in told["answer_with"]
    await mesh.clock.advance(60)
    assert len(taken.posts) == 1
    assert await waiting(mesh) == []
    assert len(await mesh.events("escalation.notified")) == 1


async def test_an_owner_without_a_webhook_is_told_nothing(mesh: RelayMesh) -> None:
    taken = Taken(mesh)
    await ask_owner(await mesh.agent("ada"))
    await mesh.clock.advance(60)
    assert taken.posts == []
    assert await waiting(mesh) == []


async def test_what_is_not_taken_is_tried_again_more_slowly_and_in_the_end_given_up(mesh: RelayMesh) -> None:
    taken = Taken(mesh)
    taken.problem = "it answered 500"
    await set_webhook(mesh)
    await ask_owner(await mesh.agent("ada"))
    tried: list[float] = []
    for _ in range(MAX_ATTEMPTS):
        await until(lambda: len(taken.posts) > len(tried), "an attempt")
        tried.append(mesh.clock.now())
        while await waiting(mesh) == [len(tried) - 1]:
            await mesh.clock.settle()
        for _ in range(200):
            if len(taken.posts) > len(tried) or not await waiting(mesh):
                break
            await mesh.clock.advance(5)
    assert len(taken.posts) == MAX_ATTEMPTS
    assert await waiting(mesh) == []
    [given_up] = await mesh.events("escalation.not_notified")
    assert given_up.details["reason"] == "it answered 500"
    assert "127.0.0.1" not in str(await mesh.events())
    assert {headers["Hopline-Delivery"] for _, _, headers in taken.posts} == {
        taken.posts[0][2]["Hopline-Delivery"]
    }


async def test_a_notice_outlives_a_restart(mesh: RelayMesh, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = Taken(mesh)
    taken.problem = "it could not be reached"
    await set_webhook(mesh)
    await ask_owner(await mesh.agent("ada"))
    await until(lambda: taken.posts, "the first attempt")

    async def later(_outbox: Any) -> None:
        """Leave the real network alone until this test stands in for it."""

    monkeypatch.setattr(type(mesh.relay.outbox), "send", later)
    await mesh.reopen()
    taken.attach(mesh)
    monkeypatch.undo()
    taken.problem = ""
    before = len(taken.posts)
    await mesh.skip(3600)
    mesh.relay.outbox.wake()
    await until(lambda: len(taken.posts) > before, "the attempt after the restart")


async def test_nobody_is_told_of_a_question_that_has_ended(mesh: RelayMesh) -> None:
    taken = Taken(mesh)
    taken.problem = "it answered 503"
    await set_webhook(mesh)
    ada = await mesh.agent("ada")
    pending = await ask_owner(ada)
    await until(lambda: taken.posts, "the first attempt")
    await answer(mesh.admin, pending.id)
    await mesh.skip(60)
    await mesh.relay.outbox.send()
    assert len(taken.posts) == 1
    assert await waiting(mesh) == []


async def test_a_new_owner_is_told_and_the_old_one_no_more(mesh: RelayMesh) -> None:
    taken = Taken(mesh)
    first = await mesh.person("first", 2)
    await mesh.person("second")
    await set_webhook(mesh, "first", "http://first.example/")
    await set_webhook(mesh, "second", "http://second.example/")
    ada = await mesh.agent("ada", first)
    await ask_owner(ada)
    await until(lambda: taken.posts, "the first post")
    request = agent_pb2.UpdateAgentRequest(agent_ref=ada.id, agent=agent_pb2.Agent(owner_id="second"))
    request.update_mask.paths.append("owner_id")
    await mesh.admin.agents.UpdateAgent(request)
    await until(lambda: len(taken.posts) == 2, "the second post")
    assert [url for url, _, _ in taken.posts] == ["http://first.example/", "http://second.example/"]


async def test_address_and_secret_are_shown_to_nobody(mesh: RelayMesh) -> None:
    zoe = await mesh.person("zoe")
    changed = await set_webhook(mesh, "zoe")
    listed = await mesh.admin.people.ListUsers(identity_pb2.ListUsersRequest())
    seen = f"{changed}{listed}{await mesh.events()}{changed.user!r}"
    assert changed.user.has_webhook
    assert "hidden" not in seen
    assert SECRET not in seen
    request = identity_pb2.GetUserWebhookRequest(workspace_id=mesh.workspace_id, user_id=zoe.id)
    assert (await refusal(mesh.admin.people.GetUserWebhook(request))).reason == "permission_denied"
    removed = await set_webhook(mesh, "zoe", "")
    assert not removed.user.has_webhook
    actions = [event.action for event in await mesh.events("user.webhook")]
    assert actions == ["user.webhook_set", "user.webhook_removed"]


async def test_only_admins_set_webhooks_and_only_well_formed_ones(mesh: RelayMesh) -> None:
    zoe = await mesh.person("zoe", 2)
    assert (await refusal(set_webhook(mesh, "zoe", by=zoe))).reason == "permission_denied"
    for url, secret in (("ftp://x", SECRET), ("http://x", ""), ("http://x", "short"), ("", SECRET)):
        request = identity_pb2.SetUserWebhookRequest(user="zoe", url=url, secret=secret)
        assert (await refusal(mesh.admin.people.SetUserWebhook(request))).reason == "invalid_argument"
    assert (await refusal(set_webhook(mesh, "nobody"))).reason == "not_found"


# --- the network ----------------------------------------------------------------------------------


async def test_a_post_arrives_as_it_was_made_and_a_redirect_is_not_followed() -> None:
    seen: list[tuple[str, bytes, str]] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append((request.path, await request.read(), request.headers["X-Mark"]))
        if request.path == "/away":
            raise web.HTTPTemporaryRedirect("/elsewhere")
        return web.Response(status=500 if request.path == "/broken" else 204)

    post = HttpPoster(loopback=True, private=False)
    async with served(handler) as url:
        assert await post(f"{url}/taken", b"body", {"X-Mark": "m"}) == ""
        assert await post(url.replace("127.0.0.1", "localhost"), b"body", {"X-Mark": "m"}) == ""
        assert await post(f"{url}/away", b"body", {"X-Mark": "m"}) == "it answered 307"
        assert await post(f"{url}/broken", b"body", {"X-Mark": "m"}) == "it answered 500"
    assert [path for path, _, _ in seen] == ["/taken", "/", "/away", "/broken"]
    assert {(body, mark) for _, body, mark in seen} == {(b"body", "m")}
    assert await post(url, b"body", {}) == "it could not be reached"


async def test_an_address_that_may_not_be_called_is_not() -> None:
    seen: list[str] = []

    async def handler(request: web.Request) -> web.Response:
        seen.append(request.path)
        return web.Response()

    post = HttpPoster(loopback=False, private=False)
    async with served(handler) as url:
        for address in (
            url,
            url.replace("127.0.0.1", "localhost"),
            url.replace("127.0.0.1", "[::ffff:127.0.0.1]"),
        ):
            assert await post(address, b"body", {}) == "its address may not be called"
    assert seen == []


@pytest.mark.parametrize(
    ("address", "plain", "loopback", "private"),
    [
        ("93.184.216.34", True, True, True),
        ("127.0.0.1", False, True, False),
        ("::1", False, True, False),
        ("::ffff:127.0.0.1", False, True, False),
        ("10.0.0.1", False, False, True),
        ("192.168.1.1", False, False, True),
        ("169.254.169.254", False, False, True),
        ("fd00::1", False, False, True),
        ("0.0.0.0", False, False, False),
        ("224.0.0.1", False, False, False),
        ("no address", False, False, False),
    ],
)
def test_what_may_be_called(address: str, plain: bool, loopback: bool, private: bool) -> None:
    assert may_call(address, loopback=False, private=False) is plain
    assert may_call(address, loopback=True, private=False) is (plain or loopback)
    assert may_call(address, loopback=False, private=True) is private or address in ("93.184.216.34",)


@given(st.integers(1, MAX_ATTEMPTS), st.floats(0, 1))
def test_attempts_come_ever_more_slowly_within_bounds(attempts: int, chance: float) -> None:
    assert 1.0 <= pause(attempts, chance) <= 600.0
    assert pause(attempts, chance) <= 2.0 * 2**attempts
