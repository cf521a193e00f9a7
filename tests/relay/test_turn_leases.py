"""Turns under workers: claims, sessions, leases, attempts, limits, run slots, chains."""

from __future__ import annotations

import asyncio

import pytest
from hopline.relay.v1 import delegation_pb2
from hopline.relay.v1 import message_pb2 as pb
from hopline_quota.store.memory import MemoryStore
from hopline_relay.store import waiting
from hopline_relay.turns import ClaimedTurn, Held
from hopline_rpc.errors import HoplineError

from tests.support.relay_mesh import RelayMesh, Worker, attempt, refusal, until

# Seconds that something on its way is waited for.
_PATIENCE = 30.0


async def _turn(mesh: RelayMesh, turn_id: str) -> delegation_pb2.Turn:
    answer = await mesh.admin.turns.GetTurn(delegation_pb2.GetTurnRequest(turn_id=turn_id))
    turn: delegation_pb2.Turn = answer.turn
    return turn


async def test_a_session_is_reused_while_free_and_a_second_opens_while_one_runs(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(bob)
    first = (await ada.send(bob)).deliveries[0].session_id
    assert (await ada.send(bob)).deliveries[0].session_id == first
    running = await worker.next()
    assert running.session_title == "From ada"
    second = (await ada.send(bob)).deliveries[0].session_id
    assert second != first
    other = await worker.next()
    assert (other.session_id, other.session_title) == (second, "From ada (2)")
    # Both run, and the queued one waits for its session.
    assert not await worker.claim()
    third = (await ada.send(bob)).deliveries[0].session_id
    assert third not in (first, second)
    await worker.end(running, "")
    # The lowest-numbered free one is used again.
    assert (await ada.send(bob)).deliveries[0].session_id == first
    assert {turn.session_id for turn in await worker.claim()} == {first, third}


async def test_one_turn_runs_at_a_time_in_a_session_in_order(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(bob)
    sent = [await ada.send(bob, text=f"{n}") for n in range(3)]
    for number in range(3):
        turn = await worker.next()
        assert turn.messages[0].body == f"{number}"
        assert turn.continued is (number > 0)
        assert not await worker.claim()
        await worker.end(turn, "")
    states = [(await mesh.thread(each.thread_id))[0].deliveries[0].state for each in sent]
    assert states == [pb.DELIVERY_STATE_DONE] * 3


async def test_a_delivery_says_how_far_it_got(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(bob)
    asked = await ada.ask(bob)

    async def state() -> int:
        return int((await mesh.thread(asked.thread_id, ada))[0].deliveries[0].state)

    assert await state() == pb.DELIVERY_STATE_QUEUED
    claimed = await mesh.relay.turns.claim([worker.wish(1)])
    assert await state() == pb.DELIVERY_STATE_DELIVERED
    await worker.accept(*claimed)
    await mesh.clock.advance(1)
    await mesh.relay.turns.drained()
    assert await state() == pb.DELIVERY_STATE_TAKEN
    await worker.end(claimed[0], "yes")
    assert await state() == pb.DELIVERY_STATE_ANSWERED


async def test_a_worker_that_is_lost_three_times_fails_the_turn_and_tells_who_asked(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(bob)
    asked = await ada.ask(bob)
    for number in (1, 2, 3):
        turn = await worker.next()
        assert turn.attempt == number
        await mesh.relay.turns.tunnel_lost(mesh.workspace_id, bob.id, [turn.held], worker.epoch)
        await mesh.passes(29)
        assert not await worker.claim()
        await mesh.passes(2)
    assert not await worker.claim()
    checked = await ada.check(asked.turn_id)
    assert (checked.status, checked.error.code) == (pb.TURN_STATUS_FAILED, "unavailable")
    assert (await mesh.thread(asked.thread_id))[0].deliveries[0].state == pb.DELIVERY_STATE_DEAD


async def test_a_worker_that_comes_back_in_time_goes_on(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(bob)
    asked = await ada.ask(bob)
    turn = await worker.next()
    await mesh.relay.turns.tunnel_lost(mesh.workspace_id, bob.id, [turn.held], worker.epoch)
    await mesh.passes(29)
    again = await mesh.worker(bob)
    held = [turn.held, Held("trn_nothing", 1), Held(turn.turn_id, 2)]
    resumed = await mesh.relay.turns.resume(mesh.workspace_id, bob.id, held, again.epoch)
    assert resumed == [turn.held]
    await mesh.passes(29)
    # The stream that was left says nothing any more.
    assert not await worker.end(turn, "from the old stream")
    assert await again.end(turn, "from the new one")
    assert (await ada.check(asked.turn_id)).reply == "from the new one"


async def test_an_old_attempt_is_refused(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(bob)
    asked = await ada.ask(bob)
    old = await worker.next()
    await mesh.passes(31)
    new = await worker.next()
    assert new.attempt == 2
    assert not await worker.end(old, "stale")
    assert await worker.renew(old.held) == [old.held]
    assert await worker.renew(new.held) == []
    assert await worker.end(new, "fresh")
    assert not await worker.end(new, "twice")
    assert (await ada.check(asked.turn_id)).reply == "fresh"


async def test_leases_that_are_renewed_go_on_until_the_turns_own_limit(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await mesh.policy(turn_seconds=60)
    stopped: list[str] = []
    worker = await mesh.worker(bob)
    mesh.relay.turns.on_cancel = lambda items: stopped.extend(held.turn_id for _, _, held, _ in items)
    asked = await ada.ask(bob)
    turn = await worker.next()
    for _ in range(2):
        await mesh.passes(29)
        assert await worker.renew(turn.held) == []
    await mesh.passes(1)
    assert (await _turn(mesh, turn.turn_id)).status == pb.TURN_STATUS_RUNNING
    await mesh.passes(1.5)
    checked = await ada.check(asked.turn_id)
    assert (checked.status, checked.error.code) == (pb.TURN_STATUS_FAILED, "deadline_exceeded")
    assert stopped == [turn.turn_id]


async def test_what_nobody_takes_fails_when_it_has_waited_too_long(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await mesh.policy(queue_seconds=100)
    asked = await ada.ask(bob)
    await mesh.passes(99)
    assert (await ada.check(asked.turn_id)).status == pb.TURN_STATUS_QUEUED
    await mesh.passes(1.5)
    checked = await ada.check(asked.turn_id)
    assert (checked.status, checked.error.code) == (pb.TURN_STATUS_FAILED, "deadline_exceeded")


async def test_turns_given_back_cost_no_attempt(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await mesh.worker(bob)
    await ada.send(bob)
    for _ in range(5):
        turn = await worker.next()
        assert turn.attempt == 1
        await mesh.relay.turns.give_back(mesh.workspace_id, bob.id, [turn.held], worker.epoch)


async def test_claims_at_once_take_each_turn_once(mesh: RelayMesh) -> None:
    bob = await mesh.agent("bob")
    for number in range(4):
        await (await mesh.agent(f"peer{number}")).send(bob)
    workers = [await mesh.worker(bob) for _ in range(4)]
    claimed = await asyncio.gather(*(worker.claim(4) for worker in workers))
    ids = [turn.turn_id for turns in claimed for turn in turns]
    assert len(ids) == len(set(ids)) == 4


async def test_over_the_run_slots_turns_queue_and_go_on_when_one_is_free(mesh: RelayMesh) -> None:
    bob = await mesh.agent("bob")
    await mesh.policy(concurrent_runs=2)
    for number in range(3):
        await (await mesh.agent(f"peer{number}")).send(bob)
    worker = await mesh.worker(bob)
    woken: list[str] = []
    mesh.relay.turns.on_claimable = lambda agents: woken.extend(agent for _, agent in agents)
    running = await worker.claim()
    assert len(running) == 2
    assert not await worker.claim()
    await worker.end(running[0], "")
    assert woken
    assert len(await worker.claim()) == 1


async def test_the_end_of_a_turn_wakes_its_agent_if_more_is_queued_and_nobody_else(mesh: RelayMesh) -> None:
    ada, bob, cid = await mesh.agent("ada"), await mesh.agent("bob"), await mesh.agent("cid")
    bobs, _ = await mesh.worker(bob), await mesh.worker(cid)
    for _ in range(2):
        await ada.send(bob)
    woken: list[set[str]] = []
    mesh.relay.turns.on_claimable = lambda agents: woken.append({agent for _, agent in agents})
    await bobs.end(await bobs.next(), "")
    assert woken == [{bob.id}]
    await bobs.end(await bobs.next(), "")
    assert woken == [{bob.id}]


async def test_a_turn_without_a_slot_is_claimable_again_though_nothing_ended_here(mesh: RelayMesh) -> None:
    bob, cid = await mesh.agent("bob"), await mesh.agent("cid")
    bobs, cids = await mesh.worker(bob), await mesh.worker(cid)
    await mesh.policy(concurrent_runs=1)
    await cid.send(bob)
    await bobs.next()
    await bob.send(cid)
    assert not await cids.claim()
    woken: set[str] = set()
    mesh.relay.turns.on_claimable = lambda agents: woken.update(agent for _, agent in agents)
    await mesh.policy(concurrent_runs=2)
    await mesh.clock.advance(1)
    assert await until(lambda: woken) == {cid.id}


async def test_an_end_that_the_quota_service_did_not_hear_is_told_again(
    mesh: RelayMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, bob, cid = await mesh.agent("ada"), await mesh.agent("bob"), await mesh.agent("cid")
    await mesh.policy(concurrent_runs=1)
    bobs, cids = await mesh.worker(bob), await mesh.worker(cid)
    view = await ada.ask(bob)
    turn = await bobs.next()

    async def deaf(*_: object) -> None:
        raise HoplineError("unavailable", "gone for a moment")

    with monkeypatch.context() as patched:
        patched.setattr(MemoryStore, "end", deaf)
        assert await bobs.end(turn, "all the same")
    assert (await ada.check(view.turn_id)).reply == "all the same"
    await ada.send(cid)
    assert not await cids.claim()
    await mesh.clock.advance(1)
    await mesh.relay.admission.settled()
    assert len(await cids.claim()) == 1


async def test_a_turn_that_waits_gives_its_slot_back(mesh: RelayMesh) -> None:
    ada, bob, cid = await mesh.agent("ada"), await mesh.agent("bob"), await mesh.agent("cid")
    await mesh.policy(concurrent_runs=1)
    bobs, cids = await mesh.worker(bob), await mesh.worker(cid)
    await ada.send(bob)
    turn = await bobs.next()
    await ada.send(cid)
    assert not await cids.claim()
    asking = asyncio.create_task(bobs.ask(turn, cid, "in between?", wait=50))
    first = (await until_claimed(cids))[0]
    await cids.end(first, "")
    second = (await until_claimed(cids))[0]
    assert second.messages[0].body == "in between?"
    await cids.end(second, "yes")
    assert (await asking).reply == "yes"
    await mesh.relay.admission.settled()
    # It has retaken its slot: nothing else starts.
    await ada.send(cid)
    assert not await cids.claim()
    await bobs.end(turn, "")
    assert len(await cids.claim()) == 1


async def until_claimed(worker: Worker) -> list[ClaimedTurn]:
    async with asyncio.timeout(_PATIENCE):
        while not (turns := await worker.claim(1)):
            pass
        return turns


async def test_a_circle_of_asks_ends_at_the_depth_rail_with_its_words(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    workers = {agent.id: await mesh.worker(agent) for agent in (ada, bob)}
    await ada.ask(bob)
    caller, target = bob, ada
    turns = [await workers[bob.id].next()]
    chain = [(ada.id, bob.id)]
    while True:
        worker = workers[caller.id]
        answer = await attempt(worker.ask(turns[-1], target, "and you?"))
        if isinstance(answer, HoplineError):
            assert answer.reason == "depth_exceeded"
            assert "too many agents in a row" in answer.message
            break
        turns.append(await workers[target.id].next())
        chain.append((caller.id, target.id))
        caller, target = target, caller
    assert [turn.depth for turn in turns] == [1, 2, 3, 4]
    assert len({turn.root_id for turn in turns}) == 1
    last = await _turn(mesh, turns[-1].turn_id)
    assert [party.name for party in last.chain] == ["ada", "bob", "ada", "bob", "ada"]
    assert last.parent_turn_id == turns[-2].turn_id
    # Answers travel back all the way.
    for turn in reversed(turns):
        assert await workers[turn.agent_id].end(turn, "back")


async def test_a_policy_that_refuses_cycles_stops_the_circle_at_once(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await mesh.policy(refuse_cycles="on")
    worker = await mesh.worker(bob)
    await ada.ask(bob)
    turn = await worker.next()
    assert (await refusal(worker.ask(turn, ada))).reason == "cycle_refused"


async def test_a_root_starts_only_so_many_turns(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await mesh.policy(root_turns=3, pair_budget="0")
    await ada.send(bob)
    worker = await mesh.worker(bob)
    turn = await worker.next()
    await worker.send(turn, ada)
    await worker.send(turn, ada)
    assert (await refusal(worker.send(turn, ada))).reason == "root_exhausted"
    await mesh.reopen()
    assert (await refusal(worker.send(turn, ada))).reason == "root_exhausted"


@pytest.mark.parametrize("kind", ["unknown", "ended", "foreign"])
async def test_a_call_from_a_turn_that_is_not_running_is_refused(mesh: RelayMesh, kind: str) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker, adas = await mesh.worker(bob), await mesh.worker(ada)
    await ada.send(bob)
    turn = await worker.next()
    if kind == "foreign":
        assert (await refusal(adas.send(turn, bob))).reason == "not_found"
    elif kind == "ended":
        await worker.end(turn, "")
        assert (await refusal(worker.send(turn, ada))).reason == "failed_precondition"
    else:
        handlers, principal = mesh.relay.handlers, await worker.principal()
        call = handlers.send(principal, pb.SendRequest(to=["ada"], text="x"), turn_id="trn_nothing")
        assert (await refusal(call)).reason == "not_found"


async def test_agents_that_wait_for_each_other_for_ever_are_parted(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    adas, bobs = await mesh.worker(ada), await mesh.worker(bob)
    await mesh.admin.send(ada)
    a = await adas.next()
    first = asyncio.create_task(adas.ask(a, bob, wait=50))
    b = (await until_claimed(bobs))[0]
    await mesh.clock.advance(1)  # the second ask is the younger one
    second = asyncio.create_task(bobs.ask(b, ada, wait=50))
    await until_waiting(mesh, 2)
    # What each takes at once was not known here when they asked.
    mesh.relay.turns.places_source = lambda workspace_id, agent_id: 1
    await mesh.relay.sweep.deadlocks()
    view = await second
    assert (view.status, view.error.code) == (pb.TURN_STATUS_CANCELED, "would_deadlock")
    assert not first.done()
    await bobs.end(b, "without you then")
    assert (await first).reply == "without you then"


async def test_an_ask_that_would_wait_for_ever_is_refused_at_once(mesh: RelayMesh) -> None:
    agents = [await mesh.agent(name) for name in ("ada", "bob", "cid")]
    workers = [await mesh.worker(agent) for agent in agents]
    mesh.relay.turns.places_source = lambda workspace_id, agent_id: 1
    await mesh.admin.send(agents[0])
    turns = [await workers[0].next()]
    asks = []
    for number in (0, 1):
        asks.append(asyncio.create_task(workers[number].ask(turns[number], agents[number + 1], wait=50)))
        turns += await until_claimed(workers[number + 1])
        await until_waiting(mesh, number + 1)
    for target in (0, 1):
        error = await refusal(workers[2].ask(turns[2], agents[target], wait=50))
        assert error.reason == "would_deadlock"
        assert error.details == {"agent": ("ada", "bob")[target]}
    # Not to wait is no deadlock, nor is to wait for one that has a place left.
    await workers[2].ask(turns[2], agents[0], wait=0)
    mesh.relay.turns.places_source = lambda workspace_id, agent_id: 2
    roomy = asyncio.create_task(workers[2].ask(turns[2], agents[1], wait=50))
    await until_waiting(mesh, 3)
    await workers[2].end(turns[2], "back")
    assert (await asks[1]).reply == "back"
    roomy.cancel()
    await workers[1].end(turns[1], "and back")
    assert (await asks[0]).reply == "and back"


async def test_a_wait_that_is_over_holds_nobody_back(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    adas, bobs = await mesh.worker(ada), await mesh.worker(bob)
    mesh.relay.turns.places_source = lambda workspace_id, agent_id: 1
    await mesh.admin.send(ada)
    a = await adas.next()
    first = asyncio.create_task(adas.ask(a, bob, wait=5))
    b = (await until_claimed(bobs))[0]
    await until_waiting(mesh, 1)
    assert (await refusal(bobs.ask(b, ada, wait=50))).reason == "would_deadlock"
    assert (await _over(mesh, first)).status == pb.TURN_STATUS_RUNNING
    second = asyncio.create_task(bobs.ask(b, ada, wait=1))
    await until_waiting(mesh, 1)
    assert (await _over(mesh, second)).status == pb.TURN_STATUS_QUEUED


async def _over(mesh: RelayMesh, asking: asyncio.Task[pb.TurnView]) -> pb.TurnView:
    """Let time pass until a call has waited long enough: its row is there a moment before it waits."""
    async with asyncio.timeout(_PATIENCE):
        while not asking.done():
            await mesh.clock.advance(1)
    return await asking


async def until_waiting(mesh: RelayMesh, count: int) -> None:
    async with asyncio.timeout(_PATIENCE):
        while len(await mesh.relay.journal.read(waiting.all_waits)) != count:
            pass
