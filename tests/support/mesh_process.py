"""The whole mesh as real processes: `hopline up`, workers and commands, on free ports.

Whatever is started here belongs to a `Processes`, and ends with it, by its id: also when a test fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from hopline.quota.v1 import usage_pb2
from hopline.registry.v1 import agent_pb2, identity_pb2, workspace_pb2
from hopline.relay.v1 import audit_pb2, delegation_pb2, session_pb2
from hopline.relay.v1 import message_pb2 as pb
from hopline_cli.mesh import Mesh as Stubs
from hopline_client import Handler, Turn, Worker
from hopline_client import Mesh as Client
from hopline_client.discovery import DataDir
from hopline_rpc.errors import HoplineError
from mcp import Client as McpClient
from mcp import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
HOPLINE = str(BIN / "hopline")
# Generous: the machine may be busy with other tests. Nothing waits this long when all is well.
SECONDS = 120.0
_POLL = 0.02


async def until(condition: Callable[[], Any], what: str, seconds: float = SECONDS) -> Any:
    """Wait until the condition (a function or a coroutine function) holds, and return its value."""
    ends = time.monotonic() + seconds
    while True:
        value = condition()
        found = await value if inspect.isawaitable(value) else value
        if found:
            return found
        if time.monotonic() > ends:
            raise AssertionError(f"{what} did not come within {seconds:.0f} s")
        await asyncio.sleep(_POLL)


def clean_environment(folder: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return an environment with nothing of Hopline's or OpenTelemetry's but `more`, its home in `folder`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOPLINE_", "OTEL_"))}
    path = f"{BIN}{os.pathsep}{kept.get('PATH', '')}"
    return {**kept, "PATH": path, "HOME": str(folder), **(more or {})}


class Held:
    """A handler that stays in its turns until the test lets it go on."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.turns: list[Turn] = []
        self.cancelled: list[str] = []

    async def __call__(self, turn: Turn) -> str:
        self.turns.append(turn)
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled.append(turn.id)
            raise
        return f"{turn.text}, answered at attempt {turn.attempt}"

    async def begun(self, count: int = 1) -> Turn:
        """Wait until so many turns have begun; returns the last of them."""
        await until(lambda: len(self.turns) >= count, f"turn {count}")
        return self.turns[count - 1]


async def shout(turn: Turn) -> str:
    """Answer with the text in capital letters."""
    return turn.text.upper()


class Process:
    """A process, and what it has said on its standard output and standard error so far."""

    def __init__(self, words: Sequence[str], log: Path, env: Mapping[str, str], cwd: Path) -> None:
        self.log = log
        with log.open("wb") as output:
            self.popen = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=env, cwd=cwd
            )

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def is_running(self) -> bool:
        return self.popen.poll() is None

    def terminate(self) -> None:
        """Ask it to end."""
        self.popen.terminate()

    def wait(self, seconds: float = SECONDS) -> int:
        """Wait for its end and return its exit status."""
        return self.popen.wait(seconds)

    def kill(self) -> None:
        """End it without a word (SIGKILL)."""
        self.popen.kill()
        self.popen.wait()

    def kill_with_children(self) -> None:
        """End it and all that it has started."""
        family = psutil.Process(self.pid).children(recursive=True)
        self.kill()
        for each in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()

    async def ended(self, seconds: float = SECONDS) -> int:
        """Wait for its end, while this process goes on, and return its exit status."""
        await until(lambda: not self.is_running, f"the end of process {self.pid}", seconds)
        return self.popen.wait()


