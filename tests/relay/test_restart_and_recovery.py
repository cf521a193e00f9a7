"""A process that ends in the middle loses nothing, and every ask ends."""

from __future__ import annotations

import asyncio

from hopline.relay.v1 import delegation_pb2 as turns_pb
from hopline.relay.v1 import message_pb2 as pb
from hopline_relay import recovery
from hopline_relay.domain.values import LEASE_SECONDS, PULL_LEASE_SECONDS
from hopline_relay.store import seeding, waiting
from hopline_relay.turns import ClaimedTurn

from tests.support.relay_mesh import RelayMesh, refusal

# On SQLite alone: after time has passed these look before a sweep on PostgreSQL has come round.


async def test_everything_accepted_is_there_once_after_a_restart(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    sent = {(await ada.send(bob)).message_id for _ in range(5)}
    taken = {message.id for message in (await bob.take(limit=2)).messages}
    await mesh.reopen()
    rest = {message.id for message in (await bob.take()).messages}
    assert taken | rest == sent
    assert not taken & rest
    # The pull goes on where it was.
    for message_id in sent:
        await bob.reply(message_id)
    assert len((await ada.take()).messages) == 5


async def test_a_worker_of_before_the_restart_ends_its_turn_after_it(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(bob)
    view = await ada.ask(bob)
    turn = await worker.next()
    await mesh.reopen()
    await mesh.passes(20)
    again = await mesh.worker(bob)
    assert again.epoch > worker.epoch
    resumed = await mesh.relay.turns.resume(mesh.workspace_id, bob.id, [turn.held], again.epoch)
    assert resumed == [turn.held]
    assert await again.end(turn, "kept")
    assert (await ada.check(view.turn_id)).reply == "kept"


async def test_a_turn_whose_worker_died_with_the_process_is_queued_again(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(bob)
    view = await ada.ask(bob)
    await worker.next()
    await mesh.close()
    mesh.clock.skip(3_000)
    await mesh.open()
    again = await mesh.worker(bob)
    await mesh.passes(29)
    assert not await again.claim()
    await mesh.passes(2)
    turn = await again.next()
    assert turn.attempt == 2
    await again.end(turn, "second try")
    assert (await ada.check(view.turn_id)).reply == "second try"


async def test_a_waiting_ask_of_before_the_restart_gets_its_answer_as_a_message(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    asking = asyncio.create_task(ada.ask(bob, wait=50))
    worker = await mesh.worker(bob)
    turns: list[ClaimedTurn] = []
    while not turns:
        turns = await worker.claim()
    await mesh.reopen()
    await asyncio.gather(asking, return_exceptions=True)
    again = await mesh.worker(bob)
    await mesh.relay.turns.resume(mesh.workspace_id, bob.id, [turns[0].held], again.epoch)
    await again.end(turns[0], "after the break")
    assert [m.body for m in (await ada.take()).messages] == ["after the break"]


async def test_counters_survive_a_restart_of_everything(mesh: RelayMesh) -> None:
    ada, bob, cid = await mesh.agent("ada"), await mesh.agent("bob"), await mesh.agent("cid")
    await ada.send(bob)
    await ada.send(bob, cid)
    await bob.take()
    before = [await mesh.usage(agent) for agent in (ada, bob, cid)]
    await mesh.reopen()
    after = [await mesh.usage(agent) for agent in (ada, bob, cid)]
    for old, new in zip(before, after, strict=True):
        assert (old.sent_today, old.received_today, old.inbox, old.depth, old.root_turns) == (
            new.sent_today,
            new.received_today,
            new.inbox,
            new.depth,
            new.root_turns,
        )
    assert (await bob.send(cid)).depth == 2


async def test_counters_lost_in_the_middle_are_rebuilt_before_anything_is_admitted(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await mesh.policy(sent_per_day=3, pair_budget="0")
    await ada.send(bob)
    await mesh.forget_counters(1_000)
    results = await asyncio.gather(*(ada.send(bob) for _ in range(10)), return_exceptions=True)
    assert sum(isinstance(result, pb.SendResponse) for result in results) == 2
    assert (await mesh.usage(ada)).sent_today == 3


async def test_charges_of_an_epoch_that_is_over_are_made_again(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    # Another process of the relay has seeded a new epoch in the meantime.
    await mesh.relay.journal.write(seeding.next_epoch)
    sent = await ada.send(bob)
    assert [m.id for m in (await bob.take()).messages] == [sent.message_id]
    assert (await mesh.usage(ada)).sent_today == 1


async def test_a_process_that_was_fenced_writes_nothing_more(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await recovery.end(mesh.relay.journal)
    results = await asyncio.gather(ada.send(bob), return_exceptions=True)
    assert getattr(results[0], "reason", "") == "unavailable"
    assert not (await mesh.admin.messages.PeekInbox(pb.PeekInboxRequest(agent="bob"))).messages


async def test_what_the_mesh_itself_said_is_counted_neither_before_nor_after_the_counters_were_lost(
    mesh: RelayMesh,
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(bob)
    await ada.ask(bob)
    await worker.end(await worker.next(), failure="it broke")
    assert len((await ada.take()).messages) == 1
    assert (await mesh.usage(ada)).received_today == 0
    await mesh.forget_counters(1000)
    await bob.send(ada)
    assert (await mesh.usage(ada)).received_today == 1


async def test_a_clock_set_back_over_a_restart_holds_no_pulled_message_for_longer_than_its_lease(
    mesh: RelayMesh,
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    view = await ada.ask(bob)
    assert len((await bob.take()).messages) == 1
    await mesh.close()
    mesh.clock.skip(-2 * 86_400)
    await mesh.open()
    await mesh.skip(PULL_LEASE_SECONDS)
    await mesh.passes(1)
    assert [message.id for message in (await bob.take()).messages] == [view.message_id]
    await bob.reply(view.message_id, "after all")
    assert (await ada.check(view.turn_id)).reply == "after all"


async def test_a_notice_of_the_mesh_costs_nothing_before_and_after_a_restart(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(bob)
    await ada.ask(bob)
    await worker.end(await worker.next(), failure="no luck")
    before = (await mesh.usage(ada)).received_today
    await mesh.reopen()
    assert (await mesh.usage(ada)).received_today == before == 0


async def test_a_call_beside_a_turn_gives_its_slot_to_nobody_when_the_counters_were_lost(
    mesh: RelayMesh,
) -> None:
    ada, bob, cid = await mesh.agent("ada"), await mesh.agent("bob"), await mesh.agent("cid")
    await mesh.policy(concurrent_runs=1)
    ada_works, cid_works = await mesh.worker(ada), await mesh.worker(cid)
    await bob.send(ada)
    await ada_works.next()
    beside = asyncio.create_task(ada.ask(bob, wait=5))
    taken = (await bob.take(wait=5)).messages[0]
    await mesh.forget_counters(1000)
    await bob.send(cid)
    assert not await cid_works.claim()
    await bob.reply(taken.id)
    await beside
    assert not await cid_works.claim()


async def test_a_turn_that_went_back_to_its_queue_counts_when_the_counters_are_rebuilt(
    mesh: RelayMesh,
) -> None:
    ada, bob, cy = await mesh.agent("ada"), await mesh.agent("bob"), await mesh.agent("cy")
    asked = await ada.ask(bob)
    await (await mesh.worker(bob)).next()
    await mesh.passes(LEASE_SECONDS + 1)
    turn = await mesh.admin.turns.GetTurn(turns_pb.GetTurnRequest(turn_id=asked.turn_id))
    assert turn.turn.status == pb.TURN_STATUS_QUEUED
    assert not turn.turn.HasField("ended_at")
    depth = (await bob.send(cy)).depth
    assert depth == asked.depth + 1
    await mesh.forget_counters(1_000)
    assert (await bob.send(cy)).depth == depth
    # And when it ends in its queue, before it has run again.
    await ada.turns.Cancel(turns_pb.CancelRequest(turn_id=asked.turn_id))
    await mesh.forget_counters(2_000)
    assert (await bob.send(cy)).depth == depth


async def test_of_two_calls_that_wait_within_a_turn_the_last_takes_the_slot_back(mesh: RelayMesh) -> None:
    ada, bob, cid = await mesh.agent("ada"), await mesh.agent("bob"), await mesh.agent("cid")
    await mesh.policy(concurrent_runs=1)
    ada_works, cid_works = await mesh.worker(ada), await mesh.worker(cid)
    await bob.send(ada)
    turn = await ada_works.next()
    calls = [asyncio.create_task(ada_works.ask(turn, bob, wait=50)) for _ in range(2)]
    first: list[pb.Message] = []
    while len(first) < 2:
        first += (await bob.take(wait=5)).messages
    await bob.reply(first[0].id)
    await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    await bob.send(cid)
    assert len(await cid_works.claim()) == 1
    await bob.reply(first[1].id)
    await asyncio.gather(*calls)
    await bob.send(cid)
    assert not await cid_works.claim()


async def test_nothing_is_admitted_before_a_start_has_settled_what_was_left(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    epoch, mesh.relay.admission.epoch = mesh.relay.admission.epoch, 0
    error = await refusal(ada.send(bob))
    assert (error.reason, error.retryable) == ("unavailable", True)
    mesh.relay.admission.epoch = epoch
    await ada.send(bob)


async def test_a_wait_of_a_process_that_died_gives_nobodys_slot_away(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await bob.send(ada)
    turn = await (await mesh.worker(ada)).next()
    row = {
        "workspace_id": mesh.workspace_id,
        "id": "wai_left",
        "turn_id": "trn_other",
        "instance_id": "",
        "waiter_kind": "agent",
        "waiter_id": ada.id,
        "waiter_turn_id": turn.turn_id,
        "created_at": mesh.clock.now(),
    }
    for instance_id, counts in ((mesh.relay.journal.instance_id, True), ("ins_dead", False)):
        row["instance_id"] = instance_id
        await mesh.relay.journal.write(
            lambda book: waiting.remove(book.connection, [(mesh.workspace_id, "wai_left")])
        )
        await mesh.relay.journal.write(lambda book: waiting.add(book.connection, row))
        seed = await mesh.relay.journal.read(
            lambda connection: seeding.build(connection, 9, {}, mesh.clock.now())
        )
        assert [each.waiting for each in seed.turns if each.turn_id == turn.turn_id] == [counts]
