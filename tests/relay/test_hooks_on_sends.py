"""Hooks on what agents send each other: pass, rewrite, veto, nothing left; its cost, and who sees what."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from hopline.hooks.v1.hook_pb2 import InterAgentMessageRequest, InterAgentMessageResponse
from hopline.relay.v1 import message_pb2 as pb

from tests.support.hook_rig import HookRig, passes, rewrite, veto
from tests.support.relay_mesh import RelayMesh, refusal

VETOED = pb.DELIVERY_STATE_VETOED


@pytest.fixture
def rig(mesh: RelayMesh) -> HookRig:
    return HookRig(mesh)


async def test_a_message_goes_through_each_hook_in_order_with_what_the_one_before_left(
    mesh: RelayMesh, rig: HookRig
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    rig.add("zoe", lambda asked: rewrite(asked.text + " last"), order=5)
    rig.add("yan", lambda asked: rewrite(asked.text + " second"), order=-1)
    rig.add("abe", lambda asked: rewrite(asked.text + " first"), order=-1)
    sent = await ada.send(bob, text="one")
    (message,) = (await bob.take()).messages
    assert message.body == "one first second last"
    assert message.id == sent.message_id
    assert [who for who, _ in rig.asked] == ["abe", "yan", "zoe"]
    events = await mesh.events("hook.rewrote")
    assert [event.actor_name for event in events] == ["Abe", "Yan", "Zoe"]
    assert "one" not in "".join(str(event) for event in events)


async def test_a_hook_is_told_who_says_what_to_whom(mesh: RelayMesh, rig: HookRig) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    plugin = rig.add("abe", passes)
    await ada.send(bob, text="one", subject="greeting", payload_json='{"n": 1}')
    ((_, asked),) = rig.asked
    sender = getattr(asked, "from")
    assert (sender.id, sender.slug, sender.name) == (ada.id, "ada", "ada")
    assert (asked.to.id, asked.to.name, asked.kind) == (bob.id, "bob", "message")
    assert (asked.text, asked.subject, asked.payload_json) == ("one", "greeting", '{"n": 1}')
    context = asked.context
    assert (context.workspace_id, context.plugin_id) == (mesh.workspace_id, plugin.id)
    assert context.event_id
    assert (context.generation, asked.is_subagent_report, asked.reply_expected) == (0, False, False)


async def test_what_a_hook_takes_out_of_subject_and_payload_is_nowhere(mesh: RelayMesh, rig: HookRig) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    rig.add("abe", lambda asked: rewrite("clean", subject="fine", payload_json='{"ok": true}'))
    sent = await ada.send(bob, text="hunter2 text", subject="hunter2 subject", payload_json='{"hunter2": 1}')
    (message,) = await mesh.thread(sent.thread_id)
    assert (message.subject, message.body, message.payload_json) == ("fine", "clean", '{"ok": true}')
    for file in mesh.folder.glob("relay.db*"):
        assert b"hunter2" not in file.read_bytes()


async def test_a_veto_drops_the_delivery_as_data_and_costs_nothing(mesh: RelayMesh, rig: HookRig) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    rig.add("abe", lambda asked: veto("no gossip"))
    sent = await ada.send(bob, text="have you heard")
    assert (sent.message_id, sent.thread_id) == ("", "")
    (delivery,) = sent.deliveries
    assert (delivery.state, delivery.agent.id, delivery.session_id) == (VETOED, bob.id, "")
    assert (delivery.is_canceled, delivery.cancel_reason) == (True, "no gossip")
    assert not (await bob.take()).messages
    assert (await mesh.usage(ada)).sent_today == 0
    assert (await mesh.usage(bob)).received_today == 0
    (event,) = await mesh.events("hook.vetoed")
    assert (event.actor_kind, event.actor_name, event.agent_id) == ("plugin", "Abe", bob.id)
    assert not await mesh.events("message.sent")
    for file in mesh.folder.glob("relay.db*"):
        assert b"have you heard" not in file.read_bytes()


@pytest.mark.parametrize("nothing", ["", " \n"])
async def test_a_text_rewritten_to_nothing_drops_the_item_without_a_word(
    mesh: RelayMesh, rig: HookRig, nothing: str
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    rig.add("abe", lambda asked: rewrite(nothing))
    rig.add("zoe", passes)
    sent = await ada.send(bob)
    (delivery,) = sent.deliveries
    assert (sent.message_id, delivery.is_canceled, delivery.cancel_reason) == ("", False, "")
    assert not (await bob.take()).messages
    assert [who for who, _ in rig.asked] == ["abe"]
    assert len(await mesh.events("hook.dropped")) == 1


async def test_in_a_fan_out_a_veto_drops_that_recipient_alone(mesh: RelayMesh, rig: HookRig) -> None:
    ada = await mesh.agent("ada")
    bob, cat, dan = [await mesh.agent(name) for name in ("bob", "cat", "dan")]

    def decide(asked: InterAgentMessageRequest) -> InterAgentMessageResponse:
        if asked.to.name == "cat":
            return veto("not to cat")
        return rewrite("for dan") if asked.to.name == "dan" else passes()

    rig.add("abe", decide)
    sent = await ada.send(bob, cat, dan, text="for all")
    assert [(each.state == VETOED, each.cancel_reason) for each in sent.deliveries] == [
        (False, ""),
        (True, "not to cat"),
        (False, ""),
    ]
    (to_bob,), (to_dan,) = (await bob.take()).messages, (await dan.take()).messages
    assert (to_bob.body, to_dan.body, to_bob.id) == ("for all", "for dan", to_dan.id)
    assert not (await cat.take()).messages
    assert (await refusal(mesh.thread(sent.thread_id, cat))).reason == "not_found"
    assert [message.body for message in await mesh.thread(sent.thread_id, dan)] == ["for dan"]
    assert [message.body for message in await mesh.thread(sent.thread_id, ada)] == ["for all"]
    # Whom it did not reach is its sender's business.
    assert (len(to_bob.to), len(to_bob.deliveries)) == (2, 2)
    (mine,) = await mesh.thread(sent.thread_id, ada)
    assert [each.cancel_reason for each in mine.deliveries] == ["", "not to cat", ""]
    usage = [(await mesh.usage(each)).received_today for each in (bob, cat, dan)]
    assert usage == [1, 0, 1]
    assert (await mesh.usage(ada)).sent_today == 1


async def test_a_participant_from_whom_a_message_was_kept_reads_its_thread_without_it(
    mesh: RelayMesh, rig: HookRig
) -> None:
    ada, bob, cat = await mesh.agent("ada"), await mesh.agent("bob"), await mesh.agent("cat")
    first = await ada.send(bob, cat, text="hello both")
    rig.add("abe", lambda asked: veto("hush") if asked.to.id == cat.id else passes())
    await ada.send(bob, cat, text="about cat", thread_id=first.thread_id)
    assert [message.body for message in await mesh.thread(first.thread_id, bob)] == [
        "hello both",
        "about cat",
    ]
    assert "about cat" not in str(await mesh.thread(first.thread_id, cat))


async def test_a_repeated_request_goes_through_no_hook_again(mesh: RelayMesh, rig: HookRig) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    rig.add("abe", lambda asked: veto("no") if asked.text == "bad" else rewrite("better"))
    good, bad = str(uuid.uuid4()), str(uuid.uuid4())
    first = await ada.send(bob, text="good", request_id=good)
    kept = await ada.send(bob, text="bad", request_id=bad)
    assert len(rig.asked) == 2
    await mesh.close_relay()
    await mesh.open_relay()
    again = HookRig(mesh, plugins=rig.plugins, decide=rig.decide)
    mesh.relay.hooks.look([mesh.workspace_id])
    assert await ada.send(bob, text="good", request_id=good) == first
    assert await ada.send(bob, text="bad", request_id=bad) == kept
    assert not again.asked
    assert (await refusal(ada.send(bob, text="worse", request_id=bad))).reason == "request_id_conflict"


async def test_the_same_request_many_times_at_once_is_asked_about_once(mesh: RelayMesh, rig: HookRig) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    rig.add("abe", lambda asked: veto())
    request_id = str(uuid.uuid4())
    answers = await asyncio.gather(*(ada.send(bob, request_id=request_id) for _ in range(10)))
    assert len(rig.asked) == 1
    assert all(each == answers[0] for each in answers)


async def test_what_one_agent_says_keeps_its_order_however_long_its_hooks_take(
    mesh: RelayMesh, rig: HookRig
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")

    async def slower_at_first(asked: InterAgentMessageRequest) -> InterAgentMessageResponse:
        for _ in range(50 - 10 * int(asked.text)):
            await asyncio.sleep(0)
        return passes()

    rig.add("abe", slower_at_first)
    await asyncio.gather(*(ada.send(bob, text=str(number)) for number in range(5)))
    assert [message.body for message in (await bob.take()).messages] == ["0", "1", "2", "3", "4"]


async def test_what_people_say_and_what_is_refused_goes_through_no_hook(
    mesh: RelayMesh, rig: HookRig
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    rig.add("abe", lambda asked: veto())
    assert (await mesh.admin.send(bob)).message_id
    assert (await refusal(ada.send("nobody"))).reason == "not_found"
    assert not rig.asked


async def test_without_a_hook_nothing_is_looked_at(mesh: RelayMesh, rig: HookRig) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    assert not mesh.relay.hooks.active
    rig.add("abe", passes, "system_prompt")
    assert mesh.relay.hooks.active
    assert (await ada.send(bob)).message_id
    rig.plugins.clear()
    mesh.relay.hooks.look([mesh.workspace_id])
    assert not mesh.relay.hooks.active
    assert not rig.asked


async def test_a_vetoed_ask_is_canceled_with_the_reason_and_waits_for_nothing(
    mesh: RelayMesh, rig: HookRig
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    rig.add("abe", lambda asked: veto("ask nicely"))
    view = await ada.ask(bob, wait=50, request_id=(request_id := str(uuid.uuid4())))
    assert (view.status, view.error.code, view.error.message) == (
        pb.TURN_STATUS_CANCELED,
        "canceled",
        "ask nicely",
    )
    assert (view.turn_id, view.session_id, view.agent.id) == ("", "", bob.id)
    assert await ada.ask(bob, wait=50, request_id=request_id) == view
    assert len(rig.asked) == 1
    assert not mesh.relay.waits._waiters
