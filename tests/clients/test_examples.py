"""Every example runs as it stands: from a checkout, beside a mesh, in some folder of the person's own."""

from __future__ import annotations

import os
import re
import shlex
import stat
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.clients import stand_ins
from tests.support import node
from tests.support.harness import opencode_home
from tests.support.mesh_process import BIN, ROOT, MeshProcess, Process, processes, until
from tests.support.model_server import ModelServer, delegating, model_server

EXAMPLES = ROOT / "deploy" / "examples"
TOKEN = re.compile(r"hpl_[a-z]_[A-Za-z0-9_-]{43}")


class Bench:
    """Somebody with a checkout, a mesh in `~/.hopline`, and harnesses on the PATH."""

    def __init__(self, mesh: MeshProcess, models: ModelServer) -> None:
        self.mesh = mesh
        self.models = models
        self.home = mesh.processes.folder
        checkout = self.home / "checkout"
        (checkout / "deploy").mkdir(parents=True)
        (checkout / "deploy" / "examples").symlink_to(EXAMPLES)
        (checkout / ".venv").symlink_to(BIN.parent)
        self.examples = checkout / "deploy" / "examples"
        self.folder = self.home / "project"
        self.folder.mkdir()
        tools = self.home / "bin"
        tools.mkdir()
        for name in ("claude", "codex"):
            words = shlex.join([sys.executable, stand_ins.__file__, name])
            (tools / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
            (tools / name).chmod(0o755)
        (tools / "opencode").symlink_to(node.opencode())
        self.env = opencode_home(self.home / "opencode", models.url, ["m1"])
        self.env["PATH"] = f"{tools}{os.pathsep}{os.environ['PATH']}"

    def words(self, example: str) -> list[str]:
        """Return how an example is started."""
        path = str(self.examples / example)
        return [path] if path.endswith(".sh") else [str(BIN / "python"), path]

    def run(self, example: str, *words: str, prompt: str = "") -> str:
        """Run an example that has to succeed, and return what it prints."""
        env = {**self.env, "STAND_IN_PROMPT": prompt}
        done = self.mesh.processes.run(*self.words(example), *words, cwd=self.folder, env=env)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    async def worker(self, example: str, agent: str) -> Process:
        """Start an example that stays, and wait until its agent has a worker."""
        worker = self.mesh.processes.start(agent, *self.words(example), cwd=self.folder, env=self.env)

        async def idle() -> bool:
            assert worker.is_running, worker.said
            listed = (await self.mesh.cli("agent", "list"))["agents"]
            return any(each["slug"] == agent and each["presence"] == "idle" for each in listed)

        await until(idle, f"a worker of {agent}")
        return worker


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with processes(tmp_path_factory.mktemp("home")) as started, model_server() as models:
        mesh = MeshProcess(started, ".hopline")
        mesh.start()
        yield Bench(mesh, models)
        assert mesh.complaints() == []


@pytest.fixture
async def python_worker(bench: Bench) -> AsyncIterator[Process]:
    """The one that the others ask."""
    worker = await bench.worker("python_worker.py", "python")
    yield worker
    worker.terminate()
    assert await worker.ended() == 0


async def ask(bench: Bench, agent: str, text: str) -> str:
    """Ask as a person does; returns the answer."""
    found = await bench.mesh.cli("chat", agent, text)
    assert found["status"] == "completed", found
    return str(found["reply"])


ASKED = "wrote 3 words."
CALLERS = (
    ("claude-code-caller.sh", ()),
    ("codex-caller.sh", ()),
    ("python_caller.py", ("python", "one two three")),
)


@pytest.mark.parametrize(("example", "words"), CALLERS)
async def test_a_caller_reaches_another_agent_as_me(
    bench: Bench, python_worker: Process, example: str, words: tuple[str, ...]
) -> None:
    assert bench.run(example, *words, prompt="ask python: one two three") == f"me (for admin) {ASKED}\n"


@pytest.mark.parametrize(("harness", "agent"), [("claude-code", "claude-code"), ("codex", "codex")])
async def test_a_harness_as_worker_asks_on_with_the_server_that_it_is_handed(
    bench: Bench, python_worker: Process, harness: str, agent: str
) -> None:
    await bench.worker(f"{harness}-worker.sh", agent)
    await bench.mesh.cli("agent", "set", agent, "--soul", "Kind.")
    assert await ask(bench, agent, "ask python: one two three") == f"Kind. {agent} (for admin) {ASKED}"
    assert await ask(bench, agent, "who are you?") == f"Kind. I am {agent}"


async def test_opencode_works_both_ways(bench: Bench, python_worker: Process) -> None:
    await bench.worker("opencode-worker.sh", "opencode")
    await bench.mesh.cli("agent", "set", "opencode", "--soul", "You are kind.")
    bench.models.scripts["m1"] = delegating("hopline_ask", agent="python", text="one two three")
    assert f"opencode (for admin) {ASKED}" in await ask(bench, "opencode", "ask python")
    assert "You are kind." in str(bench.models.heard("m1")[0])
    assert f"me (for admin) {ASKED}" in bench.run("opencode-caller.sh", "run", "ask python")


async def test_no_token_is_among_the_words_of_an_example_or_in_a_file_that_others_can_read(
    bench: Bench,
) -> None:
    bench.run("agent.sh", "me")
    files = [path for path in bench.home.rglob("*") if path.is_file() and not path.is_symlink()]
    holding = [path for path in files if TOKEN.search(path.read_text(errors="replace"))]
    assert bench.mesh.data / "me.token" in holding
    assert [path for path in holding if stat.S_IMODE(path.stat().st_mode) & 0o077] == []


def test_an_agent_that_is_there_keeps_its_tokens_and_gets_one_more(bench: Bench) -> None:
    first = bench.run("agent.sh", "other").strip()
    assert bench.run("agent.sh", "other").strip() == first
    token = Path(first).read_text()
    Path(first).unlink()
    assert bench.run("agent.sh", "other").strip() == first
    assert Path(first).read_text() != token


def test_the_page_names_every_example() -> None:
    page = (EXAMPLES / "README.md").read_text()
    named = {*re.findall(r"\]\((?!\.\.)([\w.-]+)", page), "README.md"}
    assert {path.name for path in EXAMPLES.iterdir()} == named
