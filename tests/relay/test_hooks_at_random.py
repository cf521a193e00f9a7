"""Hooks that do anything, on everything at once: all ends, and charges match the record."""

from __future__ import annotations

import asyncio
import random
import uuid
from typing import Any

import pytest
from hopline.relay.v1 import message_pb2 as pb
from hopline_relay.plugins.calling import CallFailed
from hopline_relay.store.schema import debts, deliveries, messages, turns
from hopline_rpc.errors import HoplineError
from sqlalchemy import select

from tests.support.hook_rig import HookRig, never, passes, rewrite, veto
from tests.support.relay_mesh import Caller, RelayMesh, Worker, attempt

ROUNDS = 30


class Chance:
    """Hooks that pass, rewrite, veto, drop, fail and hang by chance, and what they have let through."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def decide(self, asked: Any) -> Any:
        roll = self.chance.random()
        if roll < 0.5:
            return passes()
        if roll < 0.65:
            return rewrite(f"{asked.text} (seen)")
        if roll < 0.8:
            return veto("by chance")
        if roll < 0.87:
            return rewrite("")
        if roll < 0.98:
            raise CallFailed("failed", "by chance", sent=True)
        return never(asked)


async def _work(mesh: RelayMesh, worker: Worker, chance: random.Random) -> None:
    await asyncio.sleep(0.002 * chance.randrange(5))
    for turn in await worker.claim():
        asked = turn.messages[0]
        if chance.random() < 0.3 and getattr(asked, "from").kind == "agent":
            request = pb.ReplyRequest(message_id=asked.id, text="a reply")
            principal = await worker.principal()
            await attempt(mesh.relay.handlers.reply(principal, request, turn_id=turn.turn_id))
        await worker.end(turn, chance.choice(["an answer", "", "another"]))


async def _round(
    mesh: RelayMesh, agents: list[Caller], workers: list[Worker], chance: random.Random
) -> list[Any]:
    calls: list[Any] = []
    for _ in range(4):
        who, to = chance.sample(agents, 2)
        request_id = str(uuid.UUID(int=chance.getrandbits(128), version=4))
        roll = chance.random()
        if roll < 0.4:
            calls.append(attempt(who.send(to, text="a message", request_id=request_id)))
        elif roll < 0.6:
            others = [each for each in agents if each is not who]
            calls.append(attempt(who.send(*others, text="to all", request_id=request_id)))
        else:
            calls.append(attempt(who.ask(to, "a question", request_id=request_id)))
    calls += [_work(mesh, worker, chance) for worker in workers]
    going = asyncio.gather(*calls)
    while not going.done():
        await mesh.clock.advance(0.5)
        await asyncio.sleep(0.001)
    for worker in workers:
        ending = asyncio.ensure_future(_work(mesh, worker, chance))
        while not ending.done():
            await mesh.clock.advance(0.5)
            await asyncio.sleep(0.001)
    return await going


@pytest.mark.parametrize("seed", range(2))
async def test_whatever_hooks_do_all_ends_and_charges_match_the_record(mesh: RelayMesh, seed: int) -> None:
    chance = random.Random(seed)
    rig = HookRig(mesh)
    await mesh.policy(
        max_depth=32, pair_budget="0", sent_per_day=10_000, received_per_day=10_000, refusals="0"
    )
    agents = [await mesh.agent(f"agent{number}") for number in range(4)]
    workers = [await mesh.worker(agent) for agent in agents]
    rig.add("abe", Chance(chance).decide)
    rig.add("zoe", Chance(chance).decide, closed=True, order=1)
    for _ in range(ROUNDS):
        for result in await _round(mesh, agents, workers, chance):
            assert not isinstance(result, HoplineError) or result.reason in ("depth_exceeded", "thread_full")
    rig.plugins.clear()
    mesh.relay.hooks.look([mesh.workspace_id])
    for _ in range(20):
        for worker in workers:
            for turn in await worker.claim():
                await worker.end(turn, "the end")
    await mesh.relay.journal.write(lambda book: None)

    def read(connection: Any) -> tuple[Any, Any, Any, Any]:
        return (
            connection.execute(select(debts)).all(),
            connection.execute(select(turns).where(turns.c.state.in_(["queued", "running"]))).all(),
            connection.execute(select(messages)).all(),
            connection.execute(select(deliveries)).all(),
        )

    owed, live, said, copies = await mesh.relay.journal.read(read)
    assert [row for row in owed if row.state == "open"] == []
    assert live == []
    # It has all happened.
    assert "withheld" in {row.error_code for row in owed}
    for outcome in ("rewrote", "vetoed", "dropped", "failed"):
        assert await mesh.events(f"hook.{outcome}")
    assert not mesh.relay.waits._waiters
    sender = {row.id: row.from_id for row in said if row.from_kind == "agent"}
    for agent in agents:
        usage = await mesh.usage(agent)
        assert usage.sent_today == sum(1 for who in sender.values() if who == agent.id)
        received = [row for row in copies if row.recipient_id == agent.id and row.message_id in sender]
        assert usage.received_today == sum(1 for row in received if row.state != "vetoed")
    withheld = {row.message_id for row in copies if row.state == "vetoed"}
    assert withheld <= sender.keys()
