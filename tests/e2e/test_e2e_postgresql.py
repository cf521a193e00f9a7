"""The mesh as four processes on one PostgreSQL, which is killed as well."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.mesh_process import HOPLINE, Held, Processes, Space, shout
from tests.support.postgres_server import Server
from tests.support.served_mesh import SERVICES, ServedMesh


@pytest.fixture
def server() -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="hopline-postgres-"))
    # What was answered is there again after a crash.
    made = Server(folder, "synchronous_commit=on")
    try:
        made.make()
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture
def served(started: Processes, server: Server) -> ServedMesh:
    mesh = ServedMesh(started, env={"HOPLINE_DATABASE_URL": server.url()})
    mesh.start()
    return mesh


@pytest.fixture
async def space(served: ServedMesh) -> AsyncIterator[Space]:
    async with served.space() as found:
        yield found


async def test_an_ask_goes_through_and_all_is_there_after_every_service_was_killed(
    served: ServedMesh, space: Space, server: Server
) -> None:
    asker, worker = await space.agents("asker", "worker")
    held = Held()
    await space.work(worker, held)
    client = space.client(asker)
    for count, name in enumerate(SERVICES, 1):
        asked = asyncio.create_task(client.ask("worker", f"question {count}"))
        await held.begun(count)
        served.running[name].kill()
        await asyncio.to_thread(served.serve, name)
        await asyncio.to_thread(served.wait_until_ready)
        held.go_on.set()
        answer = await asked
        assert answer.text.startswith(f"question {count}, answered")
        held.go_on.clear()
    assert not list(served.data.glob("re*.db*"))
    assert not list(served.data.glob("quota.db*"))
    assert served.complaints() == []
    said = "".join(process.said for process in served.running.values())
    assert server.password not in said


async def test_an_ask_that_runs_while_the_server_dies_is_answered_once_it_is_back(
    served: ServedMesh, space: Space, server: Server
) -> None:
    asker, worker = await space.agents("asker", "worker")
    held = Held()
    await space.work(worker, held)
    client = space.client(asker)
    asked = asyncio.create_task(client.ask("worker", "question 1"))
    await held.begun(1)
    await asyncio.to_thread(server.stop, signal.SIGKILL)
    await asyncio.to_thread(server.start)
    held.go_on.set()
    answer = await asked
    assert answer.text.startswith("question 1, answered")
    await asyncio.to_thread(served.wait_until_ready)
    for process in served.running.values():
        assert process.is_running
        assert "Traceback" not in process.said


async def test_a_second_quota_on_the_same_database_is_refused(
    served: ServedMesh, space: Space, server: Server
) -> None:
    env = {
        "HOPLINE_REGISTRY": served.endpoints["registry"],
        "HOPLINE_SERVICE_TOKEN_FILE": str(served.token_of("quota")),
        "HOPLINE_DATABASE_URL": server.url(),
    }
    words = ("serve", "quota", "--data", str(served.processes.folder / "second"), "--bind", "127.0.0.1:0")
    second = served.processes.start("second", HOPLINE, *words, env=env)
    assert await second.ended() == 1
    assert "another quota runs on this database" in second.said
    asker, worker = await space.agents("asker", "worker")
    await space.work(worker, shout)
    assert (await space.client(asker).ask("worker", "still there?")).text == "STILL THERE?"
