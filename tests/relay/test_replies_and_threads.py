"""Replies: whom they wake, what they discharge, what bounds them; threads as each reader sees them."""

from __future__ import annotations

import asyncio

import pytest
from hopline.registry.v1 import agent_pb2
from hopline.relay.v1 import message_pb2 as pb
from hopline_rpc.clock import to_timestamp
from hopline_rpc.errors import HoplineError

from tests.support.relay_mesh import Caller, RelayMesh, attempt, refusal

pytestmark = pytest.mark.both_stores


async def test_a_reply_wakes_the_sender_alone_at_its_own_depth(mesh: RelayMesh) -> None:
    ada, bob, cid = await mesh.agent("ada"), await mesh.agent("bob"), await mesh.agent("cid")
    sent = await ada.send(bob, cid)
    await bob.take()
    reply = await bob.reply(sent.message_id, "from bob")
    assert (reply.thread_id, reply.depth) == (sent.thread_id, 0)
    assert [delivery.agent.id for delivery in reply.deliveries] == [ada.id]
    got = (await ada.take()).messages
    assert [(m.body, m.in_reply_to) for m in got] == [("from bob", sent.message_id)]
    assert [m.body for m in (await cid.take()).messages] == ["hello"]


async def test_a_first_reply_needs_no_reach_and_a_further_one_does(mesh: RelayMesh) -> None:
    yan = await mesh.person("yan")
    ada = await mesh.agent("ada")
    bob = await mesh.agent("bob", owner_id=yan.id)
    sent = await ada.send(bob)
    await bob.take()
    assert (await refusal(bob.send(ada))).reason == "not_found"
    await bob.reply(sent.message_id)
    assert (await refusal(bob.reply(sent.message_id, "and another thing"))).reason == "not_found"
    await mesh.grant("yan", 2, "ada")
    further = await bob.reply(sent.message_id, "and another thing")
    # It counts as a start: one deeper than what bob runs.
    assert further.depth == 2