class Processes:
    """The processes of a test; `close` ends what still runs, the last started first."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[Process] = []

    def start(
        self, name: str, *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> Process:
        """Start a process; `env` is added to a clean environment."""
        log = self.folder / f"{len(self._started):02d}-{name}.log"
        process = Process(words, log, clean_environment(self.folder, env), cwd or self.folder)
        self._started.append(process)
        return process

    def run(
        self, *words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            words,
            cwd=cwd or self.folder,
            env=clean_environment(self.folder, env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    def close(self) -> None:
        """End everything: politely, then by SIGKILL."""
        running = [each for each in reversed(self._started) if each.is_running]
        for each in running:
            each.terminate()
        for each in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                each.wait(20)
        for each in running:
            if each.is_running:
                each.kill_with_children()


@contextlib.contextmanager
def processes(folder: Path) -> Iterator[Processes]:
    """Yield what starts processes, and end them all afterwards."""
    started = Processes(folder)
    try:
        yield started
    finally:
        started.close()


@dataclass(frozen=True)
class Agent:
    """An agent with its token, which also is in a file for its owner alone."""

    id: str
    name: str
    token: str
    token_file: Path


class MeshProcess:
    """`hopline up` on a data directory of its own."""

    def __init__(
        self,
        started: Processes,
        name: str = "data",
        env: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
    ) -> None:
        self.processes = started
        self._env = env
        self._options = options
        self.data = started.folder / name
        self.up: Process
        self._spaces = 0

    @property
    def endpoints_file(self) -> Path:
        return self.data / "endpoints.json"

    @property
    def endpoints(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.endpoints_file.read_text())
        return found

    def launch(self) -> None:
        """Begin to start it."""
        self.endpoints_file.unlink(missing_ok=True)
        self.up = self.processes.start(
            "up", HOPLINE, "up", "--data", str(self.data), "--any-port", *self._options, env=self._env
        )

    def start(self) -> None:
        """Start it and wait until it serves."""
        self.launch()
        ends = time.monotonic() + SECONDS
        while not self.endpoints_file.exists():
            assert self.up.is_running, f"`hopline up` ended while it was starting: {self.up.said}"
            assert time.monotonic() < ends, f"the mesh did not come up: {self.up.said}"
            time.sleep(_POLL)

    async def restart(self) -> None:
        """Start it again on the same data, while this process goes on."""
        await asyncio.to_thread(self.start)

    def kill(self) -> None:
        """End it as a crash would."""
        self.up.kill()

    def complaints(self) -> list[str]:
        """Return what the process that runs now has logged as its own defects."""
        return [
            line for line in self.up.said.splitlines() if '"level": "error"' in line or "Traceback" in line
        ]

    def hopline(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command of ours on it to its end."""
        return self.processes.run(HOPLINE, *words, "--data", str(self.data))

    async def cli(self, *words: str) -> Any:
        """Run a command that has to succeed, and return what it prints as JSON."""
        done = await asyncio.to_thread(self.hopline, *words, "--json")
        assert done.returncode == 0, f"hopline {' '.join(words)}: {done.stderr}"
        return json.loads(done.stdout)

    async def trace(self, turn_id: str, *names: str) -> Any:
        """Return the trace of a turn once spans of all these names are in it: they are kept in batches."""

        async def whole() -> Any:
            done = await asyncio.to_thread(self.hopline, "trace", turn_id, "--json")
            found = json.loads(done.stdout) if done.returncode == 0 else {"spans": []}
            return found if set(names) <= {span["name"] for span in found["spans"]} else None

        return await until(whole, f"a trace of {turn_id} with {', '.join(names)}")

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Read the relay's record with SQL, as it is on the disk."""
        address = f"{(self.data / 'relay.db').as_uri()}?mode=ro"
        with contextlib.closing(sqlite3.connect(address, uri=True)) as connection:
            return connection.execute(query, values).fetchall()

    @property
    def admin_token(self) -> str:
        return (self.data / "admin.token").read_text().strip()

    @asynccontextmanager
    async def space(self) -> AsyncIterator[Space]:
        """Yield a workspace of its own, so that tests can share a mesh."""
        self._spaces += 1
        async with Space(self, f"space-{self._spaces}") as space:
            request = workspace_pb2.CreateWorkspaceRequest(name=space.name)
            root = space.stubs(self.admin_token, "")
            await root.workspaces.CreateWorkspace(request)
            yield space


