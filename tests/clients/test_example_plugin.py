"""The plugin among the examples keeps its crew whole, as it stands."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.mesh_process import BIN, ROOT, MeshProcess, Process, processes, until

ATLAS = str(ROOT / "deploy" / "examples" / "plugin" / "atlas.py")


class Desk:
    """A mesh, and the plugin beside it."""

    def __init__(self, mesh: MeshProcess) -> None:
        self.mesh = mesh
        self.folder = mesh.processes.folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.env = {
            "ATLAS_ENDPOINT": f"127.0.0.1:{port}",
            "HOPLINE_DATA": str(mesh.data),
            "HOPLINE_TOKEN_FILE": str(self.folder / "atlas.token"),
            "HOPLINE_PLUGIN_SECRET_FILE": str(self.folder / "atlas.secret"),
        }

    async def install(self) -> dict[str, Any]:
        printed = self.mesh.processes.run(str(BIN / "python"), ATLAS, "manifest", env=self.env)
        assert printed.returncode == 0, printed.stderr
        manifest = self.folder / "atlas.yaml"
        manifest.write_text(printed.stdout)
        kept = (self.env["HOPLINE_TOKEN_FILE"], self.env["HOPLINE_PLUGIN_SECRET_FILE"])
        files = ("--token-file", kept[0], "--secret-file", kept[1])
        found: dict[str, Any] = await self.mesh.cli("plugin", "install", str(manifest), "--yes", *files)
        return found

    def start(self) -> Process:
        return self.mesh.processes.start("atlas", str(BIN / "python"), ATLAS, env=self.env)

    async def crew(self) -> dict[str, dict[str, Any]]:
        listed = (await self.mesh.cli("agent", "list"))["agents"]
        return {each["key"]: each for each in listed if each["plugin_name"] == "Atlas"}

    async def whole(self) -> bool:
        crew = await self.crew()
        lead = crew.get("planner", {}).get("id")
        under = {key for key, each in crew.items() if each["parent_agent_id"] == lead}
        return under == {"librarian", "critic"} and all(each["instructions"] for each in crew.values())


@pytest.fixture
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with processes(tmp_path_factory.mktemp("home")) as started:
        mesh = MeshProcess(started)
        mesh.start()
        yield Desk(mesh)
        assert mesh.complaints() == []


async def test_it_makes_its_crew_and_heals_it_whenever_a_session_begins(desk: Desk) -> None:
    made = await desk.install()
    assert made["adds_agents"] == 3
    assert not await desk.whole()
    plugin = desk.start()
    await until(desk.whole, "the crew")
    librarian = (await desk.crew())["librarian"]
    await desk.mesh.cli("agent", "delete", librarian["slug"])
    await desk.mesh.cli("agent", "set", "atlas-critic", "--instructions", "Be nice.")
    assert not await desk.whole()
    await desk.mesh.cli("agent", "create", "anybody")
    await desk.mesh.cli("chat", "anybody", "hello", "--wait", "0")
    await until(desk.whole, "the crew once more")

    async def set_again() -> bool:
        return "refute" in (await desk.crew())["critic"]["instructions"]

    await until(set_again, "what the critic is to do")
    assert (await desk.crew())["librarian"]["slug"] == librarian["slug"]
    plugin.terminate()
    await plugin.ended()
    await desk.mesh.cli("plugin", "uninstall", "atlas")
    assert await desk.crew() == {}
