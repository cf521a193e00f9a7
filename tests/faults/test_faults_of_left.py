"""The mesh dies on the way of a wake of its own: a timer, or open todos, wake their session once."""

from __future__ import annotations

import contextlib
import sqlite3
import time

import pytest

from tests.faults.conftest import Faults
from tests.support.mesh_process import MeshProcess, Processes, until
from tests.support.record import charges_match_the_record, threads_have_no_gaps

POINTS = ["mesh.wake_admitted", "mesh.woken"]
# What has to be due, with the mesh stopped.
_DUE = {
    "timer": "UPDATE timers SET due_at = ?, fires_at = ?, set_at = created_at",
    "todo": "UPDATE sessions SET todos_due_at = ? WHERE todos AND ?",
}


@pytest.mark.parametrize("kind", ["timer", "todo"])
@pytest.mark.parametrize("point", POINTS)
async def test_a_session_is_woken_once_wherever_the_mesh_dies(
    started: Processes, faults: Faults, point: str, kind: str
) -> None:
    mesh = MeshProcess(started, env=faults.env)
    mesh.start()
    async with mesh.space() as space:
        agent = await space.agent("worker")
        client = space.client(agent)
        if kind == "timer":
            await client.notify_in(86_400, "look around")
        else:
            await client.add_todos("look around")
        mesh.up.terminate()
        await until(lambda: not mesh.up.is_running, "the end of the mesh")
        with contextlib.closing(sqlite3.connect(mesh.data / "relay.db")) as connection:
            connection.execute(_DUE[kind], (time.time() - 1, time.time() - 1))
            connection.commit()
        faults.die_at(point)
        mesh.launch()
        await until(lambda: not mesh.up.is_running, f"the death at {point}")
        faults.no_more()
        await mesh.restart()
        woken = f"SELECT count(*) FROM turns WHERE cause = '{kind}'"
        await until(lambda: mesh.rows(woken) == [(1,)], "the wake")
        action = "timer.fired" if kind == "timer" else "todos.woken"
        assert mesh.rows("SELECT count(*) FROM audit_events WHERE action = ?", action) == [(1,)]
        assert mesh.rows("SELECT count(*) FROM timers") == [(0,)]
        threads_have_no_gaps(mesh)
        await charges_match_the_record(mesh, space, agent)
    assert mesh.complaints() == []
