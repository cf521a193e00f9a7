"""What a sender learns of its recipients, and a recipient of how stale a message is."""

from __future__ import annotations

import pytest
from hopline.relay.v1 import message_pb2 as pb

from tests.support.relay_mesh import Caller, RelayMesh

pytestmark = pytest.mark.both_stores


async def _read(mesh: RelayMesh, thread_id: str, reader: Caller) -> dict[str, int]:
    """Return how far each agent has read, as the reader is told by both lists."""
    request = pb.ListMessagesRequest(thread_id=thread_id)
    answer = await reader.messages.ListMessages(request)
    listed = await reader.messages.ListThreads(pb.ListThreadsRequest())
    thread = next(each for each in listed.threads if each.id == thread_id)
    assert list(thread.read) == list(answer.read)
    return {mark.agent.name: mark.consumed_through for mark in answer.read}


async def test_the_sender_sees_how_far_each_recipient_has_read(mesh: RelayMesh) -> None:
    ada, bob, cid = await mesh.agent("ada"), await mesh.agent("bob"), await mesh.agent("cid")
    sent = await ada.send(bob, cid)
    assert await _read(mesh, sent.thread_id, ada) == {"bob": 0, "cid": 0}
    await bob.take()
    assert await _read(mesh, sent.thread_id, ada) == {"bob": 1, "cid": 0}
    await cid.reply(sent.message_id, "here")
    assert await _read(mesh, sent.thread_id, ada) == {"bob": 1, "cid": 1, "ada": 2}
    more = await ada.send(bob, thread_id=sent.thread_id)
    assert more.thread_id == sent.thread_id
    assert (await _read(mesh, sent.thread_id, ada))["bob"] == 1
    await mesh.thread(sent.thread_id, bob)  # being shown it is reading it
    assert (await _read(mesh, sent.thread_id, ada))["bob"] == 3


async def test_what_was_taken_out_of_order_counts_up_to_the_first_that_waits(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(bob)
    first = await ada.send(bob)
    running = await worker.next()
    await ada.send(bob, thread_id=first.thread_id)
    third = await ada.send(bob, thread_id=first.thread_id)
    await bob.reply(third.message_id, "the last one first")
    await worker.end(running)
    assert (await _read(mesh, first.thread_id, ada))["bob"] == 1
    await bob.take()
    assert (await _read(mesh, first.thread_id, ada))["bob"] == 3


async def test_handed_to_a_worker_is_not_read_until_it_accepts_and_dead_is_passed_over(
    mesh: RelayMesh,
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(bob)
    sent = await ada.send(bob)
    turns = await mesh.relay.turns.claim([worker.wish(1)])
    assert (await _read(mesh, sent.thread_id, mesh.admin))["bob"] == 0
    await worker.accept(*turns)
    await mesh.relay.turns.drained()
    assert (await _read(mesh, sent.thread_id, mesh.admin))["bob"] == 1
    await worker.end(turns[0])
    late = await ada.send(bob, thread_id=sent.thread_id)
    await mesh.skip(86_410)
    await mesh.passes(1)
    assert (await mesh.thread(late.thread_id))[1].deliveries[0].state == pb.DELIVERY_STATE_DEAD
    assert (await _read(mesh, sent.thread_id, mesh.admin))["bob"] == 1
    last = await ada.send(bob, thread_id=sent.thread_id)
    await bob.take()
    assert (await _read(mesh, sent.thread_id, mesh.admin))["bob"] == last_seq(
        await mesh.thread(last.thread_id)
    )


def last_seq(messages: list[pb.Message]) -> int:
    return messages[-1].seq


async def test_who_has_read_is_not_named_to_those_who_may_not_know_them(mesh: RelayMesh) -> None:
    yan = await mesh.person("yan")
    ada, bob, cid = (
        await mesh.agent("ada"),
        await mesh.agent("bob", owner_id=yan.id),
        await mesh.agent("cid"),
    )
    sent = await ada.send(bob, cid)
    assert set(await _read(mesh, sent.thread_id, bob)) == {"bob", "another agent"}
    answer = await bob.messages.ListMessages(pb.ListMessagesRequest(thread_id=sent.thread_id))
    assert cid.id not in str(answer.read)


async def test_a_taken_message_says_its_age_and_how_many_newer_ones_follow(mesh: RelayMesh) -> None:
    ada, bob, cid = await mesh.agent("ada"), await mesh.agent("bob"), await mesh.agent("cid")
    await ada.send(bob, text="deploy")
    await mesh.clock.advance(90)
    await cid.send(bob, text="hello")
    await ada.send(bob, text="do not deploy")
    await ada.send(bob, text="really not")
    peeked = await mesh.admin.messages.PeekInbox(pb.PeekInboxRequest(agent="bob", page_size=1))
    assert [(m.age_seconds, m.newer_from_sender) for m in peeked.messages] == [(90, 2)]
    first = (await bob.take(limit=1)).messages
    assert [(m.body, m.age_seconds, m.newer_from_sender) for m in first] == [("deploy", 90, 2)]
    rest = (await bob.take()).messages
    assert [(m.body, m.newer_from_sender) for m in rest] == [
        ("hello", 0),
        ("do not deploy", 1),
        ("really not", 0),
    ]


async def test_a_pull_that_waits_is_told_of_what_came_with_its_message(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await ada.send(bob)
    (message,) = (await bob.take()).messages
    assert (message.age_seconds, message.newer_from_sender) == (0, 0)
    # Who reads a thread learns how old it is; that newer ones follow is there to be seen.
    (shown,) = await mesh.thread(message.thread_id, bob)
    assert shown.HasField("age_seconds")
    assert not shown.HasField("newer_from_sender")
    (own,) = await mesh.thread(message.thread_id, ada)
    assert not own.HasField("age_seconds")


@pytest.mark.parametrize("batched", [False, True], ids=["one by one", "as a batch"])
async def test_a_workers_message_says_how_many_newer_ones_wait_in_its_session(
    mesh: RelayMesh, *, batched: bool
) -> None:
    await mesh.policy(batch_inbox=batched)
    ada, bob, cid = await mesh.agent("ada"), await mesh.agent("bob"), await mesh.agent("cid")
    worker = await mesh.worker(bob)
    for number in range(3):
        await ada.send(bob, text=f"{number}")
    await cid.send(bob)
    await mesh.clock.advance(7)
    turns = await worker.claim()
    found = [(m.age_seconds, m.newer_from_sender) for turn in turns for m in turn.messages]
    assert found == ([(7, 2), (7, 1), (7, 0), (7, 0)] if batched else [(7, 2), (7, 0)])


async def test_only_the_same_sender_counts_among_replies_in_one_session(mesh: RelayMesh) -> None:
    lead = await mesh.agent("lead")
    peers = [await mesh.agent(name) for name in ("bob", "cid")]
    worker = await mesh.worker(lead)
    await mesh.admin.send(lead)
    turn = await worker.next()
    sent = [await worker.send(turn, *peers, text=text) for text in ("one", "two")]
    await worker.end(turn)
    for each in sent:
        for peer in peers:
            await peer.reply(each.message_id, "ok")
    woken = await worker.next()
    assert woken.messages[0].newer_from_sender == 1
