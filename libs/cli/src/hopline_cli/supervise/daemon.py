"""The supervisor: hears from the relay which agents have work, and attends to each of them."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from hopline.relay.v1 import wake_pb2 as pb
from hopline.relay.v1.wake_pb2_grpc import WakeServiceStub
from hopline_client import discovery
from hopline_rpc import logs
from hopline_rpc.clock import Clock, SystemClock
from hopline_rpc.errors import HoplineError

from hopline_cli.mesh import Mesh, find, source_of
from hopline_cli.output import Output
from hopline_cli.running.signals import stop_on_signals
from hopline_cli.supervise.attendant import Attendant, State
from hopline_cli.supervise.file import read_file
from hopline_cli.supervise.starting import Starter

log = logging.getLogger("hopline.supervise")

_FIRST_SECONDS: Final = 0.25
_LONGEST_SECONDS: Final = 5.0


async def run_supervise(file: Path, data: Path | None, workspace: str | None, out: Output) -> None:
    """Supervise the agents of a file until told to stop; then end their workers."""
    logs.configure()
    wanted = read_file(file)
    source = source_of(data)
    clock = SystemClock()
    find_mesh = partial(find, data, workspace)
    folder = source.path if isinstance(source, discovery.DataDir) else None
    starter = Starter(find_mesh, folder, clock)
    attendants = {
        each.agent: Attendant(
            each.agent, each.idle_seconds, partial(starter.start, each), clock, random.random
        )
        for each in wanted
    }
    names = ", ".join(attendants)
    out.result({"agents": list(attendants)}, f"supervising {names}: each is started when it has work")
    out.flush()
    stop = stop_on_signals()
    watching = asyncio.create_task(Watch(find_mesh, attendants, clock, random.random).run())
    attending = [asyncio.create_task(each.run()) for each in attendants.values()]
    stopped = asyncio.create_task(stop.wait())
    try:
        # None of them ends by itself, unless something is wrong with us: then all end.
        await asyncio.wait({stopped, watching, *attending}, return_when=asyncio.FIRST_COMPLETED)
        log.info("stopping; what runs gets time to end")
    finally:
        for each in (stopped, watching):
            each.cancel()
        for attendant in attendants.values():
            attendant.stop()
        ended = await asyncio.gather(*attending, return_exceptions=True)
    for problem in (*ended, watching.exception() if watching.done() and not watching.cancelled() else None):
        if isinstance(problem, BaseException):
            raise problem


class Watch:
    """Follows what the relay says of the agents, and passes it on."""

    def __init__(
        self,
        find_mesh: Callable[[], Awaitable[Mesh]],
        attendants: Mapping[str, Attendant],
        clock: Clock,
        chance: Callable[[], float],
    ) -> None:
        self._find = find_mesh
        self._attendants = attendants
        self._clock = clock
        self._chance = chance
        self._failures = 0
        self._said: set[str] = set()

    async def run(self) -> None:
        """Follow until cancelled; a mesh that is gone is looked for anew, wherever it is then."""
        while True:
            try:
                await self._follow()
                problem = "the stream ended"
            except HoplineError as error:
                problem = error.message
            for attendant in self._attendants.values():
                attendant.told(None)
            if not self._failures:
                log.warning("the mesh is not heard, what runs goes on: %s", problem)
            self._failures += 1
            longest = min(_LONGEST_SECONDS, _FIRST_SECONDS * 2.0 ** min(self._failures - 1, 10))
            await self._clock.sleep(longest * (0.5 + self._chance() / 2))

    async def _follow(self) -> None:
        mesh = await self._find()
        try:
            stub = WakeServiceStub(mesh.channel("relay"))
            async for answer in stub.WatchWork(pb.WatchWorkRequest(agents=list(self._attendants))):
                if self._failures:
                    self._failures = 0
                    log.info("the mesh is heard again")
                for each in answer.agents:
                    self._tell(each)
        finally:
            await mesh.close()

    def _tell(self, work: pb.AgentWork) -> None:
        if not work.problem and work.wake != "exec" and work.agent not in self._said:
            self._said.add(work.agent)
            log.warning(
                "%s: its wake rule is %s; with `hopline agent set %s --wake exec` it shows as sleeping",
                *(work.agent, work.wake, work.agent),
            )
        state = State(work.waiting, work.running, work.is_attached, work.problem)
        self._attendants[work.agent].told(state)
