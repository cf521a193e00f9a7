"""The mesh dies at each point on the way of a schedule's firing: its time becomes one turn, and no more."""

from __future__ import annotations

import contextlib
import sqlite3
import time

import pytest
from hopline.relay.v1 import schedule_pb2 as pb

from tests.faults.conftest import Faults
from tests.support.mesh_process import MeshProcess, Processes, until
from tests.support.record import charges_match_the_record, threads_have_no_gaps

POINTS = [
    "schedule.due",
    "relay.send",
    "relay.admitted",
    "relay.committed",
    "relay.settled",
    "schedule.fired",
]


def _make_due(mesh: MeshProcess) -> None:
    """Let a time of the schedule come; the mesh does not run."""
    with contextlib.closing(sqlite3.connect(mesh.data / "relay.db")) as connection:
        connection.execute("UPDATE schedules SET due_at = ?, set_at = ?", (time.time() - 1, time.time() - 60))
        connection.commit()


@pytest.mark.parametrize("point", POINTS)
async def test_a_time_becomes_one_turn_wherever_the_mesh_dies(
    started: Processes, faults: Faults, point: str
) -> None:
    mesh = MeshProcess(started, env=faults.env)
    mesh.start()
    async with mesh.space() as space:
        agent = await space.agent("worker")
        # Once a year, so that nothing fires but what the test lets come.
        add = pb.AddScheduleRequest(agent="worker", cron="0 0 1 1 *", text="look around")
        await space.admin.schedules.AddSchedule(add)
        mesh.up.terminate()
        await until(lambda: not mesh.up.is_running, "the end of the mesh")
        _make_due(mesh)
        faults.die_at(point)
        mesh.launch()
        await until(lambda: not mesh.up.is_running, f"the death at {point}")
        faults.no_more()
        await mesh.restart()
        fired = "SELECT count(*) FROM schedules WHERE fired > 0"
        await until(lambda: mesh.rows(fired) == [(1,)], "the firing")
        rows = mesh.rows("SELECT id, turn_id, fired, skipped FROM schedules")
        [(schedule, turn, times, skipped)] = rows
        assert (times, skipped) == (1, 0)
        assert mesh.rows("SELECT body, from_id FROM messages") == [("look around", schedule)]
        assert mesh.rows("SELECT id, depth FROM turns") == [(turn, 0)]
        assert mesh.rows("SELECT count(*) FROM audit_events WHERE action = 'schedule.fired'") == [(1,)]
        threads_have_no_gaps(mesh)
        await charges_match_the_record(mesh, space, agent)
    assert mesh.complaints() == []
