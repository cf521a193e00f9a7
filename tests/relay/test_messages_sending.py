"""Sending: what arrives where, once, in order, and what is refused."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from google.protobuf.json_format import MessageToDict
from hopline.relay.v1 import message_pb2 as pb
from hopline_rpc.errors import HoplineError

from tests.support.relay_mesh import Caller, RelayMesh, attempt, refusal

pytestmark = pytest.mark.both_stores


async def test_a_message_arrives_once_with_its_sender_and_its_thread(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    sent = await ada.send("bob", text="good morning", subject="greeting", payload_json='{"n": [1, null]}')
    assert sent.depth == 1
    assert sent.deliveries[0].agent.id == bob.id
    taken = await bob.take()
    assert [message.id for message in taken.messages] == [sent.message_id]
    message = taken.messages[0]
    assert (message.body, message.subject, message.seq) == ("good morning", "greeting", 1)
    assert message.payload_json == '{"n": [1, null]}'
    assert getattr(message, "from").display == "ada (for admin)"
    assert message.deliveries[0].state == pb.DELIVERY_STATE_TAKEN
    assert taken.remaining == 0
    assert not (await bob.take()).messages


async def test_a_fan_out_is_one_thread_and_reaches_everyone(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    others = [await mesh.agent(f"peer{number}") for number in range(3)]
    sent = await ada.send(*others)
    assert [delivery.agent.id for delivery in sent.deliveries] == [other.id for other in others]
    for other in others:
        assert [message.thread_id for message in (await other.take()).messages] == [sent.thread_id]
    assert len(await mesh.thread(sent.thread_id)) == 1


async def test_a_fan_out_with_one_bad_name_sends_nothing(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    error = await refusal(ada.send(bob, "nobody"))
    assert (error.reason, error.details["agent"]) == ("not_found", "nobody")
    assert not (await bob.take()).messages
    assert (await refusal(ada.send(bob, "bob"))).reason == "invalid_argument"


async def test_messages_between_two_agents_keep_their_order(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    for number in range(8):
        await ada.send(bob, text=f"number {number}")
    assert [m.body for m in (await bob.take()).messages] == [f"number {number}" for number in range(8)]


# --- request ids ---------------------------------------------------------------------------------


async def test_the_same_request_twice_is_sent_once(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    request_id = str(uuid.uuid4())
    first = await ada.send(bob, request_id=request_id)
    # Looked up before visibility and rails: the answer stays what it was.
    await mesh.pause(bob)
    await mesh.policy(sent_per_day=1)
    assert await ada.send(bob, request_id=request_id) == first
    await mesh.resume(bob)
    assert len((await bob.take()).messages) == 1
    assert (await mesh.usage(ada)).sent_today == 1


async def test_the_same_request_with_another_body_is_a_conflict(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    request_id = str(uuid.uuid4())
    await ada.send(bob, text="one", request_id=request_id)
    assert (await refusal(ada.send(bob, text="two", request_id=request_id))).reason == "request_id_conflict"
    # Other callers may use the same id.
    await bob.send(ada, text="three", request_id=request_id)


async def test_the_same_request_many_times_at_once_is_sent_once(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    request_id = str(uuid.uuid4())
    answers = await asyncio.gather(*(ada.send(bob, request_id=request_id) for _ in range(20)))
    assert len({answer.message_id for answer in answers}) == 1
    assert len((await bob.take()).messages) == 1
    others = [ada.send(bob, text=f"x{n}", request_id=str(uuid.UUID(int=n))) for n in range(5)]
    conflicting = ada.send(bob, text="y", request_id=str(uuid.UUID(int=1)))
    results = await asyncio.gather(*others, conflicting, return_exceptions=True)
    assert sum(isinstance(result, BaseException) for result in results) == 1


async def test_a_refused_request_is_not_remembered(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    request_id = str(uuid.uuid4())
    assert (await refusal(ada.send("bob", request_id=request_id))).reason == "not_found"
    await mesh.agent("bob")
    assert (await ada.send("bob", request_id=request_id)).message_id


async def test_a_request_id_is_forgotten_after_a_day(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    request_id = str(uuid.uuid4())
    first = await ada.send(bob, request_id=request_id)
    await mesh.skip(86_400 - 60)
    await mesh.relay.sweep.forget()
    assert (await ada.send(bob, request_id=request_id)).message_id == first.message_id
    await mesh.skip(1_000)
    await mesh.relay.sweep.forget()
    assert (await ada.send(bob, request_id=request_id)).message_id != first.message_id


async def test_an_ask_that_is_repeated_waits_for_the_first(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    request_id = str(uuid.uuid4())
    first = await ada.ask(bob, request_id=request_id)
    worker = await mesh.worker(bob)
    await worker.end(await worker.next(), "once")
    again = await ada.ask(bob, request_id=request_id, wait=50)
    assert (again.turn_id, again.reply) == (first.turn_id, "once")


# --- rails ---------------------------------------------------------------------------------------


async def test_of_a_hundred_sends_at_once_a_quota_of_ten_lets_exactly_ten_through(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await mesh.policy(sent_per_day=10, pair_budget="0")
    results = await asyncio.gather(*(ada.send(bob) for _ in range(100)), return_exceptions=True)
    refused = [result for result in results if isinstance(result, BaseException)]
    assert len(refused) == 90
    assert {getattr(error, "reason", error) for error in refused} == {"quota_exceeded"}
    assert len((await bob.take(limit=200)).messages) == 10
    await mesh.relay.refusals.drained()
    row = (await mesh.events("message.refused"))[0]
    assert (row.details["code"], row.details["count"]) == ("quota_exceeded", 90)


async def test_the_day_ends_a_quota_and_a_new_start_does_not(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await mesh.policy(sent_per_day=3)
    for _ in range(3):
        await ada.send(bob)
    await mesh.reopen()
    error = await refusal(ada.send(bob))
    assert error.reason == "quota_exceeded"
    assert error.retry_after is not None
    await mesh.skip(error.retry_after + 1)
    await ada.send(bob)


@pytest.mark.parametrize(("cap", "sends"), [(1, 1), (3, 3)])
async def test_a_thread_takes_as_many_messages_as_the_policy_says(
    mesh: RelayMesh, cap: int, sends: int
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await mesh.policy(messages_per_thread=cap)
    sent = await ada.send(bob)
    for _ in range(sends - 1):
        await ada.send(bob, thread_id=sent.thread_id)
    error = await refusal(ada.send(bob, thread_id=sent.thread_id))
    assert error.reason == "thread_full"
    assert [message.seq for message in await mesh.thread(sent.thread_id)] == list(range(1, cap + 1))
    # What was refused cost nothing.
    assert (await mesh.usage(ada)).sent_today == sends


async def test_a_fan_out_keeps_a_place_for_each_answer(mesh: RelayMesh) -> None:
    ada, bob, cid = await mesh.agent("ada"), await mesh.agent("bob"), await mesh.agent("cid")
    await mesh.policy(messages_per_thread=3)
    sent = await ada.send(bob, cid)
    assert (await refusal(ada.send(bob, thread_id=sent.thread_id))).reason == "thread_full"
    await bob.take()
    await bob.reply(sent.message_id)
    assert (await refusal(bob.reply(sent.message_id))).reason == "thread_full"
    await cid.take()
    await cid.reply(sent.message_id)
    assert [message.seq for message in await mesh.thread(sent.thread_id)] == [1, 2, 3]
    await mesh.policy(messages_per_thread=2)
    wide = await refusal(ada.send(bob, cid))
    assert (wide.reason, wide.details["limit"], wide.details["used"]) == ("thread_full", 2, 0)
    assert "needs 3; send it to fewer at once" in wide.message
    assert (await ada.send(bob)).thread_id


async def test_an_answer_that_is_owed_passes_a_full_thread(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await mesh.policy(messages_per_thread=1)
    view = await ada.ask(bob)
    worker = await mesh.worker(bob)
    await worker.end(await worker.next(), "here it is")
    assert (await ada.check(view.turn_id)).reply == "here it is"


async def test_a_full_inbox_refuses_and_names_the_recipient(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await mesh.policy(inbox_backlog=2)
    await ada.send(bob)
    await ada.send(bob)
    error = await refusal(ada.send(bob))
    assert (error.reason, error.details["agent"]) == ("inbox_full", "bob")
    assert "bob" in error.message
    await bob.take(limit=1)
    await ada.send(bob)


async def test_too_many_refusals_are_overloaded_until_the_window_has_passed(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    await mesh.policy(refusals="3/60s")
    for _ in range(3):
        assert (await refusal(ada.send("nobody"))).reason == "not_found"
    error = await refusal(ada.send("nobody"))
    assert error.reason == "overloaded"
    assert error.retry_after == pytest.approx(60.0)
    await mesh.skip(60)
    assert (await refusal(ada.send("nobody"))).reason == "not_found"


# --- who may -------------------------------------------------------------------------------------


async def _hidden(mesh: RelayMesh) -> dict[str, str]:
    """Return names of agents that ada may not reach, by the true reason."""
    paused, deleted = await mesh.agent("paused"), await mesh.agent("deleted")
    await mesh.pause(paused)
    await mesh.delete(deleted)
    await mesh.agent("beyond")
    foreign = await mesh.foreign_agent("elsewhere")
    await mesh.agent("inner", is_group_only_callable=True)
    await mesh.grant("yan", 2, "inner")
    return {
        "paused": "paused",
        "deleted": "deleted",
        "group_only": "inner",
        "unknown": foreign.id,
        "no_role": "beyond",
    }


async def test_whatever_may_not_be_reached_answers_like_what_never_existed(mesh: RelayMesh) -> None:
    yan = await mesh.person("yan")
    ada = await mesh.agent("ada", owner_id=yan.id)
    model = await refusal(ada.send("never-existed"))
    hidden = await _hidden(mesh)
    for name in hidden.values():
        for call in (ada.send(name), ada.ask(name)):
            error = await refusal(call)
            assert error.reason == model.reason
            assert error.message == model.message.replace("never-existed", name)
            assert error.details.keys() == model.details.keys()
    await mesh.relay.refusals.drained()
    details = [MessageToDict(event.details) for event in await mesh.events("message.refused")]
    reasons = {each["to"][0]: each["reason"] for each in details}
    for reason, name in hidden.items():
        assert reasons[name] == reason


async def test_nothing_of_a_foreign_workspace_is_written_in_ones_own(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    foreign = await mesh.foreign_agent("secret-name")
    await refusal(ada.send(foreign.id))
    await mesh.relay.refusals.drained()
    event = (await mesh.events("message.refused"))[0]
    assert "secret-name" not in str(event)
    assert not event.agent_id


async def test_a_name_that_two_agents_share_is_ambiguous_and_lists_both(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    twins = [await mesh.agent("twin", slug=f"twin-{number}") for number in (1, 2)]
    error = await refusal(ada.send("twin"))
    assert error.reason == "ambiguous"
    assert sorted(error.details["ids"]) == sorted(twin.id for twin in twins)
    assert (await ada.send("twin-2")).deliveries[0].agent.id == twins[1].id


@pytest.mark.parametrize("how", ["id", "name"])
async def test_an_agent_that_addresses_itself_is_told_so(mesh: RelayMesh, how: str) -> None:
    ada = await mesh.agent("ada")
    error = await refusal(ada.send(ada.id if how == "id" else "ada"))
    assert error.reason == "invalid_argument"
    assert "itself" in error.message


async def test_a_receive_only_agent_starts_nothing_and_replies(mesh: RelayMesh) -> None:
    ada = await mesh.agent("ada")
    ear = await mesh.agent("ear", kind=2)
    assert (await refusal(ear.send(ada))).reason == "receive_only"
    assert (await refusal(ear.ask(ada))).reason == "receive_only"
    sent = await ada.send(ear)
    await ear.take()
    await ear.reply(sent.message_id, "heard")
    assert [m.body for m in (await ada.take()).messages] == ["heard"]
    assert (await refusal(ear.reply(sent.message_id, "heard again"))).reason == "receive_only"


async def test_a_paused_agent_only_reads_and_its_plain_messages_wait(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    sent = await ada.send(bob)
    await mesh.pause(bob)
    for call in (bob.send(ada), bob.ask(ada), bob.take(), bob.reply(sent.message_id), bob.done("x")):
        assert (await refusal(call)).reason == "agent_paused"
    assert [message.id for message in await mesh.thread(sent.thread_id, bob)] == [sent.message_id]
    await mesh.resume(bob)
    assert len((await bob.take()).messages) == 1


async def test_a_thread_is_for_its_participants(mesh: RelayMesh) -> None:
    ada, bob, eve = await mesh.agent("ada"), await mesh.agent("bob"), await mesh.agent("eve")
    sent = await ada.send(bob)
    assert (await refusal(eve.send(bob, thread_id=sent.thread_id))).reason == "not_found"
    assert (await refusal(ada.send(bob, thread_id="thr_nothing"))).reason == "not_found"
    assert (await refusal(mesh.thread(sent.thread_id, eve))).reason == "not_found"
    error = await refusal(ada.send(eve, thread_id=sent.thread_id))
    assert (error.reason, error.details["agent"]) == ("failed_precondition", eve.id)


async def test_a_session_of_somebody_else_is_not_found(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    sent = await ada.send(bob)
    theirs = sent.deliveries[0].session_id
    assert (await refusal(ada.send(bob, caller_session_id=theirs))).reason == "not_found"
    assert (await refusal(ada.send(bob, caller_session_id="ses_nothing"))).reason == "not_found"


# --- borders -------------------------------------------------------------------------------------


async def _accepts(caller: Caller, *to: Caller, **fields: object) -> bool:
    request = pb.SendRequest(to=[each.id for each in to], **{"text": "x", **fields})  # type: ignore[arg-type]
    answer = await attempt(caller.messages.Send(request))
    assert getattr(answer, "reason", "invalid_argument") == "invalid_argument"
    return not isinstance(answer, HoplineError)


@pytest.mark.parametrize(
    ("field", "value", "ok"),
    [
        ("text", "", False),
        ("text", "x", True),
        ("text", "x" * 65_535, True),
        ("text", "x" * 65_536, True),
        ("text", "x" * 65_537, False),
        ("text", "\U0001f600" * 16_384, True),
        ("text", "\U0001f600" * 16_384 + "x", False),
        ("text", "nul \x00 inside", False),
        ("subject", "\U0001f600" * 200, True),
        ("subject", "x" * 201, False),
        ("payload_json", '"' + "x" * 16_382 + '"', True),
        ("payload_json", '"' + "x" * 16_383 + '"', False),
        ("payload_json", "not json", False),
        ("payload_json", "NaN", False),
        ("payload_json", "[" * 8_000 + "]" * 8_000, False),
        ("payload_json", "null", True),
        ("request_id", "not-a-uuid", False),
        ("request_id", "6F9619FF-8B86-D011-B42D-00C04FC964FF", True),
    ],
)
async def test_each_limit_holds_at_its_border(mesh: RelayMesh, field: str, value: str, ok: bool) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    assert await _accepts(ada, bob, **{field: value}) is ok
    got = (await bob.take()).messages
    assert len(got) == int(ok)
    if ok and field == "text":
        assert got[0].body == value


@pytest.mark.parametrize(("count", "ok"), [(0, False), (1, True), (10, True), (11, False)])
async def test_a_message_goes_to_one_to_ten_agents(mesh: RelayMesh, count: int, ok: bool) -> None:
    ada = await mesh.agent("ada")
    others = [await mesh.agent(f"peer{number}") for number in range(count)]
    assert await _accepts(ada, *others) is ok
