"""What goes with a plugin that is uninstalled: the sessions of its agents.

The registry deletes the agents, and whatever they run or owe ends as with every agent that is deleted. Then
their sessions are deleted here, in the background and a little at a time: there may be many, and whoever
follows the registry must not wait. The threads stay, for those who took part in them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from functools import partial
from typing import Final

from hopline.registry.v1.visibility_pb2 import Change
from hopline_directory import AgentRecord, Directory
from hopline_rpc.calls import detach
from hopline_rpc.clock import Clock
from hopline_rpc.errors import HoplineError
from hopline_rpc.faults import point

from hopline_relay.journal import Journal
from hopline_relay.store.uninstalling import count_sessions, delete_sessions

log = logging.getLogger("hopline.relay.plugins")

_RETRY_SECONDS: Final = 1.0
# Between two transactions others get to write.
_PAUSE_SECONDS: Final = 0.05


class Uninstalled:
    """Deletes what is left of plugins that are gone; after a start also of those that went before it."""

    def __init__(self, journal: Journal, directory: Directory, clock: Clock) -> None:
        self._journal = journal
        self._directory = directory
        self._clock = clock
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def changed(self, changes: list[Change]) -> None:
        """Look once more when a plugin is gone."""
        if any(change.WhichOneof("entity") == "plugin_removed" for change in changes):
            self._news.set()

    def start(self) -> None:
        """Begin, with what went while no process of the relay was there."""
        self._news.set()
        self._task = detach(self._run(), name="uninstalled plugins")

    async def close(self) -> None:
        """Stop; what is left is deleted after the next start."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                again = not await self.sweep()
            except HoplineError as error:
                log.warning("what plugins have left is deleted later: %s", error.message)
                again = True
            except Exception:
                log.exception("what plugins have left cannot be deleted just now")
                again = True
            if again:
                await self._clock.sleep(_RETRY_SECONDS)
                self._news.set()

    async def sweep(self) -> bool:
        """Delete the sessions of every agent whose plugin is gone; false where a turn still runs in one."""
        done = True
        for workspace in self._directory.workspaces():
            left = [each for each in self._agents(workspace.id) if self._is_left(each)]
            for agent in left:
                done = await self._forget(agent) and done
        return done

    def _agents(self, workspace_id: str) -> Iterator[AgentRecord]:
        for agent_id in self._directory.agent_ids(workspace_id):
            if (agent := self._directory.agent(workspace_id, agent_id)) is not None:
                yield agent

    def _is_left(self, agent: AgentRecord) -> bool:
        return (
            agent.deleted
            and agent.plugin_id != ""
            and self._directory.plugin(agent.workspace_id, agent.plugin_id) is None
        )

    async def _forget(self, agent: AgentRecord) -> bool:
        find = partial(count_sessions, workspace_id=agent.workspace_id, agent_id=agent.id)
        delete = partial(
            delete_sessions,
            workspace_id=agent.workspace_id,
            agent_id=agent.id,
            plugin_id=agent.plugin_id,
        )
        if not await self._journal.read(find):
            return True
        point("plugin.sessions")
        while await self._journal.write(delete):
            await self._clock.sleep(_PAUSE_SECONDS)
        return not await self._journal.read(find)
