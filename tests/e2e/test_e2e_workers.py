"""Workers that die, vanish for a while, or never answer."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path

from tests.support.mesh_process import ROOT, Agent, Held, Process, Space, call, until


def worker(space: Space, agent: Agent, folder: Path) -> Process:
    """Begin to run a worker as a process."""
    folder.mkdir(exist_ok=True)
    module = (sys.executable, "-m", "tests.support.worker_process")
    words = (str(space.mesh.data), str(agent.token_file), str(folder))
    return space.mesh.processes.start("worker", *module, *words, cwd=ROOT)


async def test_the_turn_of_a_killed_worker_is_run_again_and_answered(space: Space, tmp_path: Path) -> None:
    ada, bob = await space.agents("ada", "bob")
    first = worker(space, bob, tmp_path / "first")
    client = space.client(ada)
    asked = await client.ask("bob", "tea", wait_seconds=0)
    begun = tmp_path / "first" / f"{asked.turn_id}.1"
    await until(begun.exists, "the turn")
    first.kill()
    answered = asyncio.create_task(client.wait(asked))
    second = tmp_path / "second"
    await space.attached(bob, worker(space, bob, second))
    (second / "go").touch()
    found = await answered
    assert found.text == "tea, answered at attempt 2"
    assert [each.name for each in second.iterdir() if each.name != "go"] == [f"{asked.turn_id}.2"]
    turn = await space.turn(asked.turn_id)
    assert turn.attempt == 2
    assert [message.body for message in await space.thread(asked.thread_id)] == ["tea", found.text]


class Line:
    """A relay's port with a line before it that a test can cut."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._ends: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None

    async def open(self, port: int = 0) -> str:
        """Listen, and return the address."""
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", port)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*self._target)
        self._ends += [writer, back]
        await asyncio.gather(pass_on(reader, back), pass_on(there, writer))

    def cut(self) -> None:
        """Break what is open and take nothing new."""
        if self._server is not None:
            self._server.close()
        for end in self._ends:
            end.transport.abort()
        self._ends.clear()


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
    writer.close()


async def test_a_worker_that_is_back_within_its_lease_goes_on_with_its_turn(space: Space) -> None:
    ada, bob = await space.agents("ada", "bob")
    line = Line(space.mesh.endpoints["relay"])
    address = await line.open()
    handler = Held()
    worker = await space.work(bob, handler, where=address)
    client = space.client(ada)
    asked = await client.ask("bob", "tea", wait_seconds=0)
    await handler.begun()
    line.cut()

    async def is_missed() -> bool:
        return await space.presence(bob) == "offline"

    await until(is_missed, "the break")
    await line.open(int(address.rpartition(":")[2]))
    await worker.ready()
    handler.go_on.set()
    found = await client.wait(asked)
    assert found.text == "tea, answered at attempt 1"
    assert len(handler.turns) == 1
    line.cut()


async def test_a_caller_of_a_worker_that_never_answers_gets_running_and_can_cancel(space: Space) -> None:
    ada, bob = await space.agents("ada", "bob")
    handler = Held()
    await space.work(bob, handler)
    async with space.mcp_over_http(ada) as client:
        asked = await call(client, "ask", agent="bob", text="tea", wait_seconds=1)
        assert asked["status"] == "running"
        assert (await call(client, "check", turn_id=asked["turn_id"], wait_seconds=0))["status"] == "running"
        assert (await call(client, "cancel", turn_id=asked["turn_id"]))["status"] == "canceled"
        found = await call(client, "check", turn_id=asked["turn_id"])
    assert (found["status"], found["error"]["code"]) == ("canceled", "canceled")
    await until(lambda: handler.cancelled, "the end of the handler")


async def test_an_ask_that_has_run_too_long_ends_and_its_handler_with_it(space: Space) -> None:
    await space.policy(turn_seconds=1)
    ada, bob = await space.agents("ada", "bob")
    handler = Held()
    await space.work(bob, handler)
    found = await space.client(ada).ask("bob", "tea")
    assert (found.status, found.code) == ("failed", "deadline_exceeded")
    await until(lambda: handler.cancelled, "the end of the handler")
