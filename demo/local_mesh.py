"""The demo's mesh: one `hopline up`, its agents, and MCP clients that speak as one of them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from rich.console import Console

ROOT = Path(__file__).resolve().parent.parent
HOPLINE = ROOT / ".venv" / "bin" / "hopline"
FOLDER = ROOT / "build" / "demo"
CREW = ("concierge", "weather", "researcher", "reviewer", "publisher")
RECEIVES_ONLY = "publisher"
# Nobody works for it: what is sent there stays in its inbox.
SHELF = "shelf"
START_SECONDS = 30.0
STOP_SECONDS = 15.0


class DemoError(Exception):
    """Something did not go as the demo promises; the text says what."""


def expect(condition: object, what: str) -> None:
    """Raise DemoError with `what` unless the condition holds."""
    if not condition:
        raise DemoError(what)


class LocalMesh:
    """A mesh in `build/demo` with the crew attached; leaves nothing running when it is closed."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.data = FOLDER / "data"
        self.endpoints: dict[str, Any] = {}
        self._processes: list[tuple[str, subprocess.Popen[bytes]]] = []

    def __enter__(self) -> LocalMesh:
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir(parents=True)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for name, process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                self.console.print(f"[red]{name} had to be killed[/]")

    def start(self) -> None:
        """Start the mesh."""
        with self.console.status("starting the mesh …"):
            self.spawn("up", [str(HOPLINE), "up", "--data", str(self.data), "--any-port"])
            self.endpoints = self._wait_for_endpoints()
        addresses = ", ".join(f"{k} {v}" for k, v in self.endpoints.items() if k != "pid" and v)
        self.console.print(f"[dim]mesh is up: {addresses}[/]")

    def hire(self) -> None:
        """Create the agents and attach them."""
        with self.console.status("creating and attaching agents …"):
            self.hopline("workspace", "create", "elsewhere")
            self.create_agent("stranger", "--workspace", "elsewhere")
            self.create_agent("planner")
            self.create_agent(SHELF, "--description", "keeps what is sent to it")
            for name in CREW:
                kind = "receive-only" if name == RECEIVES_ONLY else "standard"
                self.create_agent(name, "--description", f"the demo's {name}", "--kind", kind)
                self.attach(name, sys.executable, str(ROOT / "demo" / "agents" / f"{name}.py"))

    def hopline(self, *words: str) -> Any:
        """Run a `hopline` command against this mesh and return what it prints as JSON."""
        command = [str(HOPLINE), *words, "--data", str(self.data), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        expect(done.returncode == 0, f"`hopline {' '.join(words)}`: {done.stderr.strip()}")
        return json.loads(done.stdout) if done.stdout.strip() else None

    def create_agent(self, name: str, *options: str) -> None:
        """Create an agent and keep its token in a file that only this user can read."""
        created = self.hopline("agent", "create", name, *options)
        path = self.token_file(name)
        path.touch(mode=0o600)
        path.write_text(created["token"])

    def token_file(self, name: str) -> Path:
        """Return where the token of an agent is kept."""
        return FOLDER / f"{name}.token"

    def attach(self, name: str, *command: str) -> None:
        """Have a command work for an agent."""
        options = ["--agent", name, "--data", str(self.data)]
        self.spawn(name, [str(HOPLINE), "attach", *options, "--", *command])

    def spawn(self, name: str, command: list[str], **environment: str) -> None:
        """Start a process that ends with the demo; what it says goes into its log."""
        with (FOLDER / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=os.environ | environment
            )
        self._processes.append((name, process))

    def _wait_for_endpoints(self) -> dict[str, Any]:
        path = self.data / "endpoints.json"
        process = self._processes[0][1]
        until = time.monotonic() + START_SECONDS
        while not path.exists():
            expect(process.poll() is None, "the mesh ended while it was starting")
            expect(time.monotonic() < until, f"the mesh was not ready within {START_SECONDS:.0f} s")
            time.sleep(0.02)
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    @asynccontextmanager
    async def stdio_client(self, agent: str) -> AsyncIterator[Client]:
        """Yield an MCP client that speaks as `agent` through `hopline mcp`."""
        env = {
            **os.environ,
            "HOPLINE_URL": self.endpoints["gateway"],
            "HOPLINE_TOKEN_FILE": str(self.token_file(agent)),
        }
        parameters = StdioServerParameters(command=str(HOPLINE), args=["mcp"], env=env)
        async with Client(stdio_client(parameters)) as client:
            yield client

    @asynccontextmanager
    async def http_client(self, agent: str) -> AsyncIterator[Client]:
        """Yield an MCP client that speaks as `agent` over streamable HTTP."""
        headers = {"Authorization": f"Bearer {self.token_file(agent).read_text()}"}
        url = f"{self.endpoints['gateway']}/mcp"
        async with (
            create_mcp_http_client(headers=headers) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            yield client

    def show_logs(self) -> None:
        """Print the last lines of every process's log."""
        for name, _ in self._processes:
            tail = (FOLDER / f"{name}.log").read_text(errors="replace").splitlines()[-15:]
            self.console.rule(f"log of {name}")
            self.console.print("\n".join(tail), markup=False)
