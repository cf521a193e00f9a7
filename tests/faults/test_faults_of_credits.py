"""What was paid in is there once, wherever the mesh dies."""

from __future__ import annotations

import asyncio
import uuid

from tests.faults.conftest import Faults
from tests.support.mesh_process import MeshProcess, Processes, until


async def test_a_deposit_that_was_cut_off_is_there_once(started: Processes, faults: Faults) -> None:
    mesh = MeshProcess(started, env=faults.env)
    mesh.start()
    words = ("credits", "deposit", "12.5", "--request-id", str(uuid.uuid4()), "--json")
    faults.die_at("quota.deposited")
    cut_off = await asyncio.to_thread(mesh.hopline, *words)
    assert cut_off.returncode == 1
    await until(lambda: not mesh.up.is_running, "the death after the deposit")
    faults.no_more()
    await mesh.restart()
    assert (await mesh.cli("credits", "show"))["balance"] == "12.5"
    assert (await mesh.cli(*words[:-1]))["amount"] == "12.5"
    assert (await mesh.cli("credits", "show"))["balance"] == "12.5"
