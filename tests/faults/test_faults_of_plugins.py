"""The mesh dies while a plugin comes or goes: it is there whole, or gone with all that was its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.faults.conftest import Faults
from tests.support.mesh_process import MeshProcess, Processes, until

INSTALLING = ["registry.plugin_installing", "registry.plugin_installed"]
ENDING = ["registry.plugin_ending", "registry.plugin_ended", "plugin.sessions"]
AGENTS = "SELECT count(*) FROM agents WHERE plugin_id <> '' AND deleted_at IS NULL"
PLUGINS = "SELECT count(*) FROM plugins WHERE uninstalled_at IS NULL"
TOKENS = "SELECT count(*) FROM tokens WHERE kind = 'plugin' AND revoked_at IS NULL"
TOLD = "SELECT count(*) FROM audit_events WHERE action = ?"
SESSIONS = "SELECT count(*) FROM sessions WHERE agent_id = ?"


def registry(mesh: MeshProcess, query: str) -> Any:
    with contextlib.closing(sqlite3.connect(mesh.data / "registry.db")) as connection:
        return connection.execute(query).fetchone()[0]


def install(mesh: MeshProcess, folder: Path) -> Any:
    file = folder / "plugin.yaml"
    file.write_text("{key: omo, name: Oh My, version: '1', agents: [{key: a, name: A}, {key: b, name: B}]}")
    return mesh.hopline("plugin", "install", str(file), "--yes", "--json")


@pytest.mark.parametrize("where", INSTALLING)
async def test_a_plugin_is_there_whole_or_not_at_all_wherever_the_mesh_dies(
    started: Processes, faults: Faults, tmp_path: Path, where: str
) -> None:
    mesh = MeshProcess(started, env=faults.env)
    mesh.start()
    faults.die_at(where)
    broken = await asyncio.to_thread(install, mesh, tmp_path)
    assert json.loads(broken.stderr)["error"]["code"] == "unavailable"
    await until(lambda: not mesh.up.is_running, f"the death at {where}")
    faults.no_more()
    there = where == "registry.plugin_installed"
    assert (registry(mesh, PLUGINS), registry(mesh, AGENTS), registry(mesh, TOKENS)) == (
        (1, 2, 1) if there else (0, 0, 0)
    )
    await mesh.restart()
    again = json.loads((await asyncio.to_thread(install, mesh, tmp_path)).stdout)
    assert (again["state"], again["was_created"]) == ("active", not there)
    assert (registry(mesh, PLUGINS), registry(mesh, AGENTS)) == (1, 2)
    # What nobody has seen is made anew.
    assert (await mesh.cli("token", "create", "--plugin", "omo"))["token"].startswith("hpl_p_")
    await until(lambda: mesh.rows(TOLD, "plugin.installed") == [(1,)], "the audit log")
    assert mesh.complaints() == []


@pytest.mark.parametrize("where", ENDING)
async def test_a_plugin_goes_with_all_that_was_its_own_wherever_the_mesh_dies(
    started: Processes, faults: Faults, tmp_path: Path, where: str
) -> None:
    mesh = MeshProcess(started, env=faults.env)
    mesh.start()
    await asyncio.to_thread(install, mesh, tmp_path)
    agent = (await mesh.cli("agent", "show", "omo-a"))["id"]
    await mesh.cli("send", "omo-a", "hello")
    assert mesh.rows(SESSIONS, agent) == [(1,)]
    faults.die_at(where)
    await asyncio.to_thread(mesh.hopline, "plugin", "uninstall", "omo", "--json")
    await until(lambda: not mesh.up.is_running, f"the death at {where}")
    faults.no_more()
    await mesh.restart()
    ended = await asyncio.to_thread(mesh.hopline, "plugin", "uninstall", "omo", "--json")
    if where != "registry.plugin_ending":
        assert json.loads(ended.stderr)["error"]["code"] == "not_found"
    assert (registry(mesh, PLUGINS), registry(mesh, AGENTS), registry(mesh, TOKENS)) == (0, 0, 0)
    await until(lambda: mesh.rows(SESSIONS, agent) == [(0,)], "the end of its sessions")
    await until(lambda: mesh.rows(TOLD, "plugin.uninstalled") == [(1,)], "the audit log")
    assert mesh.rows(TOLD, "sessions.deleted") == [(1,)]
    assert mesh.complaints() == []