async def test_a_reply_to_a_sender_that_is_gone_says_so(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    sent = await ada.send(bob)
    await bob.take()
    await mesh.delete(ada)
    assert (await refusal(bob.reply(sent.message_id))).reason == "not_found"
    # The thread stays readable.
    assert [m.body for m in await mesh.thread(sent.thread_id, bob)] == ["hello"]


async def test_a_notice_of_the_mesh_cannot_be_answered(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    asked = await ada.ask(bob)
    await bob.take()
    await bob.done(asked.message_id)
    notice = (await ada.take()).messages[0]
    assert (await refusal(ada.reply(notice.id))).reason == "failed_precondition"


async def test_a_fan_out_within_a_thread_keeps_its_places_too(mesh: RelayMesh) -> None:
    await mesh.policy(messages_per_thread=7)
    ada, bob, cid = await mesh.agent("ada"), await mesh.agent("bob"), await mesh.agent("cid")
    first = await ada.send(bob, cid)
    second = await ada.send(bob, cid, thread_id=first.thread_id)
    # Two messages, and four places: one is left.
    error = await refusal(ada.send(bob, cid, thread_id=first.thread_id))
    assert error.reason == "thread_full"
    await ada.send(bob, thread_id=first.thread_id)
    assert (await refusal(ada.send(bob, thread_id=first.thread_id))).reason == "thread_full"
    for sent in (first, second):
        for peer in (bob, cid):
            await peer.reply(sent.message_id)
    assert [message.seq for message in await mesh.thread(first.thread_id)] == list(range(1, 8))
    assert (await refusal(bob.reply(second.message_id))).reason == "thread_full"


async def test_ping_pong_of_replies_ends_at_the_cap_of_the_thread(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    last = (await ada.send(bob)).message_id
    count, players = 1, (bob, ada)
    while True:
        player = players[(count - 1) % 2]
        await player.take()
        answer = await attempt(player.reply(last, f"volley {count}"))
        if isinstance(answer, HoplineError):
            assert answer.reason == "thread_full"
            break
        last = answer.message_id
        count += 1
    assert count == 20


async def test_many_replies_at_once_to_one_ask_discharge_it_once(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    asked = await ada.ask(bob)
    await bob.take()
    results = await asyncio.gather(
        *(bob.reply(asked.message_id, f"answer {n}") for n in range(5)), return_exceptions=True
    )
    assert not [result for result in results if isinstance(result, BaseException)]
    depths = sorted(result.depth for result in results if isinstance(result, pb.ReplyResponse))
    assert depths == [0, 2, 2, 2, 2]
    view = await ada.check(asked.turn_id)
    assert view.reply.startswith("answer ")


async def test_who_serves_an_ask_answers_instead_of_writing_into_its_thread(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    asked = await ada.ask(bob)
    await bob.take()
    error = await refusal(bob.send(ada, thread_id=asked.thread_id))
    assert error.reason == "answer_instead"
    assert asked.message_id in error.message
    # A new ask is how a chain grows, until the depth rail.
    assert (await bob.ask(ada)).depth == 2
    await bob.reply(asked.message_id)
    await bob.send(ada, thread_id=asked.thread_id)


async def test_who_serves_an_ask_may_not_ask_into_the_session_that_waits(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    ada_worker, bob_worker = await mesh.worker(ada), await mesh.worker(bob)
    await bob.send(ada)
    turn = await ada_worker.next()
    await ada_worker.ask(turn, bob)
    await bob_worker.next()
    error = await refusal(bob.ask(ada, session_id=turn.session_id))
    assert error.reason == "answer_instead"


async def test_an_agent_outside_the_readers_view_is_another_agent(mesh: RelayMesh) -> None:
    yan = await mesh.person("yan")
    ada, cid = await mesh.agent("ada"), await mesh.agent("cid")
    bob = await mesh.agent("bob", owner_id=yan.id)
    sent = await ada.send(bob, cid)
    message = (await bob.take()).messages[0]
    # Who writes to bob is known to it; who else got it is not.
    assert getattr(message, "from").name == "ada"
    assert [party.name for party in message.to] == ["bob", "another agent"]
    assert [party.id for party in message.to] == [bob.id, ""]
    assert [delivery.session_id for delivery in message.deliveries][1] == ""
    listed = (await bob.messages.ListThreads(pb.ListThreadsRequest())).threads
    assert sorted(party.name for party in listed[0].participants) == [
        "another agent",
        "another agent",
        "bob",
    ]
    assert sorted(m.name for m in (await mesh.thread(sent.thread_id, ada))[0].to) == ["bob", "cid"]


async def _pages(caller: Caller, **more: object) -> list[str]:
    """Return the ids of all threads, page by page."""
    found: list[str] = []
    token = ""
    while True:
        request = pb.ListThreadsRequest(page_size=2, page_token=token, **more)  # type: ignore[arg-type]
        page = await caller.messages.ListThreads(request)
        assert len(page.threads) <= 2
        found += [thread.id for thread in page.threads]
        token = page.next_page_token
        if not token:
            return found


async def test_threads_are_listed_by_newest_activity_page_by_page(mesh: RelayMesh) -> None:
    ada, bob, eve = await mesh.agent("ada"), await mesh.agent("bob"), await mesh.agent("eve")
    sent = [(await ada.send(bob)).thread_id for _ in range(5)]
    await ada.send(bob, thread_id=sent[1])
    expected = [sent[1], sent[4], sent[3], sent[2], sent[0]]
    assert await _pages(ada) == await _pages(bob) == expected
    assert await _pages(mesh.admin) == await _pages(mesh.admin, agent="ada") == expected
    assert await _pages(eve) == []
    zoe = await mesh.person("zoe")
    assert await _pages(zoe) == []
    await mesh.grant("zoe", 1, "bob")
    assert await _pages(zoe) == expected
    assert (await refusal(_pages(zoe, agent="ada"))).reason == "not_found"


async def test_a_thread_is_read_page_by_page_in_its_one_order(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    sent = await ada.send(bob)
    await asyncio.gather(*(ada.send(bob, thread_id=sent.thread_id, text=f"{n}") for n in range(6)))
    seqs: list[int] = []
    token = ""
    while True:
        request = pb.ListMessagesRequest(thread_id=sent.thread_id, page_size=3, page_token=token)
        page = await ada.messages.ListMessages(request)
        seqs += [message.seq for message in page.messages]
        token = page.next_page_token
        if not token:
            break
    assert seqs == list(range(1, 8))


async def test_a_thread_is_opened_at_a_message_or_at_its_end_and_turned_back_from_there(
    mesh: RelayMesh,
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    sent = [await ada.send(bob, text="text 1")]
    for number in range(2, 9):
        sent.append(await ada.send(bob, text=f"text {number}", thread_id=sent[0].thread_id))

    async def page(**more: object) -> tuple[list[int], str, str]:
        request = pb.ListMessagesRequest(thread_id=sent[0].thread_id, page_size=3, **more)  # type: ignore[arg-type]
        found = await ada.messages.ListMessages(request)
        return [each.seq for each in found.messages], found.previous_page_token, found.next_page_token

    seqs, before, after = await page(message_id=sent[5].message_id)
    assert seqs == [2, 3, 4]
    assert (await page(page_token=after))[0] == [5, 6, 7]
    assert (await page(page_token=before))[:2] == ([1, 2, 3], "")
    seqs, before, after = await page(from_end=True)
    assert (seqs, after) == ([6, 7, 8], "")
    assert (await page(page_token=before))[0] == [3, 4, 5]
    assert (await page())[:2] == ([1, 2, 3], "")
    for wrong in ({"page_token": before}, {"message_id": sent[4].message_id}):
        with pytest.raises(HoplineError, match="leave it out"):
            await page(from_end=True, **wrong)


async def test_a_thread_is_not_opened_at_a_message_of_another(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    one, other = await ada.send(bob, text="text 1"), await ada.send(bob, text="text 1")
    never_was = "msg_01m8r6qq5d3rrwyeyqtm4ajxm6"
    for message_id in (other.message_id, never_was):
        request = pb.ListMessagesRequest(thread_id=one.thread_id, message_id=message_id)
        with pytest.raises(HoplineError, match=f"there is no message '{message_id}'"):
            await ada.messages.ListMessages(request)


async def test_a_page_token_of_another_list_is_refused(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    for _ in range(2):
        await ada.send(bob)
    page = await ada.messages.ListThreads(pb.ListThreadsRequest(page_size=1))
    foreign = bob.messages.ListThreads(pb.ListThreadsRequest(page_size=1, page_token=page.next_page_token))
    assert (await refusal(foreign)).reason == "invalid_argument"
    negative = ada.messages.ListThreads(pb.ListThreadsRequest(page_size=-1))
    assert (await refusal(negative)).reason == "invalid_argument"


async def test_a_name_in_a_thread_stays_when_its_agent_is_renamed_or_paused(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    sent = await ada.send(bob)
    request = agent_pb2.UpdateAgentRequest(agent_ref="ada", agent=agent_pb2.Agent(name="ada lovelace"))
    request.update_mask.paths.append("name")
    await mesh.admin.agents.UpdateAgent(request)
    await mesh.pause(ada)
    message = (await mesh.thread(sent.thread_id, bob))[0]
    assert getattr(message, "from").display == "ada lovelace (for admin)"


async def test_threads_are_listed_by_their_activity_in_either_order_and_from_a_time_on(
    mesh: RelayMesh,
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    sent, times = [], []
    for _ in range(5):
        await mesh.clock.advance(10)
        times.append(mesh.clock.now())
        sent.append((await ada.send(bob)).thread_id)
    for reader, agent in ((mesh.admin, ""), (mesh.admin, "bob"), (ada, "")):
        for number, at in enumerate(times):
            request = pb.ListThreadsRequest(ascending=True, page_size=2, agent=agent)
            getattr(request, "from").CopyFrom(to_timestamp(at))
            listed: list[str] = []
            while not listed or request.page_token:
                page = await reader.messages.ListThreads(request)
                listed += [thread.id for thread in page.threads]
                request.page_token = page.next_page_token
            assert listed == sent[number:]
        newest = pb.ListThreadsRequest(agent=agent)
        getattr(newest, "from").CopyFrom(to_timestamp(times[3]))
        assert [each.id for each in (await reader.messages.ListThreads(newest)).threads] == sent[:2:-1]
