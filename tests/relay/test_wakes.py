"""Agents that sleep are woken by a webhook when they have work, once for all of it, until a worker comes."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import pytest
from hopline.registry.v1 import agent_pb2
from hopline.registry.v1.agent_pb2 import Wake
from hopline.relay.v1 import session_pb2
from hopline_relay.dispatch import Attachment
from hopline_relay.domain.notices import MAX_ATTEMPTS, STARTING_SECONDS
from hopline_rpc.principals import Principal

from tests.support.posts import Taken, set_webhook, waiting
from tests.support.relay_mesh import Caller, RelayMesh, refusal, until

SECRET = "what wakes is signed"
URL = "http://127.0.0.1:9/wake?key=hidden"
WEBHOOK = Wake(kind=agent_pb2.WAKE_KIND_WEBHOOK, webhook_url=URL, webhook_secret=SECRET)


class Line:
    """A worker's stream that takes what it is sent."""

    def ready(self) -> bool:
        return True

    def send(self, item: Any) -> None:
        """Nobody reads it."""

    def end(self, attachment: Attachment, code: str, message: str) -> None:
        """Nobody is told."""


def attach(mesh: RelayMesh, agent: Caller) -> Attachment:
    """Open a tunnel of the agent."""
    principal = Principal("agent", agent.id, mesh.workspace_id, "it", "tok_1")
    found = Attachment(1, principal, 1, 1, "user", Line())
    mesh.relay.dispatcher.add(found)
    return found


@pytest.fixture
async def taken(mesh: RelayMesh) -> Taken:
    return Taken(mesh)


@pytest.fixture
async def sleeper(mesh: RelayMesh, taken: Taken) -> Caller:
    return await mesh.agent("sleeper", wake=WEBHOOK)


@pytest.fixture
async def ada(mesh: RelayMesh) -> Caller:
    return await mesh.agent("ada")


async def presence(mesh: RelayMesh, agent: Caller) -> str:
    request = session_pb2.GetPresenceRequest(agents=[agent.id])
    return str((await mesh.admin.sessions.GetPresence(request)).presence[agent.id])


async def calls(mesh: RelayMesh, taken: Taken, count: int) -> None:
    """Let time pass until so many calls were made."""
    for _ in range(2000):
        if len(taken.of("agent.wake")) >= count:
            return
        await mesh.clock.advance(1)
    raise AssertionError(f"{len(taken.of('agent.wake'))} calls")


async def given_up(mesh: RelayMesh) -> Any:
    for _ in range(2000):
        if found := await mesh.events("wake.failed"):
            return found[0]
        await mesh.clock.advance(5)
    raise AssertionError("it is not given up")


