"""What is built for others to install: the wheels of every part, in environments that have nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.mesh_process import ROOT, Processes, processes, until

pytestmark = pytest.mark.e2e

UV = shutil.which("uv") or str(ROOT / ".uv" / "bin" / "uv")
VERSION = (ROOT / "VERSION").read_text().strip()
MEMBERS = sorted([*ROOT.glob("libs/*/pyproject.toml"), *ROOT.glob("services/*/pyproject.toml")])
# A client needs neither a store nor a web server.
_NOT_FOR_CLIENTS = {"sqlalchemy", "alembic", "starlette", "uvicorn", "mcp", "typer", "hopline-relay"}
_WORKER = """
import sys
from pathlib import Path

from hopline_client import Turn, Worker


async def handle(turn: Turn) -> str:
    return turn.text.upper()


Worker(Path(sys.argv[1]), handle, token_file=sys.argv[2]).run_forever()
"""


def _project(member: Path) -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads(member.read_text())["project"]
    return project


def _uv(*words: str, **more: str) -> str:
    done = subprocess.run([UV, *words], cwd=ROOT, env={**os.environ, **more}, capture_output=True, text=True)
    assert done.returncode == 0, f"uv {' '.join(words)}: {done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every wheel, and what the others are pinned to."""
    folder, copy = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("checkout")
    # From a copy: a build makes the contracts anew, and other tests are importing those of the checkout.
    for name in ("libs", "services", "proto"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("generated", "__pycache__"))
    for name in ("VERSION", "pyproject.toml", "uv.lock"):
        shutil.copy(ROOT / name, copy)
    _uv("build", "--quiet", "--all-packages", "--wheel", "--out-dir", str(folder), str(copy))
    # As the lock file pins them: nothing newer is installed here than what all other tests run on.
    pins = _uv("export", "--quiet", "--frozen", "--no-dev", "--no-hashes", "--no-emit-workspace")
    (folder / "pins.txt").write_text(pins)
    return folder


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Processes]:
    with processes(tmp_path) as found:
        yield found


def _from(dist: Path) -> list[str]:
    return ["--quiet", "--find-links", str(dist), "--constraints", str(dist / "pins.txt")]


def test_every_part_is_a_wheel_of_the_one_version(dist: Path) -> None:
    built = {wheel.name.split("-")[0]: wheel.name.split("-")[1] for wheel in dist.glob("*.whl")}
    names = {_project(member)["name"].replace("-", "_") for member in MEMBERS}
    assert built == dict.fromkeys(names, VERSION)
    assert all("version" in _project(member)["dynamic"] for member in MEMBERS)


def test_the_whole_package_pins_every_service_and_the_command(dist: Path) -> None:
    (wheel,) = dist.glob("hopline-[0-9]*.whl")
    with zipfile.ZipFile(wheel) as files:
        (name,) = [name for name in files.namelist() if name.endswith("/METADATA")]
        metadata = files.read(name).decode()
    pinned = {line.split()[1] for line in metadata.splitlines() if line.startswith("Requires-Dist:")}
    services = [
        project["name"]
        for project in map(_project, MEMBERS)
        if "hopline.services" in project.get("entry-points", {})
    ]
    assert len(services) >= 4
    assert pinned >= {f"{name}=={VERSION}" for name in [*services, "hopline-cli", "hopline-client"]}


async def test_a_tool_from_the_wheels_is_a_mesh_and_a_client_alone_works_in_it(
    dist: Path, started: Processes, tmp_path: Path
) -> None:
    bins = tmp_path / "bin"
    places = {"UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(bins)}
    _uv("tool", "install", *_from(dist), "--python", sys.executable, "hopline", **places)
    _uv("venv", "--quiet", "--python", sys.executable, str(tmp_path / "client"))
    python = str(tmp_path / "client" / "bin" / "python")
    _uv("pip", "install", *_from(dist), "--python", python, "hopline-client")
    listed = json.loads(_uv("pip", "list", "--format", "json", "--python", python))
    assert not {each["name"] for each in listed} & _NOT_FOR_CLIENTS

    hopline, data, script = str(bins / "hopline"), tmp_path / "data", tmp_path / "worker.py"
    assert started.run(hopline, "--version").stdout == f"hopline {VERSION}\n"
    up = started.start("up", hopline, "up", "--data", str(data), "--any-port")
    await until(lambda: (data / "endpoints.json").exists() or not up.is_running, "the mesh")
    here = ("--data", str(data))
    token = tmp_path / "echo.token"
    for words in (("agent", "create", "echo"), ("token", "create", "--agent", "echo")):
        done = started.run(hopline, *words, *here, "--json")
        assert done.returncode == 0, done.stderr
    token.touch(0o600)
    token.write_text(json.loads(done.stdout)["token"])
    script.write_text(_WORKER)
    started.start("worker", python, "-I", str(script), str(data), str(token))
    answer = started.run(hopline, "chat", "echo", "hello", *here, "--wait", "60")
    assert (answer.returncode, answer.stdout.strip()) == (0, "HELLO"), answer.stderr + up.said
