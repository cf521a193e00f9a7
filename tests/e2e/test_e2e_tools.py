"""Calls of tools whose worker, or whose mesh, is killed: each comes to a clear end, once."""

from __future__ import annotations

import asyncio
import sys
import uuid
from pathlib import Path

from tests.support.mesh_process import ROOT, Agent, Process, Space, until
from tests.support.record import charges_match_the_record


def worker(space: Space, agent: Agent, folder: Path) -> Process:
    """Begin to run a worker as a process, with the tool `hold`."""
    folder.mkdir()
    words = (str(space.mesh.data), str(agent.token_file), str(folder))
    module = (sys.executable, "-m", "tests.support.worker_process")
    return space.mesh.processes.start("worker", *module, *words, cwd=ROOT)


def begun(folder: Path) -> list[str]:
    """Return the turns of the calls that have begun in a worker."""
    return [each.name.removesuffix(".tool") for each in folder.glob("*.tool")]


async def test_the_call_of_a_killed_worker_fails_and_is_not_made_again(space: Space, tmp_path: Path) -> None:
    ada, bob = await space.agents("ada", "bob")
    await space.policy(concurrent_runs=1)
    first, second = tmp_path / "first", tmp_path / "second"
    killed = worker(space, bob, first)
    await space.attached(bob, killed)
    client = space.client(ada)
    under_way = asyncio.create_task(client.call_tool("bob", "hold", {"text": "tea"}))
    await until(lambda: begun(first), "the call")
    killed.kill()
    found = await under_way
    assert (found.status, found.code, found.turn_id) == ("failed", "unavailable", begun(first)[0])
    assert "not run again" in found.error
    await space.attached(bob, worker(space, bob, second))
    (second / "go").touch()
    # The one run slot is back, and nothing but the next call comes to the worker.
    again = await client.call_tool("bob", "hold", {"text": "tea"})
    assert (again.value, begun(second)) == ("TEA", [again.turn_id])
    assert [turn.attempt for turn in await space.turns()] == [1, 1]
    assert (await space.usage(ada)).sent_today == 2


async def test_a_call_whose_mesh_is_killed_comes_to_one_end_and_is_charged_once(
    own_space: Space, tmp_path: Path
) -> None:
    space, mesh = own_space, own_space.mesh
    ada, bob = await space.agents("ada", "bob")
    await space.policy(concurrent_runs=1)
    folder = tmp_path / "worker"
    held = worker(space, bob, folder)
    await space.attached(bob, held)
    client, key = space.client(ada), str(uuid.uuid4())
    under_way = asyncio.create_task(
        client.call_tool("bob", "hold", {"text": "tea"}, timeout_seconds=40, request_id=key)
    )
    await until(lambda: begun(folder), "the call")
    mesh.kill()
    await mesh.restart()
    # However long it took to come back: whoever asks again hears of the one end there was.
    await asyncio.gather(under_way, return_exceptions=True)
    found = await client.call_tool("bob", "hold", {"text": "tea"}, request_id=key)
    assert (found.status, found.code, found.turn_id) == ("failed", "unavailable", begun(folder)[0])
    assert "may have had effects" in found.error

    async def is_back() -> bool:
        return any(each.available for each in await client.list_tools("bob"))

    await until(is_back, "the worker")
    (folder / "go").touch()
    other = await client.call_tool("bob", "hold", {"text": "milk"})
    assert other.value == "MILK"
    assert sorted(begun(folder)) == sorted([found.turn_id, other.turn_id])
    assert (await space.usage(ada)).sent_today == 2
    for agent in (ada, bob):
        await charges_match_the_record(mesh, space, agent)
