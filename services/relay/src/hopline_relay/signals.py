"""What parts of the relay tell each other after a commit. Everything happens on the event loop."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

Agent = tuple[str, str]
"""(workspace id, agent id)"""
Session = tuple[str, str]
"""(workspace id, session id)"""


def session_of(turn: Any) -> Session:
    """Return the session in which a turn runs."""
    return turn.workspace_id, turn.run_session_id or turn.session_id


class Signals:
    """Wakes whoever may have something to do now."""

    def __init__(self) -> None:
        self._claimable: list[Callable[[set[Agent]], None]] = []
        self._inboxes: dict[Agent, dict[asyncio.Future[None], None]] = defaultdict(dict)
        # Agents whose turns found no run slot, by workspace, in that order; and how often one became free.
        self._refused: dict[str, dict[str, None]] = {}
        self._freed: Counter[str] = Counter()
        # Called with a workspace in which a run slot has become free.
        self.on_slot_free: Callable[[str], None] = lambda workspace_id: None
        self._todos: list[Callable[[set[Session]], None]] = []
        # Called with sessions in which a turn has just ended.
        self.on_freed: Callable[[Iterable[Session]], None] = lambda sessions: None

    def on_claimable(self, listener: Callable[[set[Agent]], None]) -> None:
        """Have `listener` called with agents whose queue may have something to claim."""
        self._claimable.append(listener)

    def claimable(self, agents: Iterable[Agent]) -> None:
        """Say that these agents' queues may have something to claim."""
        found = set(agents)
        if not found:
            return
        for agent in found:
            for waiting in self._inboxes.pop(agent, ()):
                if not waiting.done():
                    waiting.set_result(None)
        for listener in self._claimable:
            listener(found)

    def on_todos_changed(self, listener: Callable[[set[Session]], None]) -> None:
        """Have `listener` called with sessions whose todos may hold their agent otherwise than before."""
        self._todos.append(listener)

    def todos_changed(self, sessions: set[Session]) -> None:
        """Say that todos of these sessions have been added, have ended or rest, or that the list sleeps."""
        for listener in self._todos if sessions else ():
            listener(sessions)

    def freed(self, workspace_id: str) -> int:
        """Return how often a run slot has become free: to be asked for before slots are taken."""
        return self._freed[workspace_id]

    def no_slot(self, agent: Agent, freed: int) -> None:
        """Say that a turn of this agent found no run slot; it is claimable again once one is free.

        `freed` is what `freed` said before: one may have become free meanwhile.
        """
        workspace_id, agent_id = agent
        if self._freed[workspace_id] != freed:
            self.claimable([agent])
        else:
            self._refused.setdefault(workspace_id, {})[agent_id] = None

    def starves(self, workspace_id: str) -> bool:
        """Tell whether turns of this workspace wait for a run slot."""
        return workspace_id in self._refused

    def slot_free(self, workspace_ids: Iterable[str]) -> None:
        """Say that a run slot of these workspaces has become free, whoever wants it."""
        for workspace_id in set(workspace_ids):
            self._freed[workspace_id] += 1
            refused = self._refused.pop(workspace_id, {})
            self.claimable((workspace_id, agent_id) for agent_id in refused)
            self.on_slot_free(workspace_id)

    def try_again(self) -> None:
        """Have everything claimed again that found no run slot: another process may have freed some."""
        self.slot_free(list(self._refused))

    def queue_grows(self, agent: Agent) -> asyncio.Future[None]:
        """Return a future that is done with the next message for this agent."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._inboxes[agent][future] = None
        return future

    def waiting(self) -> list[Agent]:
        """Return the agents for whose next message calls wait."""
        return list(self._inboxes)

    def ignore(self, agent: Agent, future: asyncio.Future[None]) -> None:
        """Wait no longer."""
        waiting = self._inboxes.get(agent)
        if waiting is not None:
            waiting.pop(future, None)
            if not waiting:
                del self._inboxes[agent]
