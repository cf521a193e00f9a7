"""A real mesh in a process of its own, and the command line run inside the test's process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hopline_cli.app import run_app

SECONDS = 60.0


class UpProcess:
    """A running `hopline up`."""

    def __init__(self, data: Path, *words: str) -> None:
        self.data = data
        # What it has said on standard error, once it was stopped.
        self.said = ""
        command = [sys.executable, "-m", "hopline_cli", "up", "--data", str(data), "--json", *words]
        env = {name: value for name, value in os.environ.items() if not name.startswith("HOPLINE_")}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
        )

    def wait_until_up(self) -> dict[str, Any]:
        """Return the endpoints that it prints once everything is ready."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, self.process.stderr and self.process.stderr.read()
        found: dict[str, Any] = json.loads(line)
        return found

    def complaint(self) -> str:
        """Return what it says on standard error, once it has ended."""
        return self.process.communicate(timeout=SECONDS)[1]

    def stop(self) -> int:
        self.process.terminate()
        self.said = self.process.communicate(timeout=SECONDS)[1]
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="session")
def mesh_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data directory of a mesh that runs for all tests here; each makes agents of its own."""
    up = UpProcess(tmp_path_factory.mktemp("mesh") / "data", "--any-port")
    try:
        up.wait_until_up()
        run_app(["policy", "set", "agents=1000", "--data", str(up.data), "--json"])
        yield up.data
    finally:
        up.close()


@dataclass
class Ran:
    """How a command ended and what it printed."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.status == 0, self.err
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        """Return the one line of a refusal with --json."""
        assert self.status == 1
        assert self.err.count("\n") == 1
        return json.loads(self.err)["error"]


Run = Callable[..., Ran]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Run a command line in this process."""

    def run(*words: str) -> Ran:
        capfd.readouterr()
        status = run_app(list(words))
        out, err = capfd.readouterr()
        return Ran(status, out, err)

    return run


@pytest.fixture
def hopline(run: Run, mesh_data: Path) -> Run:
    """Run a command line against the mesh, with --json."""
    return lambda *words: run(*words, "--data", str(mesh_data), "--json")


@pytest.fixture
def plain(run: Run, mesh_data: Path) -> Run:
    """Run a command line against the mesh, without --json."""
    return lambda *words: run(*words, "--data", str(mesh_data))