async def test_a_message_to_a_sleeping_agent_calls_what_wakes_it_under_a_signature(
    mesh: RelayMesh, taken: Taken, sleeper: Caller, ada: Caller
) -> None:
    assert await presence(mesh, sleeper) == "sleeping"
    await ada.send(sleeper, text="a secret word")
    await until(lambda: taken.posts, "the call")
    [(url, body, headers)] = taken.posts
    assert url == URL
    at, digest = headers["Hopline-Signature"].removeprefix("t=").split(",v1=")
    assert digest == hmac.new(SECRET.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    [told] = taken.told
    assert told["event"] == "agent.wake"
    assert told["agent"] == {"id": sleeper.id, "slug": "sleeper", "name": "sleeper"}
    assert told["workspace"] == {"id": mesh.workspace_id, "name": "default"}
    assert told["waiting"] == 1
    assert told["delivery_id"] == headers["Hopline-Delivery"]
    assert b"secret word" not in body
    while not (called := await mesh.events("wake.called")):
        await mesh.clock.settle()
    assert [event.agent_id for event in called] == [sleeper.id]


async def test_however_much_waits_it_is_called_once(
    mesh: RelayMesh, taken: Taken, sleeper: Caller, ada: Caller
) -> None:
    await ada.send(sleeper)
    await until(lambda: taken.posts, "the call")
    for number in range(4):
        await ada.send(sleeper, text=f"{number}")
        await mesh.clock.advance(1)
    assert len(taken.posts) == 1
    await calls(mesh, taken, 2)
    assert [each["waiting"] for each in taken.told] == [1, 5]


async def test_one_that_was_reached_gets_time_to_start_a_worker_and_is_called_again_if_none_comes(
    mesh: RelayMesh, taken: Taken, sleeper: Caller, ada: Caller
) -> None:
    await ada.send(sleeper)
    await until(lambda: taken.posts, "the call")
    await mesh.clock.advance(STARTING_SECONDS - 2)
    assert len(taken.posts) == 1
    await calls(mesh, taken, 2)


async def test_once_a_worker_is_there_nobody_is_called_any_more(
    mesh: RelayMesh, taken: Taken, sleeper: Caller, ada: Caller
) -> None:
    await ada.send(sleeper)
    await until(lambda: taken.posts, "the call")
    attach(mesh, sleeper)
    while await waiting(mesh, "wake"):
        await mesh.clock.advance(0.1)
    await ada.send(sleeper)
    await mesh.clock.advance(120)
    assert len(taken.posts) == 1
    assert await presence(mesh, sleeper) != "sleeping"


async def test_a_worker_that_leaves_work_behind_is_called_again(
    mesh: RelayMesh, taken: Taken, sleeper: Caller, ada: Caller
) -> None:
    tunnel = attach(mesh, sleeper)
    tunnel.promised = tunnel.max_turns  # it takes nothing more
    await ada.send(sleeper)
    await mesh.clock.advance(5)
    assert taken.posts == []
    mesh.relay.dispatcher.remove(tunnel)
    await calls(mesh, taken, 1)


async def test_nobody_is_called_for_work_that_is_gone(
    mesh: RelayMesh, taken: Taken, sleeper: Caller, ada: Caller
) -> None:
    taken.problem = "it answered 503"
    await ada.send(sleeper)
    await until(lambda: taken.posts, "the first call")
    for message in (await sleeper.take()).messages:
        await sleeper.done(message.id)
    while await waiting(mesh, "wake"):
        await mesh.clock.advance(1)
    await mesh.clock.advance(60)
    assert len(taken.posts) == 1


async def test_what_is_not_reached_is_called_more_slowly_and_given_up_and_its_owner_hears_of_it(
    mesh: RelayMesh, taken: Taken, sleeper: Caller, ada: Caller
) -> None:
    taken.problem = "it answered 500"
    await set_webhook(mesh)
    await ada.send(sleeper)
    event = await given_up(mesh)
    assert len(taken.of("agent.wake")) == MAX_ATTEMPTS
    assert event.agent_id == sleeper.id
    assert (event.details["attempts"], event.details["reason"]) == (MAX_ATTEMPTS, "it answered 500")
    assert len({each["delivery_id"] for each in taken.of("agent.wake")}) == 1
    taken.problem = ""
    await until(lambda: taken.of("wake.failed"), "the notice")
    for _ in range(5):
        await mesh.clock.advance(60)
    [told] = [
        each
        for each, (_, _, _) in zip(taken.told, taken.posts, strict=True)
        if each["event"] == "wake.failed"
    ][-1:]
    assert told["agent"]["id"] == sleeper.id
    assert (told["waiting"], told["reason"]) == (1, "it answered 500")
    assert len(taken.of("agent.wake")) == MAX_ATTEMPTS
    assert "hidden" not in str(await mesh.events())


async def test_one_that_was_reached_and_never_came_is_given_up_by_that_name(
    mesh: RelayMesh, taken: Taken, sleeper: Caller, ada: Caller
) -> None:
    await ada.send(sleeper)
    assert "no worker came" in (await given_up(mesh)).details["reason"]


async def test_what_comes_after_it_was_given_up_is_tried_anew(
    mesh: RelayMesh, taken: Taken, sleeper: Caller, ada: Caller
) -> None:
    taken.problem = "it could not be reached"
    await ada.send(sleeper)
    await given_up(mesh)
    taken.problem = ""
    await mesh.clock.advance(5)
    before = len(taken.posts)
    await ada.send(sleeper)
    await until(lambda: len(taken.posts) > before, "another call")
    assert taken.told[-1]["waiting"] == 2


async def test_a_new_rule_is_tried_at_once_and_without_one_nobody_is_called(
    mesh: RelayMesh, taken: Taken, sleeper: Caller, ada: Caller
) -> None:
    taken.problem = "it answered 404"
    await ada.send(sleeper)
    await given_up(mesh)
    taken.problem = ""
    elsewhere = Wake(kind=agent_pb2.WAKE_KIND_WEBHOOK, webhook_url="http://127.0.0.1:9/elsewhere")
    await update(mesh, sleeper, elsewhere)
    await calls(mesh, taken, MAX_ATTEMPTS + 1)
    assert taken.posts[-1][0].endswith("/elsewhere")
    await update(mesh, sleeper, Wake(kind=agent_pb2.WAKE_KIND_NONE))
    before = len(taken.posts)
    await mesh.clock.advance(300)
    assert len(taken.posts) == before


async def update(mesh: RelayMesh, agent: Caller, wake: Wake) -> None:
    request = agent_pb2.UpdateAgentRequest(agent_ref=agent.id, agent=agent_pb2.Agent(wake=wake))
    request.update_mask.paths.append("wake")
    await mesh.admin.agents.UpdateAgent(request)


async def test_a_paused_agent_is_not_woken_and_a_resumed_one_is(
    mesh: RelayMesh, taken: Taken, sleeper: Caller, ada: Caller
) -> None:
    taken.problem = "it could not be reached"
    await ada.send(sleeper)
    await until(lambda: taken.posts, "the first call")
    await mesh.pause(sleeper)
    await mesh.clock.advance(120)
    assert len(taken.posts) == 1
    await mesh.resume(sleeper)
    await calls(mesh, taken, 2)


async def test_a_wake_outlives_a_restart_and_work_that_came_before_one_is_found(
    mesh: RelayMesh, taken: Taken, sleeper: Caller, ada: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def later(_outbox: Any) -> None:
        """Leave the real network alone until this test stands in for it."""

    monkeypatch.setattr(type(mesh.relay.outbox), "send", later)
    await ada.send(sleeper)
    await mesh.reopen()
    taken.attach(mesh)
    monkeypatch.undo()
    mesh.relay.outbox.wake()
    await calls(mesh, taken, 1)
    assert len(taken.posts) == 1


async def test_work_that_no_hint_told_of_is_found_within_a_second(
    mesh: RelayMesh, taken: Taken, sleeper: Caller, ada: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mesh.relay.wakes, "_hint", lambda agents: None)
    mesh.relay.signals._claimable.clear()
    await ada.send(sleeper)
    await mesh.clock.advance(1)
    await until(lambda: taken.posts, "the call")


async def test_only_who_may_set_addresses_sets_what_wakes_and_nobody_gets_the_secret(
    mesh: RelayMesh, taken: Taken, sleeper: Caller
) -> None:
    found = await mesh.admin.agents.GetAgent(agent_pb2.GetAgentRequest(agent=sleeper.id))
    assert found.agent.wake.has_webhook_secret
    assert SECRET not in f"{found}{await mesh.events()}{found.agent.wake!r}"
    request = agent_pb2.GetWakeWebhookRequest(workspace_id=mesh.workspace_id, agent_id=sleeper.id)
    for caller in (mesh.admin, sleeper):
        assert (await refusal(caller.agents.GetWakeWebhook(request))).reason == "permission_denied"
