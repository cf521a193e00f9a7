"""Where calls of tools run: run slots, places at workers, and how deep they stand."""

from __future__ import annotations

import asyncio
import json
from functools import partial

from hopline.relay.v1 import message_pb2 as msg
from hopline.relay.v1.tool_pb2 import CallToolRequest, ListServerToolsRequest
from hopline.runtime.v1 import tunnel_pb2 as pb
from hopline_relay.tool_queue import MAX_WAITING
from hopline_relay.tool_runs import MAX_CALLS

from tests.support.fake_turns import ended
from tests.support.relay_mesh import RelayMesh, refusal, until
from tests.support.tool_worker import ToolWorker, call_tool, calling, state, turns_of, worker_of


def _waiting(mesh: RelayMesh, count: int) -> bool:
    """Tell whether so many calls wait in line."""
    return sum(len(line) for line in mesh.relay._tool_runs.queue._lines.values()) == count


async def test_calls_run_beside_the_turns_of_the_agent(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await worker_of(bob, "look", max_turns=1)
    asked = asyncio.create_task(ada.ask(bob, wait=50))
    turn = await worker.start()
    under_way = [calling(ada, bob, arguments={"n": number}) for number in range(3)]
    calls = [await worker.call() for _ in under_way]
    for call in reversed(calls):
        await worker.answer(call, json.loads(call.arguments_json)["n"])
    assert [(await each).result_json for each in under_way] == ["0", "1", "2"]
    await worker.say(ended(turn, answer="at last"))
    assert (await asked).reply == "at last"


async def test_a_worker_takes_32_calls_at_once_and_the_next_when_one_has_ended(mesh: RelayMesh) -> None:
    await mesh.policy(concurrent_runs=100, pair_budget="0")
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await worker_of(bob, "look", max_turns=1)
    under_way = [calling(ada, bob, arguments={"n": number}) for number in range(MAX_CALLS + 2)]
    calls = [await worker.call() for _ in range(MAX_CALLS)]
    await worker.beat()
    assert not any(item.HasField("tool_call") for item in worker._read)
    for _ in range(2):
        await worker.answer(calls.pop(0))
        calls.append(await worker.call())
    for call in calls:
        await worker.answer(call)
    for each in under_way:
        assert (await each).result_json == '"ok"'
    assert (await mesh.usage(ada)).sent_today == MAX_CALLS + 2


async def test_calls_are_spread_over_the_workers_that_offer_the_tool(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    workers = [await worker_of(bob, *tools) for tools in (["look"], ["look", "walk"], ["walk"])]
    under_way = [calling(ada, bob) for _ in range(4)]
    for worker in workers[:2]:
        for _ in range(2):
            await worker.answer(await worker.call())
    await asyncio.gather(*under_way)
    await workers[2].beat()
    assert workers[2]._read == []


async def test_a_call_waits_for_a_run_slot_and_nothing_of_it_is_written_meanwhile(mesh: RelayMesh) -> None:
    await mesh.policy(concurrent_runs=1)
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await worker_of(bob, "look")
    await ada.send(bob)
    turn = await worker.start()
    under_way = calling(ada, bob)
    queue = mesh.relay._tool_runs.queue
    await until(lambda: queue._lines, "the line")
    assert [each.cause for each in await turns_of(mesh, bob)] == ["message"]
    assert (await mesh.usage(ada)).sent_today == 1
    await worker.say(ended(turn))
    await worker.answer(await worker.call(), 1)
    assert (await under_way).result_json == "1"
    assert not queue._lines


async def test_a_call_that_never_got_a_run_slot_says_so_and_costs_nothing(mesh: RelayMesh) -> None:
    await mesh.policy(concurrent_runs=1)
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await worker_of(bob, "look")
    await ada.send(bob)
    await worker.start()
    under_way = calling(ada, bob, timeout_seconds=3)
    await until(lambda: mesh.relay._tool_runs.queue._lines, "the line")
    await mesh.clock.advance(3.1)
    error = await refusal(under_way)
    assert (error.reason, "run slot" in error.message, "turn_id" in error.details) == (
        "deadline_exceeded",
        True,
        False,
    )
    assert (await mesh.usage(ada)).sent_today == 1


async def test_calls_get_their_run_slots_in_the_order_they_came(mesh: RelayMesh) -> None:
    await mesh.policy(concurrent_runs=1, pair_budget="0")
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await worker_of(bob, "look")
    under_way = []
    for number in range(12):
        under_way.append(calling(ada, bob, arguments={"n": number}))
        await until(partial(_waiting, mesh, number), "the line")
    order = []
    for _ in under_way:
        call = await worker.call()
        order.append(json.loads(call.arguments_json)["n"])
        await worker.answer(call)
    await asyncio.gather(*under_way)
    assert order == sorted(order)


async def test_only_so_many_calls_wait_for_one_agent(mesh: RelayMesh) -> None:
    await mesh.policy(concurrent_runs=1, pair_budget="0", sent_per_day=1000)
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await worker_of(bob, "look")
    under_way = [calling(ada, bob) for _ in range(MAX_WAITING + 1)]
    await until(partial(_waiting, mesh, MAX_WAITING), "the line")
    assert (await refusal(call_tool(ada, bob))).reason == "inbox_full"
    for each in under_way:
        each.cancel()
    await asyncio.gather(*under_way, return_exceptions=True)
    await worker.beat()
    assert not mesh.relay._tool_runs.queue._lines


async def test_a_turn_that_waits_for_a_call_gives_it_its_run_slot(mesh: RelayMesh) -> None:
    await mesh.policy(concurrent_runs=1)
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    own, worker = await worker_of(ada), await worker_of(bob, "look")
    await mesh.admin.send(ada)
    turn = await own.start()
    await own.calling(turn.turn_id, call_tool=CallToolRequest(agent="bob", name="look"))
    await worker.answer(await worker.call(), 1)
    result = (await own.next("call_result")).call_result
    assert result.call_tool.result_json == "1"
    await own.say(ended(turn))
    await own.next("ended_ack")
    # Both slots are back: another turn runs.
    await mesh.admin.send(ada)
    await own.start()


async def test_a_call_goes_to_the_worker_that_comes_while_it_waits(mesh: RelayMesh) -> None:
    await mesh.policy(concurrent_runs=100, pair_budget="0")
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await worker_of(bob, "look")
    under_way = [calling(ada, bob) for _ in range(MAX_CALLS + 1)]
    for _ in range(MAX_CALLS):
        await worker.call()
    other = await worker_of(bob, "look")
    await other.answer(await other.call(), "other")
    done, _ = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
    assert [each.result().result_json for each in done] == ['"other"']
    for each in under_way:
        each.cancel()


async def test_a_call_that_waits_hears_when_the_last_worker_leaves(mesh: RelayMesh) -> None:
    await mesh.policy(concurrent_runs=100, pair_budget="0")
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    worker = await worker_of(bob, "look")
    under_way = [calling(ada, bob) for _ in range(MAX_CALLS + 3)]
    for _ in range(MAX_CALLS):
        await worker.call()
    await until(partial(_waiting, mesh, 3), "the line")
    worker.stream.cancel()
    answers = await asyncio.gather(*under_way, return_exceptions=True)
    away = [each for each in answers if isinstance(each, Exception)]
    assert len(away) == 3
    assert all("is away" in str(each) for each in away)


# --- depth ---------------------------------------------------------------------------------------


async def test_what_a_tool_starts_stands_one_deeper(mesh: RelayMesh) -> None:
    ada, bob, cid = [await mesh.agent(name) for name in ("ada", "bob", "cid")]
    worker = await worker_of(bob, "look")
    under_way = calling(ada, bob)
    call = await worker.call()
    result = await worker.from_within(call.turn_id, send=msg.SendRequest(to=["cid"], text="hi"))
    assert (call.depth, result.send.depth) == (1, 2)
    await worker.answer(call)
    await under_way
    turn = (await turns_of(mesh, cid))[0]
    assert (turn.depth, turn.parent_turn_id) == (2, call.turn_id)
    assert [party.name for party in turn.chain] == ["ada", "bob", "cid"]


async def test_tools_that_call_each_other_are_stopped_by_the_depth_rail(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    workers = {"bob": await worker_of(bob, "look"), "ada": await worker_of(ada, "look")}
    eve = await mesh.agent("eve")
    under_way = calling(eve, bob)
    chain: list[tuple[ToolWorker, pb.ToolCall]] = []
    here, there = "bob", "ada"
    while True:
        worker = workers[here]
        call = await worker.call()
        chain.append((worker, call))
        number = await worker.calling(call.turn_id, call_tool=CallToolRequest(agent=there, name="look"))
        if len(chain) == 4:
            break
        here, there = there, here
    result = (await chain[-1][0].next("call_result")).call_result
    assert (result.call_id, result.error.code) == (number, "depth_exceeded")
    assert "too many agents in a row" in result.error.message
    assert [call.depth for _, call in chain] == [1, 2, 3, 4]
    for worker, call in reversed(chain):
        await worker.answer(call)
    assert state((await under_way).turn) == "completed"


async def test_a_worker_lists_the_tools_of_its_peers_over_its_tunnel(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    await worker_of(bob, "look")
    own = await worker_of(ada)
    result = await own.from_within("", list_server_tools=ListServerToolsRequest(agent="bob"))
    assert [each.name for each in result.list_server_tools.tools] == ["look"]
    missed = await own.from_within("", list_server_tools=ListServerToolsRequest(agent="nobody"))
    assert missed.error.code == "not_found"


async def test_a_wait_that_goes_round_by_a_tool_is_refused_at_once(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    own, worker = await worker_of(ada, max_turns=1), await worker_of(bob, "look")
    await mesh.admin.send(ada)
    turn = await own.start()
    await own.calling(turn.turn_id, call_tool=CallToolRequest(agent="bob", name="look"))
    call = await worker.call()
    # ada has no place but the one whose turn waits for this call.
    result = await worker.from_within(
        call.turn_id, ask=msg.AskRequest(agent="ada", text="?", wait_seconds=50)
    )
    assert result.error.code == "would_deadlock"
    await worker.answer(call)
    assert (await own.next("call_result")).call_result.call_tool.result_json == '"ok"'


async def test_a_call_takes_no_place_that_a_turn_needs(mesh: RelayMesh) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    own, worker = await worker_of(ada, "look", max_turns=1), await worker_of(bob, max_turns=1)
    # A call of ada's tool asks bob, whose turn asks ada: she has a place for that.
    under_way = calling(await mesh.agent("eve"), ada)
    call = await own.call()
    await own.calling(call.turn_id, ask=msg.AskRequest(agent="bob", text="?", wait_seconds=50))
    inner = await worker.start()
    number = await worker.calling(inner.turn_id, ask=msg.AskRequest(agent="ada", text="!", wait_seconds=50))
    deep = await own.start()
    await mesh.relay.sweep.deadlocks()
    await own.say(ended(deep, answer="yes"))
    result = (await worker.next("call_result")).call_result
    assert (result.call_id, result.ask.turn.reply) == (number, "yes")
    await worker.say(ended(inner, answer="so be it"))
    assert (await own.next("call_result")).call_result.ask.turn.reply == "so be it"
    await own.answer(call)
    assert state((await under_way).turn) == "completed"
