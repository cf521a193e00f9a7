"""What the memory store keeps does not grow with what has passed through it."""

from __future__ import annotations

import gc

import pytest
from hopline_quota.domain.values import Kind
from hopline_quota.store.memory import MemoryStore

from tests.quota.builders import DAY, LIMITS, WIDE, Desk, HandClock, admitted, refused

SHORT = WIDE._replace(pair_budget=100, pair_window_seconds=60, causality_window_seconds=60)


@pytest.fixture
async def memory(clock: HandClock) -> Desk:
    desk = Desk(MemoryStore(clock), clock)
    await desk.seed(1)
    return desk


def weight(desk: Desk) -> int:
    """Count the objects that hang off the store."""
    store = desk.store
    seen: set[int] = {id(type(store)), id(desk.clock)}
    pending: list[object] = [store]
    while pending:
        each = pending.pop()
        if id(each) in seen or isinstance(each, type):
            continue
        seen.add(id(each))
        pending.extend(gc.get_referents(each))
    return len(seen)


async def exchange(desk: Desk, number: int) -> None:
    """Have a fresh agent start something on another fresh one, under a fresh root, and work it off."""
    key = f"k{number}"
    decision = admitted(await desk.start(f"a{number}", f"b{number}", key=key, limits=SHORT))
    await desk.commit(key)
    await desk.run(f"{key}/b{number}", f"b{number}", decision.depth, decision.root_id, slots=100)
    await desk.end(f"{key}/b{number}")


async def test_nothing_is_kept_of_agents_pairs_and_roots_long_gone(memory: Desk) -> None:
    empty = weight(memory)
    for number in range(500):
        await exchange(memory, number)
    assert weight(memory) > empty + 2000
    for _ in range(4):
        memory.clock.advance(DAY)
        await memory.usage("somebody")
    memory.clock.advance(60)
    await memory.usage("somebody")
    assert weight(memory) < empty + 60


async def test_the_weight_of_a_steady_day_is_that_of_one_window(memory: Desk) -> None:
    weights = []
    for number in range(1200):
        memory.clock.advance(1)
        await exchange(memory, number % 100)
        if number % 300 == 299:
            weights.append(weight(memory))
    assert weights[3] - weights[1] < (weights[0] / 10)


async def test_thousands_of_ended_turns_of_one_root_weigh_as_much_as_one(memory: Desk) -> None:
    async def turns(prefix: str, number: int) -> int:
        for index in range(number):
            await memory.run(f"{prefix}{index}", "a", depth=1, root="R")
            await memory.end(f"{prefix}{index}")
        return weight(memory)

    few = await turns("few", 10)
    assert await turns("many", 3000) <= few + 10


async def test_many_workspaces_are_swept_one_after_another_within_minutes(memory: Desk) -> None:
    for number in range(50):
        admitted(await memory.start("a", "b", key=f"k{number}", limits=SHORT, workspace=f"ws{number}"))
        await memory.refund(f"k{number}")
    await memory.usage("a")
    light = weight(memory)
    for number in range(50):
        for index in range(20):
            key = f"k{number} {index}"
            admitted(
                await memory.start(
                    f"a{index}", "b", key=key, limits=SHORT, workspace=f"ws{number}", turns=False
                )
            )
            await memory.commit(key)
    heavy = weight(memory)
    for _ in range(200):
        memory.clock.advance(1)
        await memory.refund("unknown")
    assert weight(memory) - light < (heavy - light) / 2


async def test_a_root_that_rests_is_kept_for_a_day_and_then_starts_afresh(memory: Desk) -> None:
    limits = LIMITS._replace(root_turns=1)
    item = memory.item("b", "a", kind=Kind.ANSWER, root="R", key="k", limits=limits)
    admitted((await memory.admit(item))[0])
    await memory.commit("k")
    await memory.run("k/a", "a", root="R")
    await memory.end("k/a")
    memory.clock.advance(DAY)
    await memory.run("t", "a", root="R")
    refused(await memory.start("a", "b", limits=limits), "root_exhausted")
    await memory.end("t")
    for _ in range(4):
        memory.clock.advance(DAY / 2)
        await memory.refund("unknown")
    await memory.run("t", "a", root="R")
    admitted(await memory.start("a", "b", limits=limits))


async def test_resting_roots_are_bounded_and_the_oldest_go_first(memory: Desk) -> None:
    limits = WIDE._replace(root_turns=1)
    for number in range(10_002):
        root = f"R{number:05}"
        item = memory.item("b", "a", kind=Kind.ANSWER, root=root, key=root, limits=limits)
        await memory.admit(item)
        await memory.run(f"{root}/a", "mesh", root=root)
        await memory.end(f"{root}/a")
        await memory.commit(root)
        memory.clock.advance(1)
        if number % 700 == 699:
            await memory.usage("a")
    memory.clock.advance(700)
    await memory.refund("unknown")
    await memory.run("old", "x", root="R00000")
    admitted(await memory.start("x", "y", limits=limits))
    await memory.run("new", "z", root="R10001")
    refused(await memory.start("z", "y", limits=limits), "root_exhausted")


async def test_a_root_with_work_in_its_queue_is_never_forgotten(memory: Desk) -> None:
    limits = LIMITS._replace(root_turns=1)
    decision = admitted(await memory.start("a", "b", key="k", limits=limits))
    await memory.commit("k")
    for _ in range(10):
        memory.clock.advance(DAY)
        await memory.refund("unknown")
    await memory.run("k/b", "b", 1, decision.root_id)
    refused(await memory.start("b", "c", limits=limits), "root_exhausted")
