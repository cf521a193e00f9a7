"""The mesh that all inputs go to, what is real in it, and what must hold of its process after each input."""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
from hopline_client import Mesh

from tests.support.mesh_process import Agent, MeshProcess, processes

# No answer takes this long; a connection that stays silent for so long is stuck.
PATIENCE = 30.0
OTHERS = "elsewhere"


@dataclass(repr=False)
class Ground:
    """A mesh with two workspaces: what inputs may name in it, by the kind of thing."""

    mesh: MeshProcess
    agent: Agent
    admin_token: str
    workspace: str
    service_token: str
    known: dict[str, list[str]] = field(default_factory=dict)
    _read: int = 0

    def __repr__(self) -> str:
        return f"mesh {self.mesh.up.pid}"

    @property
    def gateway(self) -> tuple[str, int]:
        """Host and port of the HTTP surface."""
        found = urlsplit(self.mesh.endpoints["gateway"])
        assert found.hostname
        assert found.port
        return found.hostname, found.port

    @property
    def process(self) -> psutil.Process:
        return psutil.Process(self.mesh.up.pid)

    def unharmed(self) -> None:
        """Check that the mesh runs and has complained of nothing since the last look."""
        assert self.mesh.up.is_running, f"the mesh is gone: {self.mesh.up.said[-4000:]}"
        size = self.mesh.up.log.stat().st_size
        if size > self._read:
            with self.mesh.up.log.open("rb") as log:
                log.seek(self._read)
                said = log.read().decode(errors="replace")
            self._read = size
            assert '"level": "error"' not in said, said
            assert "Traceback" not in said, said

    def serves(self) -> None:
        """Check that the next good request, on a new connection, gets its answer."""
        connection = http.client.HTTPConnection(*self.gateway, timeout=PATIENCE)
        try:
            body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_agents"}}'
            connection.request("POST", "/mcp", body, self.headers())
            answer = connection.getresponse()
            assert answer.status == 200, answer.status
            assert b'"isError":true' not in answer.read()
        finally:
            connection.close()
        self.unharmed()

    async def ask(self, name: str) -> None:
        """Give an agent something to work on."""
        async with Mesh(self.mesh.data, token=self.agent.token) as client:
            await client.ask(name, "well?", wait_seconds=0)

    def headers(self) -> dict[str, str]:
        """Return the headers of a request that has nothing wrong with it."""
        return {
            "Authorization": f"Bearer {self.agent.token}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }


@contextmanager
def ground(folder: Path) -> Iterator[Ground]:
    """Start a mesh with some life in it."""
    with processes(folder) as started:
        mesh = MeshProcess(started)
        mesh.start()
        yield asyncio.run(_furnish(mesh))


async def _furnish(mesh: MeshProcess) -> Ground:
    made = mesh.hopline("token", "create", "--service", "relay", "--token-file", str(mesh.data / "service"))
    assert made.returncode == 0, made.stderr
    async with mesh.space() as space, mesh.space() as foreign:
        for each in (space, foreign):
            await each.policy(refusals="0", agents=1000, sent_per_day=10**8, received_per_day=10**8)
            await each.policy(pair_budget="0", root_turns=10**6, messages_per_thread=10**5)
        agent, peer, _, _ = await space.agents("fuzz", "peer", "third", "boxed")
        abroad, _ = await foreign.agents("abroad", "other")
        known: dict[str, list[str]] = {}
        for here, one, to in ((space, agent, "peer"), (space, peer, "fuzz"), (foreign, abroad, "other")):
            asked = await here.client(one).ask(to, "well?", wait_seconds=0)
            for kind in ("message_id", "thread_id", "turn_id", "session_id"):
                known.setdefault(kind, []).append(getattr(asked, kind))
        known["agent"] = ["peer", peer.id, "third", "fuzz", agent.id, abroad.id, "abroad", "nobody"]
        token = (mesh.data / "service").read_text().strip()
        return Ground(mesh, agent, mesh.admin_token, space.name, token, known)


def unlike(given: Any) -> str:
    """Return what was asked as text, to tell an echo from a leak."""
    return given.decode(errors="replace") if isinstance(given, bytes) else str(given)
