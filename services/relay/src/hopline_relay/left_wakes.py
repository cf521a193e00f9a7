"""What ends what sessions have left to themselves before its time: a cancellation, the end of an agent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from hopline.registry.v1.agent_pb2 import AGENT_STATE_ACTIVE
from hopline.registry.v1.visibility_pb2 import Change
from hopline_directory import Directory
from hopline_rpc.clock import Clock
from hopline_rpc.ids import IdMaker

from hopline_relay.domain.left import CANCELED
from hopline_relay.domain.values import MESH
from hopline_relay.journal import Journal
from hopline_relay.mesh_wakes import MeshWakes
from hopline_relay.signals import Signals
from hopline_relay.store import subtree, timers, todo_looks, todos
from hopline_relay.store.book import Book
from hopline_relay.store.sql import Record
from hopline_relay.timer_wakes import TimerWakes
from hopline_relay.todo_wakes import TodoWakes


class Left:
    """Brings back what is due, and ends what is not to be."""

    def __init__(
        self,
        journal: Journal,
        directory: Directory,
        wakes: MeshWakes,
        signals: Signals,
        ids: IdMaker,
        clock: Clock,
    ) -> None:
        self._journal = journal
        self._directory = directory
        self._signals = signals
        self.todos = TodoWakes(journal, directory, wakes, signals, ids, clock)
        self.timers = TimerWakes(journal, wakes, clock)

    def notify(self, tell: Callable[[], None]) -> None:
        """Have `tell` called when an owner is to be told that a list sleeps."""
        self.todos.on_notice = tell

    def start(self) -> None:
        """Begin to look."""
        self.todos.looking.start()
        self.timers.looking.start()

    async def close(self) -> None:
        """Stop; what is due then is found by the next process."""
        await self.todos.looking.close()
        await self.timers.looking.close()

    async def turns_canceled(self, turns: Sequence[Record]) -> None:
        """End what goes on only for turns that were cancelled: timers go, and lists of todos sleep."""
        for workspace_id in {turn.workspace_id for turn in turns}:
            ids = {turn.id for turn in turns if turn.workspace_id == workspace_id}
            agents = {turn.agent_id for turn in turns if turn.workspace_id == workspace_id}
            found = await self._journal.read(
                partial(subtree.left_by, workspace_id=workspace_id, agents=agents, above=ids)
            )
            if found.timers or found.lists:
                await self._journal.write(partial(_end, found=found))
                self._signals.todos_changed({(workspace_id, row.session_id) for row in found.lists})

    # --- agents that go, and come back ------------------------------------------------------------

    async def changed(self, changes: list[Change]) -> None:
        """Follow the registry's changes."""
        for change in changes:
            kind = change.WhichOneof("entity")
            if kind == "agent_deleted":
                await self._deleted(change.workspace_id, change.agent_deleted)
            elif kind == "agent" and change.agent.state == AGENT_STATE_ACTIVE:
                await self.todos.agent_active(change.workspace_id, change.agent.id)
                await self.timers.agent_active(change.workspace_id, change.agent.id)

    async def catch_up(self) -> None:
        """Do what was missed while no process of the relay was there."""
        await self.todos.catch_up()
        for find in (todo_looks.agents_with_any, timers.agents_with_any):
            for workspace_id, agent_id in await self._journal.read(find):
                agent = self._directory.agent(workspace_id, agent_id)
                if agent is not None and agent.deleted:
                    await self._deleted(workspace_id, agent_id)

    async def _deleted(self, workspace_id: str, agent_id: str) -> None:
        await self.todos.agent_deleted(workspace_id, agent_id)
        await self.timers.agent_deleted(workspace_id, agent_id)


def _end(book: Book, found: subtree.LeftBy) -> None:
    for row in found.timers:
        book.lock(row.workspace_id)
        if timers.remove(book, row):
            timers.note(book, row, "timer.dropped", MESH, {"reason": CANCELED})
    for row in found.lists:
        book.lock(row.workspace_id)
        key = (row.workspace_id, row.session_id)
        listed = todos.list_of(book.connection, *key)
        if listed is None:
            continue
        todos.sleep(book, key, CANCELED, listed.seen_turn_id)
        if not listed.reason:
            details = {"reason": CANCELED}
            book.note(key[0], "todos.asleep", MESH, agent_id=row.agent_id, session_id=key[1], details=details)
