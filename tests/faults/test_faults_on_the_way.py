"""The mesh, a worker or a client dies at each named point on the way of a delegation, and all is well after.

Nothing that was accepted is lost or doubled, every charge matches the record, every ask ends with its answer,
and no turn is tried more often than it may be.
"""

from __future__ import annotations

import asyncio
import sys
import uuid
from pathlib import Path
from typing import get_args

import pytest
from hopline_client import HoplineError
from hopline_rpc.faults import Point

from tests.faults.conftest import Faults
from tests.support.mesh_process import ROOT, Agent, MeshProcess, Process, Processes, Space, shout, until
from tests.support.record import charges_match_the_record, threads_have_no_gaps

POINTS = get_args(Point)
# Three attempts in all: one may be lost with the process that dies.
MOST_ATTEMPTS = 3
LEFT = "SELECT id FROM turns WHERE agent_id = ? AND ended_at IS NULL LIMIT 1"
WAITS = "SELECT w.turn_id FROM waits w JOIN turns t ON t.id = w.turn_id WHERE t.ended_at > 0 LIMIT 1"


def of(side: str) -> list[str]:
    return [point for point in POINTS if point.startswith(side)]


class Work:
    """Asks and messages that a client goes on trying until they are accepted, each with one request_id."""

    def __init__(self, space: Space, sender: Agent, name: str, count: int = 3) -> None:
        self._space = space
        self._sender = sender
        self.texts = [f"{name} {number}" for number in range(count)]
        self.sent: dict[str, str] = {}

    async def run(self) -> None:
        """Ask and send everything; returns when each ask has its answer."""
        await asyncio.gather(*(self._ask(text) for text in self.texts), *(self._send(t) for t in self.texts))

    async def _ask(self, text: str) -> None:
        request_id = str(uuid.uuid4())

        async def answered() -> bool:
            try:
                found = await self._space.client(self._sender).ask("worker", text, request_id=request_id)
            except HoplineError as error:
                if not error.retryable:
                    raise
                return False
            assert (found.status, found.text) in (("completed", text.upper()), (found.status, ""))
            return found.status == "completed"

        await until(answered, f"the answer to {text!r}")

    async def _send(self, text: str) -> None:
        request_id = str(uuid.uuid4())

        async def accepted() -> bool:
            try:
                sent = await self._space.client(self._sender).send("puller", text, request_id=request_id)
            except HoplineError as error:
                if not error.retryable:
                    raise
                return False
            assert self.sent.setdefault(text, sent.message_id) == sent.message_id
            return True

        await until(accepted, f"the acceptance of {text!r}")


async def all_is_well(mesh: MeshProcess, space: Space, agents: list[Agent], texts: list[str]) -> None:
    """Hold the record against what was asked and sent."""

    await until(lambda: mesh.rows(LEFT, agents[1].id) == [], "the end of every turn of the worker")
    await until(lambda: mesh.rows(WAITS) == [], "the end of every wait")
    rows = mesh.rows("SELECT kind, body FROM messages WHERE kind IN ('ask', 'message') ORDER BY kind, body")
    assert rows == sorted((kind, text) for kind in ("ask", "message") for text in texts)
    answers = mesh.rows("SELECT body FROM messages WHERE kind = 'answer' ORDER BY body")
    assert answers == sorted((text.upper(),) for text in texts)
    debts = mesh.rows("SELECT state, count(*) FROM debts GROUP BY state")
    assert debts == [("answered", len(texts))]
    assert mesh.rows("SELECT id FROM turns WHERE attempt > ?", MOST_ATTEMPTS) == []
    threads_have_no_gaps(mesh)
    for agent in agents:
        await charges_match_the_record(mesh, space, agent)
    usage = await space.usage(agents[1])
    assert usage.running == 0


async def test_the_mesh_may_die_at_any_point(started: Processes, faults: Faults) -> None:
    mesh = MeshProcess(started, env=faults.env)
    mesh.start()
    async with mesh.space() as space:
        agents = await space.agents("asker", "worker", "puller")
        await space.policy(pair_budget="0", sent_per_day=10_000, received_per_day=10_000, credits="0.3")
        await mesh.cli("credits", "deposit", "1000", "--workspace", space.name)
        # One place: the first turn starts as it is queued, the others are claimed from the queue.
        await space.work(agents[1], shout, max_turns=1)
        texts: list[str] = []
        for point in of("relay."):
            faults.die_at(point)
            work = Work(space, agents[0], point)
            texts += work.texts
            running = asyncio.create_task(work.run())
            await until(lambda: not mesh.up.is_running, f"the death at {point}")
            faults.no_more()
            await mesh.restart()
            await running
            await all_is_well(mesh, space, agents, texts)
    assert mesh.complaints() == []


@pytest.mark.parametrize("point", of("worker."))
async def test_a_worker_may_die_at_any_point(
    started: Processes, faults: Faults, tmp_path: Path, point: str
) -> None:
    mesh = MeshProcess(started)
    mesh.start()

    def worker() -> Process:
        words = (str(mesh.data), str(agents[1].token_file), str(tmp_path / "turns"))
        module = (sys.executable, "-m", "tests.support.worker_process", *words)
        return started.start("worker", *module, cwd=ROOT, env=faults.env)

    async with mesh.space() as space:
        agents = await space.agents("asker", "worker", "puller")
        (tmp_path / "turns").mkdir()
        (tmp_path / "turns" / "go").touch()
        first = worker()
        await space.attached(agents[1], first)
        faults.die_at(point)
        client = space.client(agents[0])
        asked = await client.ask("worker", "tea", wait_seconds=0)
        await until(lambda: not first.is_running, f"the death at {point}")
        faults.no_more()
        await space.attached(agents[1], worker())
        found = await client.wait(asked)
        assert found.status == "completed"
        assert found.text.startswith("tea, answered at attempt ")
        turn = await space.turn(asked.turn_id)
        assert turn.attempt in (1, 2)
        bodies = [message.body for message in await space.thread(asked.thread_id)]
        assert bodies == ["tea", found.text]
        threads_have_no_gaps(mesh)
        for agent in agents:
            await charges_match_the_record(mesh, space, agent)
    assert mesh.complaints() == []


@pytest.mark.parametrize("point", of("client."))
async def test_a_client_may_die_at_any_point(started: Processes, faults: Faults, point: str) -> None:
    mesh = MeshProcess(started)
    mesh.start()
    async with mesh.space() as space:
        agents = await space.agents("asker", "worker", "puller")
        await space.work(agents[1], shout)
        request_id = str(uuid.uuid4())
        program = (
            "import asyncio, pathlib, sys; from hopline_client import Mesh\n"
            "client = Mesh(pathlib.Path(sys.argv[1]), token_file=sys.argv[2])\n"
            "print(asyncio.run(client.ask('worker', 'tea', request_id=sys.argv[3])).text)"
        )
        words = (sys.executable, "-c", program, str(mesh.data), str(agents[0].token_file), request_id)
        faults.die_at(point)
        first = started.start("client", *words, env=faults.env)
        assert await first.ended() < 0, first.said
        faults.no_more()
        second = started.start("client", *words, env=faults.env)
        assert await second.ended() == 0, second.said
        assert second.said == "TEA\n"
        rows = mesh.rows("SELECT kind, body FROM messages ORDER BY ordinal")
        assert rows == [("ask", "tea"), ("answer", "TEA")]
        threads_have_no_gaps(mesh)
        for agent in agents:
            await charges_match_the_record(mesh, space, agent)
    assert mesh.complaints() == []
