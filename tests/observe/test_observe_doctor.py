"""`hopline doctor` on real meshes: healthy, dead, and with a service that is gone."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.observe.scrapes import get
from tests.support.mesh_process import MeshProcess, Processes, until
from tests.support.served_mesh import ServedMesh


async def doctor(mesh: MeshProcess) -> tuple[int, dict[str, str]]:
    """Run it; returns its status and what is wrong, by check."""
    done = await asyncio.to_thread(mesh.hopline, "doctor", "--json", "--quiet")
    told = json.loads(done.stdout)
    problems: dict[str, str] = {}
    for each in told["findings"]:
        if each["grade"] == "problem":
            problems[each["check"]] = f"{problems.get(each['check'], '')} {each['text']}".strip()
    return done.returncode, problems


async def test_a_mesh_that_works_is_healthy_and_one_that_died_is_told_from_one_that_was_stopped(
    own_mesh: MeshProcess,
) -> None:
    assert await doctor(own_mesh) == (0, {})
    own_mesh.kill()
    status, wrong = await doctor(own_mesh)
    assert status == 1
    assert "endpoints.json says where a mesh listens, and none runs" in wrong["mesh"]
    await own_mesh.restart()
    assert await doctor(own_mesh) == (0, {})
    own_mesh.up.terminate()
    assert await own_mesh.up.ended() == 0
    status, wrong = await doctor(own_mesh)
    assert (status, wrong["mesh"]) == (1, f"no mesh runs on {own_mesh.data}")
    assert own_mesh.complaints() == []


async def test_a_mesh_of_services_of_which_one_is_gone_says_which_and_lives_on(started: Processes) -> None:
    mesh = ServedMesh(started)
    await asyncio.to_thread(mesh.start)

    async def well() -> bool:
        return await doctor(mesh) == (0, {})

    await until(well, "a mesh in which nothing is wrong")
    mesh.running["quota"].kill()

    async def noticed() -> Any:
        status, wrong = await doctor(mesh)
        return wrong if status == 1 and "quota" in wrong.get("delivery", "") else None

    wrong = await until(noticed, "that the quota service is missed")
    assert "quota" in wrong["mesh"]
    for name in ("relay", "gateway"):
        assert get(f"{mesh.endpoints[f'{name}.metrics']}/healthz")[0] == 200
    assert mesh.complaints() == []
