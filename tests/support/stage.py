"""Workers and clients of the library on a whole mesh, in process or over a port."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import grpc.aio
from hopline_client import Handler, HoplineError, Mesh, Worker
from hopline_client.discovery import Endpoints

from tests.support.relay_mesh import Caller, RelayMesh, until


class Stage:
    """A mesh and the workers on it, in process or over a port."""

    def __init__(self, mesh: RelayMesh, *, socket: bool) -> None:
        self.mesh = mesh
        self._socket = socket
        self._address = ""
        self._running: list[tuple[Worker, asyncio.Task[None]]] = []

    async def listen(self) -> None:
        """Open the relay's port."""
        if self._socket:
            self._address = await self.mesh.relay.server.start("127.0.0.1:0")

    async def endpoints(self) -> Endpoints:
        return Endpoints(relay="relay", registry="registry")

    def dial(self, target: str) -> grpc.aio.Channel:
        if target == "relay" and self._address:
            return grpc.aio.insecure_channel(self._address)
        channel: grpc.aio.Channel = self.mesh.channels[target]
        return channel

    async def work(self, agent: Caller, handler: Handler, **options: Any) -> Worker:
        """Attach a worker of an agent."""
        worker = Worker(self, handler, token=agent.token, dial=self.dial, clock=self.mesh.clock, **options)
        self._running.append((worker, asyncio.create_task(worker.run())))
        await worker.ready()
        return worker

    def task(self, worker: Worker) -> asyncio.Task[None]:
        return next(task for one, task in self._running if one is worker)

    def client(self, agent: Caller, **options: Any) -> Mesh:
        return Mesh(self, token=agent.token, dial=self.dial, **options)

    async def cut(self) -> None:
        """Break every tunnel, as a network would."""
        cut = HoplineError("unavailable", "the line is cut")
        self.mesh.relay.server.live.end(lambda call: "Attach" in call.method, cut)

    async def back(self, agent: Caller) -> None:
        """Let a worker try to connect until it has, within the time its lease leaves it."""
        presence = self.mesh.relay.dispatcher.presence
        for _ in range(8):
            await self.mesh.passes(3)
            with contextlib.suppress(TimeoutError):
                # A socket takes its own time, which the clock of the test knows nothing of.
                async with asyncio.timeout(2):
                    await until(lambda: presence(self.mesh.workspace_id, agent.id), "the worker")
                    return
        raise AssertionError("the worker did not come back")

    async def kill(self, worker: Worker) -> None:
        """End a worker without a word, as SIGKILL would."""
        self.task(worker).cancel()
        await asyncio.wait({self.task(worker)})

    async def close(self) -> None:
        for _, task in self._running:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, HoplineError):
                await task
