"""Turns that start in the transaction that queues them: where a worker waits, in order, within the rails."""

from __future__ import annotations

import asyncio

from hopline.relay.v1 import audit_pb2
from hopline.relay.v1 import message_pb2 as pb
from hopline.runtime.v1.tunnel_pb2 import RelayItem, StartTurn
from hopline_relay.dispatch import Attachment, Holding
from hopline_relay.store.seeding import next_epoch
from hopline_relay.turns import Held, TurnEnd
from hopline_rpc.errors import HoplineError
from hopline_rpc.principals import Principal

from tests.support.relay_mesh import Caller, RelayMesh, refusal, until


class Desk:
    """A worker's stream that keeps what it is sent, and ends turns as a stream does."""

    def __init__(self, mesh: RelayMesh) -> None:
        self.mesh = mesh
        self.starts: list[StartTurn] = []
        self.attachment: Attachment

    def ready(self) -> bool:
        return True

    def send(self, item: RelayItem) -> None:
        if item.HasField("start"):
            self.starts.append(item.start)

    def end(self, attachment: Attachment, code: str, message: str) -> None:
        self.mesh.relay.dispatcher.remove(attachment)

    def holding(self, start: StartTurn) -> Holding:
        return self.attachment.held[start.turn_id]

    async def answer(self, start: StartTurn, text: str) -> bool:
        held = Held(start.turn_id, start.attempt)
        known = self.holding(start).known
        end = TurnEnd(*self.attachment.key, held, self.attachment.epoch, answer=text, known=known)
        recorded = await self.mesh.relay.turns.end(end)
        self.mesh.relay.dispatcher.ended(self.attachment, start.turn_id)
        return recorded


async def desk(mesh: RelayMesh, agent: Caller, places: int = 4) -> Desk:
    worker = await mesh.worker(agent)
    found = Desk(mesh)
    principal = Principal("agent", agent.id, mesh.workspace_id, agent.id, "tok_1")
    found.attachment = Attachment(1, principal, worker.epoch, places, "user", found)
    mesh.relay.dispatcher.add(found.attachment)
    # It asks for what is queued; while it does, its places are promised.
    await mesh.clock.settle()
    await until(lambda: not found.attachment.promised)
    return found


async def pulling(mesh: RelayMesh, agent: Caller) -> asyncio.Future[pb.TakeInboxResponse]:
    """Have an agent wait in its inbox."""
    call = asyncio.ensure_future(agent.take(wait=20))
    await until(lambda: (mesh.workspace_id, agent.id) in mesh.relay.inbox._pulls, "the pull")
    return call


