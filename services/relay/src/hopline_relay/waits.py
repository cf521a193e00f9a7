"""Calls that wait for a turn: a future each, and a row in the record that outlives a crash.

The row goes only after the answer was handed over. One that is found at a start belongs to a call that
died: if its turn has ended by then, the answer is delivered as a message instead.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hopline_rpc.clock import Clock
from hopline_store import after_commit

from hopline_relay.domain.deadlock import Runs, beside, stuck
from hopline_relay.domain.values import Fault
from hopline_relay.journal import Journal
from hopline_relay.store import waiting
from hopline_relay.store.book import Book


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the turn that somebody waits for came out: `completed`, `failed` or `canceled`."""

    status: str
    reply: str | None = None
    payload: str = ""
    reply_message_id: str = ""
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class Blocked:
    """A running turn that stands still while one of its calls waits for a turn of `target`."""

    turn_id: str
    agent_id: str
    session_id: str
    target: str


class Waiter:
    """One call that waits. `outcome` is set once it is known; `gone` once the call has stopped waiting."""

    __slots__ = (
        "_woken",
        "blocked",
        "elsewhere",
        "gone",
        "id",
        "key",
        "outcome",
        "principal_id",
        "session_id",
        "slot_turn_id",
    )

    def __init__(self, wait_id: str, principal_id: str) -> None:
        self.id = wait_id
        self.principal_id = principal_id
        self.key: tuple[str, str] = ("", "")
        self.gone = False
        # The turn that it waits for has ended at another relay: how, the record says.
        self.elsewhere = False
        # The turn that the call is made from and whose run slot is free while it waits.
        self.slot_turn_id = ""
        # The session it runs in.
        self.session_id = ""
        # That turn, once the call does wait.
        self.blocked: Blocked | None = None
        self.outcome: Outcome | None = None
        self._woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def tell(self, outcome: Outcome) -> None:
        """Give the outcome to whoever waits."""
        self.outcome = outcome
        self._wake()

    def look(self) -> None:
        """Have whoever waits look at the record: there is nothing more to be told of here."""
        self.elsewhere = True
        self._wake()

    async def wait(self, clock: Clock, seconds: float) -> Outcome | None:
        """Wait for the outcome; None when the time is over."""
        if self.outcome is None and seconds > 0:
            timer = clock.call_later(seconds, self._wake)
            try:
                await self._woken
            finally:
                timer.cancel()
        return self.outcome

    def _wake(self) -> None:
        if not self._woken.done():
            self._woken.set_result(None)


