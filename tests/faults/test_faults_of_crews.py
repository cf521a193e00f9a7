"""The mesh dies in the middle of a crew, and several apply it at once: there is one crew, and it is whole."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.faults.conftest import Faults
from tests.support.mesh_process import ROOT, MeshProcess, Processes, until

EXAMPLE = ROOT / "deploy" / "examples" / "crew" / "crew.yaml"
POINTS = ["registry.crew_member", "registry.crew_applied", "registry.crew_committed"]
MEMBERS = "SELECT key, id FROM agents WHERE crew = 'atelier' AND deleted_at IS NULL ORDER BY key"


def registry(mesh: MeshProcess, query: str) -> list[tuple[Any, ...]]:
    with contextlib.closing(sqlite3.connect(mesh.data / "registry.db")) as connection:
        return connection.execute(query).fetchall()


def apply(mesh: MeshProcess, *words: str) -> Any:
    return mesh.hopline("crew", "apply", str(EXAMPLE), "--json", *words)


@pytest.mark.parametrize("point", POINTS)
async def test_a_crew_is_there_whole_or_not_at_all_wherever_the_mesh_dies(
    started: Processes, faults: Faults, point: str
) -> None:
    mesh = MeshProcess(started, env=faults.env)
    mesh.start()
    faults.die_at(point)
    broken = await asyncio.to_thread(apply, mesh)
    assert broken.returncode == 1
    assert json.loads(broken.stderr)["error"]["code"] == "unavailable"
    await until(lambda: not mesh.up.is_running, f"the death at {point}")
    faults.no_more()
    count = 7 if point == "registry.crew_committed" else 0
    assert len(registry(mesh, MEMBERS)) == count
    await mesh.restart()
    again = json.loads((await asyncio.to_thread(apply, mesh)).stdout)
    assert again["counts"] | {"create": 7 - count, "unchanged": count} == again["counts"]
    assert len(registry(mesh, MEMBERS)) == 7
    told = "SELECT count(*) FROM audit_events WHERE action = ?"
    await until(lambda: mesh.rows(told, "crew.applied") == [(1,)], "the audit log")
    assert mesh.rows(told, "agent.created") == [(7,)]
    assert mesh.complaints() == []


async def test_processes_that_apply_one_crew_at_once_come_to_one(started: Processes, tmp_path: Path) -> None:
    mesh = MeshProcess(started)
    mesh.start()
    found = await asyncio.gather(
        *(mesh.cli("crew", "apply", str(EXAMPLE), "--tokens-dir", str(tmp_path / "tokens")) for _ in range(4))
    )
    assert sorted(each["counts"]["create"] for each in found) == [0, 0, 0, 7]
    assert sorted(each["counts"]["unchanged"] for each in found) == [0, 7, 7, 7]
    assert len({tuple(member["id"] for member in each["members"]) for each in found}) == 1
    assert len(registry(mesh, MEMBERS)) == 7
    assert len(list((tmp_path / "tokens").iterdir())) == 7
    live = "SELECT count(*) FROM tokens WHERE kind = 'agent' AND revoked_at IS NULL"
    assert registry(mesh, live) == [(7,)]
    assert mesh.complaints() == []