async def test_a_turn_has_started_when_its_message_is_on_disk(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    bobs = await desk(mesh, bob)
    sent = await ada.send(bob, text="now")
    assert [start.turn_id for start in bobs.starts] == [sent.deliveries[0].turn_id]
    assert bobs.starts[0].messages[0].body == "now"
    events = (await mesh.admin.audit.ListEvents(audit_pb2.ListEventsRequest())).events
    times = {event.action: event.at for event in events}
    assert times["turn.started"] == times["message.sent"]
    assert await bobs.answer(bobs.starts[0], "")


async def test_turns_of_one_session_still_run_one_at_a_time_in_order(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    for number in range(2):
        await ada.send(bob, text=f"{number}")
    bobs = await desk(mesh, bob)
    await until(lambda: bobs.starts)
    # The first runs, the second waits for its session; a third opens one of its own.
    await ada.send(bob, text="2")
    assert [start.messages[0].body for start in bobs.starts] == ["0", "2"]
    await bobs.answer(bobs.starts[0], "")
    await until(lambda: len(bobs.starts) == 3)
    assert bobs.starts[2].messages[0].body == "1"


async def test_no_more_start_than_there_are_places(mesh: RelayMesh) -> None:
    bob = await mesh.agent("bob")
    bobs = await desk(mesh, bob, places=2)
    for number in range(4):
        await (await mesh.agent(f"peer{number}")).send(bob)
    assert len(bobs.starts) == 2
    await bobs.answer(bobs.starts[0], "")
    await until(lambda: len(bobs.starts) == 3)


async def test_no_more_start_than_there_are_run_slots(mesh: RelayMesh) -> None:
    bob, cid, ada = await mesh.agent("bob"), await mesh.agent("cid"), await mesh.agent("ada")
    await mesh.policy(concurrent_runs=1)
    bobs, cids = await desk(mesh, bob), await desk(mesh, cid)
    await ada.send(bob)
    await ada.send(cid)
    await mesh.clock.settle()
    assert (len(bobs.starts), len(cids.starts)) == (1, 0)
    await bobs.answer(bobs.starts[0], "")
    await until(lambda: cids.starts)


async def test_what_was_offered_to_a_message_that_is_refused_is_free_again(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await mesh.policy(concurrent_runs=1, messages_per_thread=1)
    first = await ada.send(bob)
    await bob.take()
    await bob.done(first.message_id)
    bobs = await desk(mesh, bob, places=1)
    full = await refusal(ada.send(bob, thread_id=first.thread_id))
    assert isinstance(full, HoplineError)
    assert full.reason == "thread_full"
    await mesh.relay.admission.settled()
    await ada.send(bob, text="another")
    await until(lambda: bobs.starts)
    assert bobs.starts[0].messages[0].body == "another"


async def test_a_final_message_is_not_delivered_where_the_agent_said_that_none_will_come(
    mesh: RelayMesh,
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    bobs = await desk(mesh, bob)
    view = await ada.ask(bob)
    assert bobs.holding(bobs.starts[0]).known is not None
    await bob.done(view.message_id)
    assert await bobs.answer(bobs.starts[0], "after all")
    ended = await ada.check(view.turn_id)
    assert ended.status == pb.TURN_STATUS_FAILED
    assert ended.error.code == "ended_without_answer"


async def test_an_answer_goes_back_though_nothing_was_looked_up_for_it(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    bobs = await desk(mesh, bob)
    view = await ada.ask(bob)
    assert await bobs.answer(bobs.starts[0], "yes")
    assert (await ada.check(view.turn_id)).reply == "yes"
    assert not await bobs.mesh.relay.turns.end(
        TurnEnd(*bobs.attachment.key, Held(view.turn_id, 1), bobs.attachment.epoch, answer="again")
    )


async def test_a_place_is_free_again_when_the_record_cannot_even_say_why_it_refused(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await mesh.policy(concurrent_runs=1)
    bobs = await desk(mesh, bob, places=1)
    refresh = mesh.relay.admission.refresh_epoch

    async def fails() -> None:
        mesh.relay.admission.refresh_epoch = refresh  # type: ignore[method-assign]
        raise HoplineError("unavailable", "the store is locked by another process")

    async def epoch_moves(*items: object) -> object:
        mesh.relay.admission.begin = begin  # type: ignore[method-assign]
        await mesh.relay.journal.write(next_epoch)
        return await begin(*items)  # type: ignore[arg-type]

    begin, mesh.relay.admission.begin = mesh.relay.admission.begin, epoch_moves  # type: ignore[assignment,method-assign]
    mesh.relay.admission.refresh_epoch = fails  # type: ignore[method-assign]
    assert (await refusal(ada.send(bob))).reason == "unavailable"
    await until(lambda: bobs.attachment.free, "the place")
    await mesh.relay.admission.refresh_epoch()
    await ada.send(bob, text="again")
    await until(lambda: bobs.starts)
    assert bobs.starts[0].messages[0].body == "again"


async def test_a_turn_that_is_given_back_is_counted_when_it_is_claimed_at_once(mesh: RelayMesh) -> None:
    ada, bob, cid = await mesh.agent("ada"), await mesh.agent("bob"), await mesh.agent("cid")
    await mesh.policy(concurrent_runs=1)
    bobs, cids = await desk(mesh, bob), await desk(mesh, cid)
    sent = await ada.send(bob)
    await until(lambda: bobs.starts)
    told, heard = mesh.relay.admission.told_ends, asyncio.Event()

    async def slowly(items: list[object]) -> None:
        # The turn is claimable again by the record before the counters have heard of it.
        mesh.relay.dispatcher.wake({bobs.attachment.key})
        for _ in range(20):
            await mesh.relay.journal.write(lambda book: None)
            await mesh.clock.settle()
        mesh.relay.admission.told_ends = told  # type: ignore[method-assign]
        await told(items)  # type: ignore[arg-type]
        heard.set()

    mesh.relay.admission.told_ends = slowly  # type: ignore[assignment,method-assign]
    mesh.relay.dispatcher.give_back(bobs.attachment, [Held(sent.deliveries[0].turn_id, 1)])
    await heard.wait()
    await until(lambda: len(bobs.starts) == 2)
    assert (await mesh.usage(bob)).running == 1
    await ada.send(cid)
    await mesh.clock.settle(200)
    assert cids.starts == []


async def test_a_message_reaches_a_call_that_waits_for_it_in_the_transaction_that_queues_it(
    mesh: RelayMesh,
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await bob.send(ada)  # its inbox's session is known from now on
    waiting = await pulling(mesh, bob)
    sent = await ada.send(bob, text="now")
    taken = await waiting
    assert [message.id for message in taken.messages] == [sent.message_id]
    assert (taken.turn_id, taken.remaining) == (sent.deliveries[0].turn_id, 0)
    assert taken.messages[0].deliveries[0].state == pb.DELIVERY_STATE_TAKEN
    events = (await mesh.admin.audit.ListEvents(audit_pb2.ListEventsRequest())).events
    times = {event.action: event.at for event in events if event.message_id == sent.message_id}
    assert times["turn.started"] == times["message.sent"]
    usage = await mesh.usage(bob)
    assert (usage.inbox, usage.depth) == (0, 1)
    assert await bob.done(sent.message_id) == pb.DELIVERY_STATE_DONE


async def test_of_several_messages_at_once_a_waiting_call_gets_the_first_and_hears_of_the_others(
    mesh: RelayMesh,
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await bob.send(ada)
    waiting = await pulling(mesh, bob)
    await asyncio.gather(*(ada.send(bob, text=f"{number}") for number in range(3)))
    taken = await waiting
    rest = await bob.take()
    bodies = [message.body for message in (*taken.messages, *rest.messages)]
    assert sorted(bodies) == ["0", "1", "2"]
    assert rest.turn_id == taken.turn_id
    assert rest.remaining == 0


async def test_what_a_waiting_call_was_given_after_its_caller_went_away_is_unread_again(
    mesh: RelayMesh,
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await bob.send(ada)
    waiting = await pulling(mesh, bob)
    begin = mesh.relay.admission.begin

    async def leaves(items: list[object]) -> list[bool]:
        mesh.relay.admission.begin = begin  # type: ignore[method-assign]
        waiting.cancel()
        await mesh.clock.settle()
        return await begin(items)  # type: ignore[arg-type]

    mesh.relay.admission.begin = leaves  # type: ignore[assignment,method-assign]
    sent = await ada.send(bob)
    await mesh.relay.inbox.drained()
    assert [message.id for message in (await bob.take()).messages] == [sent.message_id]
    assert (await mesh.usage(bob)).inbox == 0


async def test_a_turn_that_was_offered_a_place_in_vain_is_counted_when_it_is_taken_at_once(
    mesh: RelayMesh,
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    first = await ada.send(bob)
    await bob.take()
    waiting = await pulling(mesh, bob)
    begin, told = mesh.relay.admission.begin, mesh.relay.admission.told_ends
    taking: list[asyncio.Future[pb.TakeInboxResponse]] = []

    async def goes_back(items: list[object]) -> list[bool]:
        # Something stands in the queue again, before what was offered the waiting call's place.
        mesh.relay.admission.begin = begin  # type: ignore[method-assign]
        begun = await begin(items)  # type: ignore[arg-type]
        mesh.relay.inbox.put_back(Principal("agent", bob.id, mesh.workspace_id), [first.message_id])
        await mesh.relay.inbox.drained()
        mesh.relay.admission.told_ends = slowly  # type: ignore[assignment,method-assign]
        return begun

    async def slowly(items: list[object]) -> None:
        mesh.relay.admission.told_ends = told  # type: ignore[method-assign]
        taking.append(asyncio.ensure_future(bob.take()))
        for _ in range(20):
            await mesh.relay.journal.write(lambda book: None)
            await mesh.clock.settle()
        await told(items)  # type: ignore[arg-type]

    mesh.relay.admission.begin = goes_back  # type: ignore[assignment,method-assign]
    second = await ada.send(bob)
    await until(lambda: taking and (taking[0].done() or waiting.done()), "one of the pulls")
    await mesh.relay.admission.settled()
    found = [message.id for call in (waiting, *taking) if call.done() for message in call.result().messages]
    assert sorted(found) == sorted([first.message_id, second.message_id])
    assert (await mesh.usage(bob)).inbox == 0
    waiting.cancel()
