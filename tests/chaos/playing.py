"""Rounds of faults under load: something befalls a part, callers hear what they hear, all comes to rest."""

from __future__ import annotations

import asyncio
import itertools
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psycopg
from hopline.registry.v1 import agent_pb2
from hopline_client import Mesh, Turn

from tests.chaos.ledger import Ledger
from tests.chaos.mesh import DATABASE, PARTS, WORKER, ChaosMesh
from tests.support.mesh_process import Agent, Space, processes, until

_CALLERS = 4
# Before anything befalls them; then they go on until it is over.
_CALLS = 3
_PROXIED = frozenset({"registry", "quota", "relay", DATABASE})
# What nothing is to be left of, once a round has come to rest.
_OPEN = {
    # An answer that came too late for its call is in the inbox of the caller, who has no worker.
    "turns that have not ended": "SELECT count(*) FROM turns WHERE state IN ('queued', 'running')"
    " AND NOT (state = 'queued' AND cause = 'answer')",
    "debts": "SELECT count(*) FROM debts WHERE state = 'open'",
    "calls that wait": "SELECT count(*) FROM waits w JOIN instances i ON i.id = w.instance_id"
    " WHERE i.ended_at IS NULL",
    "run slots": "SELECT count(*) FROM turns WHERE slot AND ended_at IS NULL",
}


@dataclass
class Played:
    """What was done, and what came of it."""

    seed: int
    rounds: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    told: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


async def play(seed: int, rounds: int, tell: Callable[[str], None]) -> Played:
    """Play rounds on one mesh; ends at the first one in which something is wrong."""
    chance, played = random.Random(seed), Played(seed)
    ledger, numbers = Ledger(), itertools.count()
    folder = Path(tempfile.mkdtemp(prefix="hopline-chaos-"))
    with processes(folder) as started:
        mesh = ChaosMesh(started)
        try:
            await mesh.begin()
            async with _stage(mesh) as (space, clients, agent):
                for number in range(1, rounds + 1):
                    faults = _chosen(chance)
                    line = f"round {number}: " + ", ".join(f"{how} {part}" for part, how, _, _ in faults)
                    try:
                        async with asyncio.timeout(240):
                            await _round(mesh, space, agent, clients, ledger, numbers, faults)
                            played.wrong = ledger.look(mesh.server.url())
                    except* (AssertionError, TimeoutError) as failed:
                        played.wrong = [f"{type(error).__name__}: {error}" for error in failed.exceptions]
                    played.rounds = number
                    played.faults.update(f"{how} {part}" for part, how, _, _ in faults)
                    tell(line if not played.wrong else f"{line}: {played.wrong}")
                    if played.wrong:
                        break
        finally:
            await mesh.end()
    played.told = ledger.told
    if played.wrong:
        played.wrong.append(f"what the processes have said is in {folder}")
    else:
        shutil.rmtree(folder, ignore_errors=True)
    return played


Fault = tuple[str, str, float, float]
"""A part, what befalls it, after how long and for how long, in seconds."""


def _chosen(chance: random.Random) -> list[Fault]:
    faults = []
    for part in chance.sample(PARTS, chance.choice((1, 1, 1, 2))):
        how = chance.choice(("kill", "kill", "stop", *(("cut", "slow") if part in _PROXIED else ())))
        # Now and then longer than calls wait.
        seconds = chance.uniform(0.05, 1.5) if chance.random() < 0.9 else chance.uniform(4, 9)
        faults.append((part, how, chance.uniform(0, 0.4), seconds))
    return faults


@asynccontextmanager
async def _stage(mesh: ChaosMesh) -> AsyncIterator[tuple[Space, list[Mesh], Agent]]:
    async with mesh.space() as space:
        await space.policy(
            pair_budget="0", sent_per_day=1_000_000, received_per_day=1_000_000, messages_per_thread=1000
        )
        apart, within = await space.agents("apart", "within")
        callers = await space.agents(*(f"caller-{number}" for number in range(_CALLERS)))

        async def echo(turn: Turn) -> str:
            await asyncio.sleep(0)
            return turn.text

        async with Space(mesh.second, space.name) as there:
            # What one registry writes the other tells within a second.
            await until(partial(_known, there, len(callers) + 2), "the agents at the second registry")
            # Half of all calls go from one half of the mesh to the other.
            await there.work(within, echo)
            await mesh.attach(space, apart)
            sides = (space, there)
            yield space, [sides[each % 2].client(caller) for each, caller in enumerate(callers)], apart


async def _known(space: Space, count: int) -> bool:
    found = await space.admin.agents.ListAgents(agent_pb2.ListAgentsRequest())
    return len(found.agents) == count


async def _round(
    mesh: ChaosMesh,
    space: Space,
    agent: Agent,
    clients: list[Mesh],
    ledger: Ledger,
    numbers: itertools.count[int],
    faults: list[Fault],
) -> None:
    begun = asyncio.Event()
    under_way = len(faults)

    async def call(client: Mesh) -> None:
        for done in itertools.count():
            if done >= _CALLS and not under_way:
                return
            if done == _CALLS:
                begun.set()
            number = next(numbers)
            to = ("apart", "within")[number // 3 % 2]
            if number % 3:
                await ledger.ask(client, to, f"question {number}")
            else:
                await ledger.send(client, to, f"message {number}")

    async def befall(part: str, how: str, after: float, seconds: float) -> None:
        nonlocal under_way
        await begun.wait()
        await asyncio.sleep(after)
        await mesh.hit(part, how, seconds, space, agent)
        under_way -= 1

    async with asyncio.TaskGroup() as group:
        for client in clients:
            group.create_task(call(client))
        for fault in faults:
            group.create_task(befall(*fault))
    await mesh.healthy()
    try:
        await until(lambda: not _left(mesh.server.url()), "rest", 120)
    except AssertionError:
        raise AssertionError(f"left after two minutes: {_left(mesh.server.url())}") from None


def _left(url: str) -> dict[str, int]:
    """Return what is still open."""
    with psycopg.connect(url, options="-c search_path=hopline_relay") as conn:
        found = {name: int(conn.execute(query.encode()).fetchone()[0]) for name, query in _OPEN.items()}  # type: ignore[index]
    return {name: count for name, count in found.items() if count}


__all__ = ["WORKER", "Played", "play"]