class Waits:
    """The calls of this process that wait."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        # Called with (workspace, turn) once the row of a call that stood still within that turn is gone.
        self.on_over: Callable[[str, str], None] = lambda workspace_id, turn_id: None
        # Called with a turn that another relay has ended for a call here, which had just stopped waiting.
        self.on_missed: Callable[[str, str], None] = lambda workspace_id, turn_id: None
        self._waiters: dict[tuple[str, str], list[Waiter]] = defaultdict(list)
        # Calls whose turns stand still, by workspace and agent.
        self._blocked: dict[tuple[str, str], list[Waiter]] = {}
        # The turns here that are calls of tools.
        self.tool_turns: set[str] = set()

    def block(self, waiter: Waiter, blocked: Blocked) -> None:
        """Note that the turn which the call comes from stands still until `unblock`."""
        waiter.blocked = blocked
        self._blocked.setdefault((waiter.key[0], blocked.agent_id), []).append(waiter)

    def unblock(self, waiter: Waiter) -> None:
        """Note that the turn goes on."""
        if waiter.blocked is None:
            return
        agent = (waiter.key[0], waiter.blocked.agent_id)
        waiter.blocked = None
        left = [each for each in self._blocked[agent] if each is not waiter]
        if left:
            self._blocked[agent] = left
        else:
            del self._blocked[agent]

    def would_never_end(
        self, workspace_id: str, asking: Blocked, session_id: str, places_of: Callable[[str, str], int]
    ) -> bool:
        """Tell whether a turn of `asking.target`, in this session, would wait for itself in the end.

        Goes by the calls of this process alone, and by the places at its tunnels: what is not seen may move.
        """
        if (workspace_id, asking.target) not in self._blocked:
            return False
        new = "the turn that would be queued"
        still: dict[str, tuple[Blocked, list[str]]] = {asking.turn_id: (asking, [new])}
        graph = [Runs(new, asking.target, session_id or new, queued=True)]
        for (workspace, _), waiters in self._blocked.items():
            for waiter in waiters if workspace == workspace_id else ():
                blocked, target = waiter.blocked, waiter.key[1]
                if blocked is not None:
                    still.setdefault(blocked.turn_id, (blocked, []))[1].append(target)
                    # Unless it stands still itself it is queued, if there is no place for it.
                    graph.append(Runs(target, blocked.target, target, queued=True))
        graph = [turn for turn in graph if turn.id not in still]
        graph += [
            Runs(each.turn_id, each.agent_id, each.session_id, queued=False, waits_for=tuple(targets))
            for each, targets in still.values()
        ]
        graph = [beside(turn) if turn.id in self.tool_turns else turn for turn in graph]
        agents = {turn.agent for turn in graph}
        places = {agent: count for agent in agents if (count := places_of(workspace_id, agent)) > 0}
        return any(turn.id == asking.turn_id for turn in stuck(graph, places))

    def register(self, workspace_id: str, turn_id: str, waiter: Waiter) -> None:
        """Have `waiter` told of the end of this turn."""
        waiter.key = (workspace_id, turn_id)
        if not waiter.gone:
            self._waiters[waiter.key].append(waiter)

    def leave(self, waiter: Waiter) -> None:
        """Stop waiting."""
        waiter.gone = True
        waiters = self._waiters.get(waiter.key)
        if waiters and waiter in waiters:
            waiters.remove(waiter)
            if not waiters:
                del self._waiters[waiter.key]

    def keys(self) -> list[tuple[str, str]]:
        """Return the turns that calls of this process wait for, and questions to owners."""
        return list(self._waiters)

    def ended_elsewhere(self, keys: Iterable[tuple[str, str]]) -> None:
        """Say that turns have ended at another relay, as the record has it."""
        for key in keys:
            for waiter in self._waiters.get(key, ()):
                waiter.look()

    def lose_all(self) -> None:
        """End all waiting: others hold this process for dead and have taken over what it waited for."""
        self.ended_elsewhere(self.keys())

    def count(self) -> int:
        """Return how many calls of this process wait."""
        return sum(map(len, self._waiters.values()))

    def someone(self, workspace_id: str, turn_id: str, principal_id: str) -> bool:
        """Tell whether a call of this principal waits for the turn right now."""
        return any(
            waiter.principal_id == principal_id for waiter in self._waiters.get((workspace_id, turn_id), ())
        )

    def resolve(self, workspace_id: str, turn_id: str, principal_id: str, outcome: Outcome) -> bool:
        """Tell everyone who waits; False when the principal to whom the answer goes is not among them."""
        told = False
        for waiter in self._waiters.pop((workspace_id, turn_id), []):
            waiter.tell(outcome)
            told = told or waiter.principal_id == principal_id
        if not told and outcome.status == "completed":
            self._journal.meters.late_answers += 1
        return told

    def forget(self, workspace_id: str, waiter: Waiter) -> None:
        """Drop a wait's row: its answer was handed over, or the call waits no longer."""
        key, turn_id = (workspace_id, waiter.id), waiter.slot_turn_id
        awaited = waiter.key
        untold = self._journal.shared and waiter.outcome is None and not waiter.elsewhere and awaited[1]

        def remove(book: Book) -> None:
            waiting.remove(book.connection, [key])
            if untold and waiting.was_missed(book.connection, awaited, waiter.principal_id):
                # Up to here another relay took it for one that waits.
                after_commit(book.connection, lambda: self.on_missed(*awaited))
            if turn_id:
                after_commit(book.connection, lambda: self.on_over(workspace_id, turn_id))

        self._journal.along(remove, [workspace_id])
