"""Hooks that fail: stuck, gone, answering nonsense; what fails open or closed, and what is left alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hopline.hooks.v1 import hook_pb2 as pb
from hopline.relay.v1.message_pb2 import SendResponse
from hopline_relay.hooks.breaker import FAILURES, FIRST_PAUSE, LONGEST_PAUSE, Breaker
from hopline_relay.plugins.calling import CallFailed

from tests.support.hook_rig import HookRig, never, passes, rewrite
from tests.support.posts import Taken, set_webhook
from tests.support.relay_mesh import Caller, RelayMesh, until


@pytest.fixture
def rig(mesh: RelayMesh) -> HookRig:
    return HookRig(mesh)


def dies(asked: Any) -> Any:
    raise CallFailed("unreachable", "it cannot be reached", sent=True)


def breaks(asked: Any) -> Any:
    raise RuntimeError("boom")


def something_else(asked: Any) -> Any:
    return pb.TodoAddedResponse()


def too_much(asked: Any) -> Any:
    return rewrite("x" * (64 * 1024 + 1))


def far_too_much(asked: Any) -> Any:
    return rewrite("x" * (256 * 1024 + 1))


def no_reason(asked: Any) -> Any:
    return pb.InterAgentMessageResponse(veto=pb.HookVeto())


def long_reason(asked: Any) -> Any:
    return pb.InterAgentMessageResponse(veto=pb.HookVeto(reason="x" * 501))


def with_nul(asked: Any) -> Any:
    return rewrite("a\0b")


def no_json(asked: Any) -> Any:
    return rewrite("fine", payload_json="{")


def long_subject(asked: Any) -> Any:
    return rewrite("fine", subject="x" * 201)


WRONG = [
    dies,
    breaks,
    something_else,
    too_much,
    far_too_much,
    no_reason,
    long_reason,
    with_nul,
    no_json,
    long_subject,
]


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_hook_that_fails_open_is_passed_over_and_noted(
    mesh: RelayMesh, rig: HookRig, wrong: Callable[[Any], Any]
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    rig.add("abe", wrong)
    rig.add("zoe", lambda asked: rewrite(asked.text + "!"))
    assert (await ada.send(bob, text="one")).message_id
    (message,) = (await bob.take()).messages
    assert (message.body, message.subject) == ("one!", "")
    (event,) = await mesh.events("hook.failed")
    assert event.actor_name == "Abe"
    assert "boom" not in str(event)


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_hook_that_fails_closed_keeps_the_message_back(
    mesh: RelayMesh, rig: HookRig, wrong: Callable[[Any], Any]
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    rig.add("abe", wrong, closed=True)
    rig.add("zoe", passes)
    sent = await ada.send(bob)
    (delivery,) = sent.deliveries
    assert (sent.message_id, delivery.is_canceled) == ("", True)
    assert "Abe" in delivery.cancel_reason
    assert not (await bob.take()).messages
    assert [who for who, _ in rig.asked] == ["abe"]
    assert len(await mesh.events("hook.failed")) == 1


async def _sent_while(mesh: RelayMesh, rig: HookRig, ada: Caller, bob: Caller) -> SendResponse:
    """Send a message, and let time pass once its hook is asked."""
    asked = len(rig.asked)
    sending = asyncio.create_task(ada.send(bob))
    await until(lambda: len(rig.asked) > asked)
    await mesh.clock.advance(1.9)
    assert not sending.done()
    await mesh.clock.advance(0.2)
    return await sending


@pytest.mark.parametrize("closed", [False, True])
async def test_a_hook_that_never_answers_is_given_two_seconds(
    mesh: RelayMesh, rig: HookRig, *, closed: bool
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    rig.add("abe", never, closed=closed)
    sent = await _sent_while(mesh, rig, ada, bob)
    assert bool(sent.message_id) != closed
    (event,) = await mesh.events("hook.failed")
    assert "2 s" in str(event.details)


async def test_a_call_that_cannot_even_be_called_off_holds_nobody(mesh: RelayMesh, rig: HookRig) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    free = asyncio.Event()

    async def clings(asked: Any) -> Any:
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                continue
        return passes()

    rig.add("abe", clings)
    assert (await _sent_while(mesh, rig, ada, bob)).message_id
    free.set()


async def test_others_send_while_a_hook_of_ones_message_never_answers(mesh: RelayMesh, rig: HookRig) -> None:
    ada, bob, cat = await mesh.agent("ada"), await mesh.agent("bob"), await mesh.agent("cat")
    rig.add("abe", lambda asked: never(asked) if getattr(asked, "from").id == ada.id else passes())
    sending = asyncio.create_task(ada.send(bob))
    await until(lambda: rig.asked)
    assert (await cat.send(bob)).message_id
    assert (await mesh.admin.send(bob)).message_id
    assert not sending.done()
    await mesh.clock.advance(2.0)
    assert (await sending).message_id


async def test_of_a_fan_out_each_recipients_hook_has_its_own_two_seconds(
    mesh: RelayMesh, rig: HookRig
) -> None:
    ada = await mesh.agent("ada")
    others = [await mesh.agent(f"peer{number}") for number in range(5)]
    rig.add("abe", never, closed=True)
    sending = asyncio.create_task(ada.send(*others))
    await until(lambda: len(rig.asked) == 5)
    await mesh.clock.advance(2.0)
    assert [each.is_canceled for each in (await sending).deliveries] == [True] * 5


async def test_a_hook_that_keeps_failing_is_left_alone_and_comes_back(mesh: RelayMesh, rig: HookRig) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    works = False
    rig.add("abe", lambda asked: passes() if works else dies(asked))
    for _ in range(FAILURES + 3):
        assert (await ada.send(bob)).message_id
    assert len(rig.asked) == FAILURES
    assert len(await mesh.events("hook.failed")) == FAILURES
    await mesh.skip(FIRST_PAUSE)
    await asyncio.gather(*(ada.send(bob) for _ in range(3)))
    assert len(rig.asked) == FAILURES + 1  # one of them finds out
    works = True
    await mesh.skip(FIRST_PAUSE)
    await ada.send(bob)
    assert len(rig.asked) == FAILURES + 1  # it pauses twice as long by now
    await mesh.skip(FIRST_PAUSE)
    for _ in range(3):
        await ada.send(bob)
    assert len(rig.asked) == FAILURES + 4


async def test_that_a_hook_is_left_alone_is_said_in_the_log_and_to_whoever_installed_it(
    mesh: RelayMesh, rig: HookRig
) -> None:
    taken = Taken(mesh)
    await set_webhook(mesh)
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    works = False
    plugin = rig.add("abe", lambda asked: passes() if works else dies(asked))
    for _ in range(FAILURES):
        await ada.send(bob)
    await mesh.clock.advance(0.2)
    await until(lambda: taken.posts, "the post")
    (told,) = taken.of("hook.suspended")
    assert told["plugin"] == {"id": plugin.id, "key": "abe", "name": "Abe"}
    assert (told["hook"], told["reason"]) == ("inter_agent_message", "it cannot be reached")
    works = True
    await mesh.skip(FIRST_PAUSE)
    await ada.send(bob)
    await mesh.relay.journal.write(lambda book: None)
    for action in ("hook.suspended", "hook.resumed", "hook.notified"):
        assert len(await mesh.events(action)) == 1, action


async def test_a_closed_hook_that_is_left_alone_keeps_everything_back(mesh: RelayMesh, rig: HookRig) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    rig.add("abe", dies, closed=True)
    for _ in range(FAILURES + 2):
        assert not (await ada.send(bob)).message_id
    assert len(rig.asked) == FAILURES
    assert len(await mesh.events("hook.failed")) == FAILURES + 2


async def test_another_version_of_a_plugin_is_tried_at_once(mesh: RelayMesh, rig: HookRig) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    plugin = rig.add("abe", dies)
    for _ in range(FAILURES):
        await ada.send(bob)
    mesh.relay.hooks.forget(plugin.id)
    await ada.send(bob)
    assert len(rig.asked) == FAILURES + 1


def test_a_breaker_opens_after_enough_failures_in_a_row_and_pauses_ever_longer() -> None:
    breaker = Breaker()
    for _ in range(FAILURES - 1):
        assert breaker.begin(0.0)
        assert breaker.failed(0.0) == ""
    assert breaker.worked() == ""
    for _ in range(FAILURES - 1):
        assert breaker.failed(0.0) == ""
    assert breaker.failed(0.0) == "suspended"
    now, pause = 0.0, FIRST_PAUSE
    for _ in range(8):
        assert not breaker.begin(now + pause - 0.001)
        now += pause
        assert breaker.begin(now)
        assert not breaker.begin(now)
        assert breaker.failed(now) == ""
        pause = min(2 * pause, LONGEST_PAUSE)
    assert breaker.begin(now + pause)
    assert breaker.worked() == "resumed"
    assert breaker.begin(now)


def test_a_breaker_counts_nothing_of_what_was_under_way_when_it_opened_or_was_called_off() -> None:
    breaker = Breaker()
    for _ in range(FAILURES):
        breaker.failed(0.0)
    assert breaker.failed(5.0) == ""
    assert breaker.begin(FIRST_PAUSE)
    breaker.let_go()
    assert breaker.begin(FIRST_PAUSE)