class Space:
    """A workspace of a mesh: its agents, its admin, and everything that acts in it."""

    def __init__(self, mesh: MeshProcess, name: str) -> None:
        self.mesh = mesh
        self.name = name
        self._stack = AsyncExitStack()
        self._stubs: dict[tuple[str, str, str], Stubs] = {}

    async def __aenter__(self) -> Space:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def stubs(self, token: str, workspace: str = "") -> Stubs:
        """Return typed stubs of every service for whoever holds the token, at the mesh's address now."""
        endpoints = DataDir(self.mesh.data).read()
        key = (endpoints.relay, token, workspace)
        if key not in self._stubs:
            self._stubs[key] = Stubs(endpoints, token, workspace)
            self._stack.push_async_callback(self._stubs[key].close)
        return self._stubs[key]

    @property
    def admin(self) -> Stubs:
        """The admin of this workspace."""
        return self.stubs(self.mesh.admin_token, self.name)

    async def agent(self, name: str, **fields: Any) -> Agent:
        """Make an agent."""
        request = agent_pb2.CreateAgentRequest(agent=agent_pb2.Agent(name=name, **fields))
        made = await self.admin.agents.CreateAgent(request)
        file = self.mesh.processes.folder / f"{made.agent.id}.token"
        file.touch(mode=0o600)
        file.write_text(made.token)
        return Agent(made.agent.id, made.agent.name, made.token, file)

    async def agents(self, *names: str) -> list[Agent]:
        """Make several agents."""
        return [await self.agent(name) for name in names]

    async def person(self, name: str, role: int = 0) -> str:
        """Make a person with a role on the workspace; returns the token."""
        made = await self.admin.identities.CreateUser(identity_pb2.CreateUserRequest(name=name))
        if role:
            grant = identity_pb2.GrantRoleRequest(user=name, role=role)  # type: ignore[arg-type]
            await self.admin.identities.GrantRole(grant)
        return made.token

    async def policy(self, **values: Any) -> None:
        """Change limits."""
        request = workspace_pb2.UpdatePolicyRequest(policy=workspace_pb2.Policy(**values))
        request.update_mask.paths.extend(values)
        await self.admin.workspaces.UpdatePolicy(request)

    def client(self, agent: Agent) -> Client:
        """Return a client that acts as an agent and finds the mesh again after a restart."""
        found = Client(self.mesh.data, token=agent.token)
        self._stack.push_async_callback(found.close)
        return found

    async def work(self, agent: Agent, handler: Handler, where: Path | str = "", **options: Any) -> Worker:
        """Attach a worker in this process, over the real socket."""
        worker = Worker(where or self.mesh.data, handler, token=agent.token, **options)
        running = asyncio.create_task(worker.run())

        async def end() -> None:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError, HoplineError):
                await running

        self._stack.push_async_callback(end)
        await asyncio.wait_for(worker.ready(), SECONDS)
        return worker

    async def attach(self, agent: Agent, *command: str, env: Mapping[str, str] | None = None) -> Process:
        """Run a command for an agent's turns; returns when it is attached."""
        words = ("--agent", agent.name, "--data", str(self.mesh.data), "--workspace", self.name)
        daemon = self.mesh.processes.start("attach", HOPLINE, "attach", *words, "--", *command, env=env)
        await self.attached(agent, daemon)
        return daemon

    async def attached(self, agent: Agent, worker: Process) -> None:
        """Wait until a worker process is on its tunnel."""

        async def there() -> bool:
            assert worker.is_running, f"the worker of {agent.name} ended: {worker.said}"
            return f"attached as {agent.name}" in worker.said

        await until(there, f"the worker of {agent.name}")

    async def presence(self, agent: Agent) -> str:
        """Tell how an agent stands: `busy`, `idle`, `offline`, ..."""
        request = session_pb2.GetPresenceRequest(agents=[agent.id])
        return (await self.admin.sessions.GetPresence(request)).presence[agent.id]

    async def turn(self, turn_id: str) -> delegation_pb2.Turn:
        """Return a turn as the admin sees it."""
        found = await self.admin.turns.GetTurn(delegation_pb2.GetTurnRequest(turn_id=turn_id))
        return found.turn

    async def turns(self) -> list[delegation_pb2.Turn]:
        """Return the workspace's turns, the oldest first."""
        found = await self.admin.turns.ListTurns(delegation_pb2.ListTurnsRequest(page_size=200))
        return sorted(found.turns, key=lambda turn: turn.created_at.ToNanoseconds())

    async def thread(self, thread_id: str) -> list[pb.Message]:
        """Return a thread's messages."""
        request = pb.ListMessagesRequest(thread_id=thread_id, page_size=200)
        return list((await self.admin.messages.ListMessages(request)).messages)

    async def events(self, action: str = "") -> list[audit_pb2.Event]:
        """Return the newest events of the audit log, the newest first."""
        request = audit_pb2.ListEventsRequest(action=action, page_size=200, descending=True)
        return list((await self.admin.events.ListEvents(request)).events)

    async def usage(self, agent: Agent) -> usage_pb2.GetUsageResponse:
        """Return what the mesh counts of an agent."""
        return await self.admin.usage.GetUsage(usage_pb2.GetUsageRequest(agent=agent.id))

    @asynccontextmanager
    async def mcp_over_stdio(self, agent: Agent, mode: str = "auto") -> AsyncIterator[McpClient]:
        """Yield the official MCP client on a `hopline mcp` of the agent."""
        where = {
            "HOPLINE_URL": self.mesh.endpoints["gateway"],
            "HOPLINE_TOKEN_FILE": str(agent.token_file),
        }
        env = clean_environment(self.mesh.processes.folder, where)
        pipe = StdioServerParameters(command=HOPLINE, args=["mcp"], env=env)
        async with McpClient(stdio_client(pipe), mode=mode) as client:
            yield client

    @asynccontextmanager
    async def mcp_over_http(
        self, agent: Agent | str, mode: str = "auto", path: str = "/mcp", **headers: str
    ) -> AsyncIterator[McpClient]:
        """Yield the official MCP client on the gateway's own port, as the agent, or whoever has the token."""
        url = f"{self.mesh.endpoints['gateway']}{path}"
        token = agent if isinstance(agent, str) else agent.token
        headers = {"Authorization": f"Bearer {token}", **headers}
        async with (
            create_mcp_http_client(headers=headers) as http,
            McpClient(streamable_http_client(url, http_client=http), mode=mode) as client,
        ):
            yield client


async def call(client: McpClient, tool: str, **arguments: Any) -> dict[str, Any]:
    """Call a tool that has to succeed, and return its structured result."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.structured_content
    return dict(result.structured_content or {})


async def refused(client: McpClient, tool: str, **arguments: Any) -> tuple[dict[str, Any], str]:
    """Call a tool that has to be refused; returns the error, and the text that a model reads."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result.structured_content
    content: Any = result.content[0]
    return dict((result.structured_content or {})["error"]), str(content.text)


def ended(pid: int) -> bool:
    """Tell whether a process is gone."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
