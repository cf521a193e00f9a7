"""Two halves of a mesh on one PostgreSQL, proxies between the parts, and what can befall each of them."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from pathlib import Path
from typing import Final

import psutil
from sqlalchemy import make_url

from tests.chaos.proxy import Proxy
from tests.support.mesh_process import Agent, Process, Processes, Space, until
from tests.support.postgres_server import Server
from tests.support.replicas import REPLICATED, SecondMesh
from tests.support.served_mesh import SERVICES, ServedMesh

WORKER: Final = "worker"
DATABASE: Final = "postgresql"
# Of those that have a second process, its name has a 2 behind it.
SECOND: Final = tuple(f"{name} 2" for name in REPLICATED)
_STARTS: Final = 20
PARTS: Final = (*SERVICES, *SECOND, DATABASE, WORKER)


class ChaosMesh(ServedMesh):
    """Services that reach each other, and their database, through proxies."""

    def __init__(self, started: Processes) -> None:
        self.server = Server(Path(tempfile.mkdtemp(prefix="hopline-postgres-")), "synchronous_commit=on")
        self.proxies: dict[str, Proxy] = {}
        self._words: dict[str, str] = {}
        self.worker: Process | None = None
        super().__init__(started, env=self._words)
        self.second = SecondMesh(self)

    async def begin(self) -> None:
        """Start PostgreSQL and the services, each behind a proxy."""
        await asyncio.to_thread(self.server.make)
        await asyncio.to_thread(self.server.start)
        address = await self._behind(DATABASE, f"127.0.0.1:{self.server.port}")
        host, _, port = address.rpartition(":")
        url = make_url(self.server.url()).set(host=host, port=int(port))
        self._words["HOPLINE_DATABASE_URL"] = url.render_as_string(hide_password=False)
        for name in SERVICES:
            if name != "registry":
                words = ("token", "create", "--service", name, "--token-file", str(self.token_of(name)))
                made = await asyncio.to_thread(self.hopline, *words)
                assert made.returncode == 0, made.stderr
            await asyncio.to_thread(self.serve, name)
            if name != "gateway":
                own = await self._behind(name, self.endpoints[name])
                self._words[f"HOPLINE_{name.upper()}"] = own
        await asyncio.to_thread(self.wait_until_ready)
        # Each half follows a registry of its own; all count at the one quota.
        both = ("HOPLINE_DATABASE_URL", "HOPLINE_QUOTA")
        self.second = SecondMesh(self, env={name: self._words[name] for name in both})
        await asyncio.to_thread(self.second.start)

    async def _behind(self, name: str, address: str) -> str:
        self.proxies[name] = Proxy(address)
        return await self.proxies[name].start()

    async def attach(self, space: Space, agent: Agent) -> None:
        """Start the worker that is a process of its own, again and again as its supervisor would."""
        for _ in range(_STARTS):
            try:
                self.worker = await space.attach(agent, "cat")
            except AssertionError as error:
                if "just now" not in str(error):
                    raise
            else:
                return
        raise AssertionError(f"no worker could be started in {_STARTS} attempts")

    async def hit(self, part: str, how: str, seconds: float, space: Space, agent: Agent) -> None:
        """Do something to a part, wait, and make it good again."""
        if how == "kill":
            await self._kill(part, seconds, space, agent)
        elif how == "stop":
            pids = self._pids(part)
            for pid in pids:
                psutil.Process(pid).suspend()
            await asyncio.sleep(seconds)
            for pid in pids:
                psutil.Process(pid).resume()
        else:
            proxy = self.proxies[part]
            proxy.cut() if how == "cut" else proxy.slow(0.05)
            await asyncio.sleep(seconds)
            proxy.heal()

    async def _kill(self, part: str, seconds: float, space: Space, agent: Agent) -> None:
        if part == DATABASE:
            await asyncio.to_thread(self.server.stop, signal.SIGKILL)
            await asyncio.sleep(seconds)
            await asyncio.to_thread(self.server.start)
        elif part == WORKER:
            assert self.worker is not None
            self.worker.kill_with_children()
            await asyncio.sleep(seconds)
            await self.attach(space, agent)
        else:
            half, name = self._found(part)
            half.running[name].kill()
            await asyncio.sleep(seconds)
            await asyncio.to_thread(half.serve, name)

    def _pids(self, part: str) -> list[int]:
        if part == WORKER:
            assert self.worker is not None
            return [self.worker.pid]
        if part == DATABASE:
            head = psutil.Process(int((self.server.folder / "postgres.pid").read_text()))
            return [head.pid, *(each.pid for each in head.children())]
        half, name = self._found(part)
        return [half.running[name].pid]

    def _found(self, part: str) -> tuple[ServedMesh, str]:
        """Return the half that a service is of, and its name there."""
        return (self.second, part.removesuffix(" 2")) if part in SECOND else (self, part)

    async def healthy(self) -> None:
        """Wait until a message gets through again; a part that ended by itself is started, and told of."""
        for part in (*SERVICES, *SECOND):
            half, name = self._found(part)
            if not half.running[name].is_running:
                raise AssertionError(f"the {part} ended by itself: {half.running[name].said[-2000:]}")
        await asyncio.to_thread(self.wait_until_ready)
        await asyncio.to_thread(self.second.wait_until_ready)
        worker = self.worker
        assert worker is not None
        await until(lambda: worker.is_running, "the worker")

    async def end(self) -> None:
        """Stop what the processes do not end by themselves."""
        for proxy in self.proxies.values():
            await proxy.close()
        await asyncio.to_thread(self.server.close)
