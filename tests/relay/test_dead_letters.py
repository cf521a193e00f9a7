"""Dead letters: what the mesh gives up stands in a list, can be sent again, and its sender hears of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hopline.relay.v1 import dead_letter_pb2
from hopline.relay.v1 import message_pb2 as pb
from hopline_relay import dead_letters

from tests.support.relay_mesh import Caller, RelayMesh, attempt, refusal

pytestmark = pytest.mark.both_stores

DAY = 86_400


async def _dead(caller: Caller, **more: Any) -> list[dead_letter_pb2.DeadLetter]:
    request = dead_letter_pb2.ListDeadLettersRequest(**more)
    return list((await caller.letters.ListDeadLetters(request)).dead_letters)


async def _retry(caller: Caller, *turn_ids: str) -> list[str]:
    request = dead_letter_pb2.RetryDeadLettersRequest(turn_ids=turn_ids)
    return list((await caller.letters.RetryDeadLetters(request)).turn_ids)


async def _purge(caller: Caller, *turn_ids: str) -> int:
    request = dead_letter_pb2.PurgeDeadLettersRequest(turn_ids=turn_ids)
    return int((await caller.letters.PurgeDeadLetters(request)).purged)


async def _get(caller: Caller, turn_id: str) -> dead_letter_pb2.DeadLetter:
    request = dead_letter_pb2.GetDeadLetterRequest(turn_id=turn_id)
    answer: dead_letter_pb2.DeadLetter = (await caller.letters.GetDeadLetter(request)).dead_letter
    return answer


async def _times_out(mesh: RelayMesh) -> None:
    await mesh.skip(DAY + 10)
    await mesh.passes(1)


async def _states(mesh: RelayMesh, thread_id: str) -> list[list[int]]:
    return [[each.state for each in message.deliveries] for message in await mesh.thread(thread_id)]


async def test_a_message_that_nobody_took_in_time_is_dead_and_its_sender_is_told(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    sent = await ada.send(bob, text="read me")
    await _times_out(mesh)
    (letter,) = await _dead(mesh.admin)
    assert letter.turn_id == sent.deliveries[0].turn_id
    assert (letter.agent.name, letter.message.body, letter.attempts) == ("bob", "read me", 0)
    assert letter.error.code == "deadline_exceeded"
    assert (await _get(mesh.admin, letter.turn_id)).message.id == sent.message_id
    (told,) = (await ada.take()).messages
    assert getattr(told, "from").kind == "mesh"
    assert told.in_reply_to == sent.message_id
    assert "bob" in told.body
    assert "deadline_exceeded" in told.body
    assert (await mesh.thread(sent.thread_id))[0].deliveries[0].state == pb.DELIVERY_STATE_DEAD
    assert not (await bob.take()).messages


async def test_what_loses_its_worker_three_times_is_dead_and_a_retry_gives_it_three_more(
    mesh: RelayMesh,
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(bob)
    view = await ada.ask(bob, "can you?")
    for _ in range(3):
        await mesh.worker_lost((await worker.next()).turn_id)
    (letter,) = await _dead(mesh.admin)
    assert (letter.attempts, letter.error.code) == (3, "unavailable")
    assert len((await ada.take()).messages) == 1
    assert (await ada.check(view.turn_id)).status == pb.TURN_STATUS_FAILED
    before = len(await mesh.thread(view.thread_id))
    (fresh,) = await _retry(mesh.admin, letter.turn_id)
    assert fresh != letter.turn_id
    assert not await _dead(mesh.admin)
    assert len(await mesh.thread(view.thread_id)) == before
    turn = await worker.next()
    assert (turn.turn_id, turn.attempt, turn.depth) == (fresh, 1, 1)
    await worker.end(turn, "I can")
    # Who asked had been told of the failure; the answer comes as a message now.
    answer = (await ada.take()).messages
    assert [(m.body, m.in_reply_to) for m in answer] == [("I can", view.message_id)]
    assert (await ada.check(fresh)).reply == "I can"
    assert (await ada.check(view.turn_id)).status == pb.TURN_STATUS_FAILED


async def test_what_was_taken_three_times_and_not_answered_is_dead(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await ada.ask(bob)
    for _ in range(3):
        assert (await bob.take()).messages
        await mesh.passes(601)
    assert [letter.error.code for letter in await _dead(mesh.admin)] == ["ended_without_answer"]


async def test_the_mail_of_a_deleted_agent_is_dead_and_can_only_be_purged(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    sent = [await ada.send(bob, text=f"{number}") for number in range(3)]
    await mesh.delete(bob)
    letters = await _dead(mesh.admin)
    assert [letter.message.body for letter in letters] == ["2", "1", "0"]
    assert [letter.turn_id for letter in await _dead(mesh.admin, agent=bob.id)] == [
        letter.turn_id for letter in letters
    ]
    assert sorted(m.in_reply_to for m in (await ada.take()).messages) == sorted(m.message_id for m in sent)
    error = await refusal(_retry(mesh.admin, letters[0].turn_id))
    assert (error.reason, "deleted" in error.message) == ("failed_precondition", True)
    assert await _purge(mesh.admin, *(letter.turn_id for letter in letters)) == 3
    assert not await _dead(mesh.admin)


async def test_what_its_worker_failed_or_a_person_cancelled_is_not_dead(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(bob)
    await ada.send(bob)
    await worker.end(await worker.next(), failure="no")
    await mesh.pause(bob)
    assert not await _dead(mesh.admin)


async def test_of_a_fan_out_only_the_copy_that_died_is_a_letter(mesh: RelayMesh) -> None:
    ada, bob, cid = await mesh.agent("ada"), await mesh.agent("bob"), await mesh.agent("cid")
    sent = await ada.send(bob, cid)
    await bob.take()
    await bob.done(sent.message_id)
    await _times_out(mesh)
    assert [letter.agent.name for letter in await _dead(mesh.admin)] == ["cid"]
    assert (await _states(mesh, sent.thread_id))[0] == [pb.DELIVERY_STATE_DONE, pb.DELIVERY_STATE_DEAD]


async def test_an_answered_message_whose_run_was_too_long_is_no_dead_letter(mesh: RelayMesh) -> None:
    await mesh.policy(turn_seconds=60)
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(bob)
    sent = await ada.send(bob)
    turn = await worker.next()
    await bob.reply(sent.message_id, "already")
    for _ in range(4):
        await mesh.passes(16)
        await worker.renew(turn.held)
    assert not await _dead(mesh.admin)
    assert [m.body for m in (await ada.take()).messages] == ["already"]


async def test_a_notice_that_dies_makes_no_further_notice(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    sent = await ada.send(bob)
    await _times_out(mesh)
    await _times_out(mesh)
    assert len(await mesh.thread(sent.thread_id)) == 2
    assert len(await _dead(mesh.admin)) == 2


async def test_operators_see_and_retry_admins_purge_and_strangers_find_nothing(mesh: RelayMesh) -> None:
    ada, bob, cid = await mesh.agent("ada"), await mesh.agent("bob"), await mesh.agent("cid")
    zoe = await mesh.person("zoe")
    for peer in (bob, cid):
        await ada.send(peer)
    await _times_out(mesh)
    letters = {letter.agent.name: letter.turn_id for letter in await _dead(mesh.admin)}
    for reason in ("not_found", "permission_denied"):
        assert not await _dead(zoe)
        for call in (_get, _retry, _purge):
            error = await refusal(call(zoe, letters["bob"]))
            assert error.reason == reason
            assert reason != "not_found" or error.message == f"there is no dead letter {letters['bob']!r}"
        assert (await refusal(_dead(zoe, agent="bob"))).reason == reason
        await mesh.grant("zoe", 1, "bob")  # a viewer knows of the agent, and is told what is missing
    await mesh.grant("zoe", 2, "bob")
    assert [letter.turn_id for letter in await _dead(zoe)] == [letters["bob"]]
    assert (await refusal(_purge(zoe, letters["bob"]))).reason == "permission_denied"
    assert (await refusal(_retry(zoe, letters["bob"], letters["cid"]))).reason == "not_found"
    assert len(await _dead(mesh.admin)) == 2  # all or none
    assert len(await _retry(zoe, letters["bob"])) == 1
    await mesh.grant("zoe", 3, "cid")
    assert await _purge(zoe, letters["cid"]) == 1
    assert (await refusal(ada.letters.ListDeadLetters(dead_letter_pb2.ListDeadLettersRequest()))).reason == (
        "permission_denied"
    )


async def test_of_many_retries_and_purges_at_once_one_counts(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    sent = await ada.send(bob)
    await _times_out(mesh)
    turn_id = sent.deliveries[0].turn_id
    retries = [attempt(_retry(mesh.admin, turn_id)) for _ in range(5)]
    purges = [attempt(_purge(mesh.admin, turn_id)) for _ in range(5)]
    found = [*await asyncio.gather(*retries, *purges)]
    won = [each for each in found if not hasattr(each, "reason")]
    assert len(won) == 1
    assert {each.reason for each in found if hasattr(each, "reason")} == {"not_found"}
    assert len((await bob.take()).messages) == isinstance(won[0], list)


async def test_a_retry_is_charged_nothing_and_stands_in_the_log(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    sent = await ada.send(bob)
    await _times_out(mesh)
    before = await mesh.usage(bob)
    (fresh,) = await _retry(mesh.admin, sent.deliveries[0].turn_id)
    after = await mesh.usage(bob)
    assert (before.received_today, before.root_turns) == (after.received_today, after.root_turns)
    (event,) = await mesh.events("dead_letter.retried")
    assert (event.actor_name, event.turn_id) == ("admin", sent.deliveries[0].turn_id)
    assert event.details["retried_as"] == fresh
    assert [m.id for m in (await bob.take()).messages] == [sent.message_id]
    await bob.reply(sent.message_id, "at last")
    told, answer = (await ada.take()).messages
    assert answer.body == "at last"
    assert told.seq < answer.seq


async def test_a_retry_needs_room_in_the_inbox(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    for _ in range(2):
        await ada.send(bob)
    await _times_out(mesh)
    letters = [letter.turn_id for letter in await _dead(mesh.admin)]
    await mesh.policy(inbox_backlog=1)
    assert (await refusal(_retry(mesh.admin, *letters))).reason == "inbox_full"
    assert len(await _retry(mesh.admin, letters[0])) == 1
    assert (await refusal(_retry(mesh.admin, letters[1]))).reason == "inbox_full"


async def test_what_is_purged_stays_in_its_thread_as_withdrawn(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    sent = await ada.send(bob, text="lost")
    await _times_out(mesh)
    assert await _purge(mesh.admin, sent.deliveries[0].turn_id) == 1
    found = (await mesh.thread(sent.thread_id))[0]
    assert (found.body, found.deliveries[0].state) == ("lost", pb.DELIVERY_STATE_WITHDRAWN)
    assert (await mesh.events("dead_letter.purged"))[0].message_id == sent.message_id


async def test_letters_are_paged_and_survive_a_restart(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    sent = [await ada.send(bob) for _ in range(5)]
    await _times_out(mesh)
    await mesh.reopen()
    seen: list[str] = []
    token = ""
    while True:
        request = dead_letter_pb2.ListDeadLettersRequest(page_size=2, page_token=token)
        page = await mesh.admin.letters.ListDeadLetters(request)
        seen += [letter.message.id for letter in page.dead_letters]
        token = page.next_page_token
        if not token:
            break
        assert len(page.dead_letters) == 2
    assert seen == [each.message_id for each in reversed(sent)]


async def test_old_letters_and_too_many_are_struck_off_by_themselves(
    mesh: RelayMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "MOST_KEPT", 2)
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    sent = [await ada.send(bob) for _ in range(4)]
    await _times_out(mesh)
    await mesh.relay.sweep.forget()
    assert [letter.message.id for letter in await _dead(mesh.admin)] == [
        sent[3].message_id,
        sent[2].message_id,
    ]
    await mesh.policy(retention_days=2)
    await mesh.skip(3 * DAY)
    await mesh.relay.sweep.forget()
    assert not await _dead(mesh.admin, agent="bob")
