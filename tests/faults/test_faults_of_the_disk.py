"""A record that is locked, a disk that takes nothing more, a damaged file: said in one line, and survived."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import sqlite3
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest
from hopline_client import HoplineError

from tests.support.mesh_process import Agent, MeshProcess, Processes, Space, shout, until
from tests.support.record import charges_match_the_record, threads_have_no_gaps

# What a caller is told while the record takes nothing: try again.
PASSING = {"unavailable", "deadline_exceeded"}


@pytest.fixture
def mesh(started: Processes) -> Iterator[MeshProcess]:
    mesh = MeshProcess(started)
    mesh.start()
    yield mesh
    # What says that the store is locked or its disk fails is what its operator has to read.
    assert [line for line in mesh.complaints() if "the store" not in line] == []


@pytest.fixture
async def space(mesh: MeshProcess) -> AsyncIterator[Space]:
    async with mesh.space() as space:
        yield space


class Load:
    """Clients that go on sending and asking, whatever they are told."""

    def __init__(self, space: Space, agents: list[Agent]) -> None:
        self._client = space.client(agents[0])
        self._stop = asyncio.Event()
        self.accepted: dict[str, str] = {}
        self.unknown: dict[str, str] = {}
        self.refused: list[str] = []
        self.answers: dict[str, str] = {}

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep it up, and let what is under way end."""
        clients = [asyncio.create_task(self._go_on(number)) for number in range(4)]
        try:
            yield
        finally:
            self._stop.set()
            await asyncio.gather(*clients)

    async def more(self, count: int) -> None:
        """Wait until so many more are accepted."""
        wanted = len(self.accepted) + count
        await until(lambda: len(self.accepted) >= wanted, f"{count} more that are accepted")

    async def _go_on(self, client: int) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            await self.attempt(f"{client}-{number} {'x' * 1000}", str(uuid.uuid4()), asks=number % 2 == 0)

    async def attempt(self, text: str, request_id: str, *, asks: bool) -> None:
        """Send or ask once."""
        try:
            if asks:
                asked = await self._client.ask("worker", text, wait_seconds=5, request_id=request_id)
                self.accepted[text] = asked.message_id
                self.answers[asked.turn_id] = text.upper()
            else:
                sent = await self._client.send("puller", text, request_id=request_id)
                self.accepted[text] = sent.message_id
            self.unknown.pop(text, None)
        except HoplineError as error:
            self.refused.append(error.reason)
            self.unknown[text] = request_id
            await asyncio.sleep(0.05)


async def prepared(space: Space) -> tuple[list[Agent], Load]:
    agents = await space.agents("asker", "worker", "puller")
    await space.policy(pair_budget="0", sent_per_day=100_000, received_per_day=100_000, inbox_backlog=100_000)
    await space.work(agents[1], shout)
    return agents, Load(space, agents)


async def all_is_well(mesh: MeshProcess, space: Space, agents: list[Agent], load: Load) -> None:
    """Whoever was not told tries again; then the record is what was accepted, each ask with its answer."""
    for text, request_id in list(load.unknown.items()):
        await load.attempt(text, request_id, asks=int(text.split()[0].partition("-")[2]) % 2 == 0)
    assert load.unknown == {}
    rows = mesh.rows("SELECT body, id FROM messages WHERE kind IN ('ask', 'message')")
    assert sorted(rows) == sorted(load.accepted.items())
    client = space.client(agents[0])
    for turn_id, answer in load.answers.items():
        found = await client.check(turn_id=turn_id, wait_seconds=20)
        assert (found.status, found.text) == ("completed", answer)
    threads_have_no_gaps(mesh)
    for agent in agents:
        await charges_match_the_record(mesh, space, agent)
    assert (await space.usage(agents[1])).running == 0


async def test_a_record_that_is_locked_holds_callers_up_and_loses_nothing(
    mesh: MeshProcess, space: Space
) -> None:
    agents, load = await prepared(space)
    async with load.running():
        await load.more(20)
        with contextlib.closing(sqlite3.connect(mesh.data / "relay.db", isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            await until(lambda: load.refused, "a caller that is told")
            other.execute("ROLLBACK")
        await load.more(20)
    assert set(load.refused) <= PASSING
    assert "the store is locked by another process" in mesh.up.said
    await all_is_well(mesh, space, agents, load)


async def test_a_disk_that_takes_nothing_more_is_said_and_service_comes_back_with_room(
    mesh: MeshProcess, space: Space
) -> None:
    agents, load = await prepared(space)
    async with load.running():
        await load.more(20)
        largest = max(file.stat().st_size for file in mesh.data.iterdir())
        before = resource.prlimit(mesh.up.pid, resource.RLIMIT_FSIZE, (largest, resource.RLIM_INFINITY))
        await until(lambda: load.refused, "a caller that is told")
        resource.prlimit(mesh.up.pid, resource.RLIMIT_FSIZE, before)
        await load.more(20)
    assert set(load.refused) <= PASSING
    await all_is_well(mesh, space, agents, load)


@pytest.mark.parametrize("name", ["relay.db", "registry.db"])
async def test_a_damaged_file_is_one_line_at_the_start(started: Processes, name: str) -> None:
    mesh = MeshProcess(started)
    mesh.start()
    mesh.up.terminate()
    assert await mesh.up.ended() == 0
    with (mesh.data / name).open("r+b") as file:
        file.write(b"\0" * 100)
    mesh.launch()
    assert await mesh.up.ended() == 1
    lines = [line for line in mesh.up.said.splitlines() if '"level": "info"' not in line]
    assert len(lines) == 1, mesh.up.said
    assert lines[0].startswith("error: ")
    assert name in lines[0]
