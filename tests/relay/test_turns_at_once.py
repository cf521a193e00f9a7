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
