"""What parts of the relay tell each other after a commit. Everything happens on the event loop."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable

Agent = tuple[str, str]
"""(workspace id, agent id)"""


class Signals:
    """Wakes whoever may have something to do now."""

    def __init__(self) -> None:
        self._claimable: list[Callable[[set[Agent]], None]] = []
        self._inboxes: dict[Agent, set[asyncio.Future[None]]] = defaultdict(set)

    def on_claimable(self, listener: Callable[[set[Agent]], None]) -> None:
        """Have `listener` called with agents whose queue may have something to claim.

        An empty agent id stands for all of the workspace: a run slot has become free.
        """
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

    def queue_grows(self, agent: Agent) -> asyncio.Future[None]:
        """Return a future that is done with the next message for this agent."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._inboxes[agent].add(future)
        return future

    def ignore(self, agent: Agent, future: asyncio.Future[None]) -> None:
        """Wait no longer."""
        waiting = self._inboxes.get(agent)
        if waiting is not None:
            waiting.discard(future)
            if not waiting:
                del self._inboxes[agent]
