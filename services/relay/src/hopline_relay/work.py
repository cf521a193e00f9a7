"""Which agents have work, for whoever starts their workers: said at once, and looked for each second."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

from hopline.relay.v1 import wake_pb2 as pb
from hopline_directory import AgentRecord, Directory
from hopline_directory.records import OPERATOR
from hopline_rpc.clock import Clock
from hopline_rpc.errors import HoplineError
from hopline_rpc.principals import Principal

from hopline_relay.dispatch import Dispatcher
from hopline_relay.journal import Journal
from hopline_relay.signals import Agent, Signals
from hopline_relay.store import queues
from hopline_relay.store.queues import Waits

SWEEP_SECONDS: Final = 1.0


class Work:
    """Serves WakeService."""

    def __init__(
        self, journal: Journal, directory: Directory, dispatcher: Dispatcher, signals: Signals, clock: Clock
    ) -> None:
        self._journal = journal
        self._directory = directory
        self._dispatcher = dispatcher
        self._clock = clock
        # Who watches which agents.
        self._watching: dict[asyncio.Event, set[Agent]] = {}
        signals.on_claimable(self._hint)

    def attached(self, workspace_id: str, agent_id: str) -> None:
        """Note that a worker of the agent has come."""
        self._hint({(workspace_id, agent_id)})

    def _hint(self, agents: set[Agent]) -> None:
        for news, watched in self._watching.items():
            if not watched.isdisjoint(agents):
                news.set()

    async def watch(
        self, principal: Principal, request: pb.WatchWorkRequest
    ) -> AsyncIterator[pb.WatchWorkResponse]:
        """Yield how it stands with the agents: all of them first, then what changes."""
        news = asyncio.Event()
        said: dict[str, pb.AgentWork] = {}
        try:
            while True:
                news.clear()
                # What the caller may see is asked anew: a role may have been taken away meanwhile.
                found = [self._find(principal, ref) for ref in request.agents]
                agents = {each.id for each in found if isinstance(each, AgentRecord)}
                self._watching[news] = {(principal.workspace_id, each) for each in agents}
                waits = await self._waits(principal.workspace_id, sorted(agents))
                now = {
                    ref: self._state(ref, each, waits)
                    for ref, each in zip(request.agents, found, strict=True)
                }
                changed = [each for ref, each in now.items() if said.get(ref) != each]
                if changed:
                    said = now
                    yield pb.WatchWorkResponse(agents=changed)
                timer = self._clock.call_later(SWEEP_SECONDS, news.set)
                try:
                    await news.wait()
                finally:
                    timer.cancel()
        finally:
            self._watching.pop(news, None)

    def _find(self, principal: Principal, ref: str) -> AgentRecord | HoplineError:
        try:
            return self._directory.resolve_for_person(principal, ref, OPERATOR)
        except HoplineError as error:
            return error

    async def _waits(self, workspace_id: str, agent_ids: Sequence[str]) -> dict[str, Waits]:
        if not agent_ids:
            return {}
        return await self._journal.read(
            lambda connection: queues.work_of(connection, workspace_id, agent_ids)
        )

    def _state(self, ref: str, found: AgentRecord | HoplineError, waits: Mapping[str, Waits]) -> pb.AgentWork:
        if isinstance(found, HoplineError):
            return pb.AgentWork(agent=ref, problem=found.message)
        held = self._dispatcher.held(found.workspace_id, found.id)
        return pb.AgentWork(
            agent=ref,
            agent_id=found.id,
            slug=found.slug,
            waiting=waits[found.id].turns if found.id in waits else 0,
            running=held or 0,
            is_attached=held is not None,
            wake=found.wake,
            problem="" if found.state == "active" else f"the agent is {found.state}",
        )
