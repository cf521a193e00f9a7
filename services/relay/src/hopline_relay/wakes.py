"""Agents that sleep: no tunnel, a webhook that starts their worker. One that has work is woken.

A message that is queued for such an agent is a hint; a look at the record each second finds what no hint told
of. The wake itself is a row of the outbox, one for each agent however much waits: it is said again until a
tunnel attaches or nothing waits any more, and in the end given up. What is queued after that begins anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

import grpc.aio
from hopline.registry.v1.agent_pb2 import GetWakeWebhookRequest
from hopline.registry.v1.agent_pb2_grpc import AgentServiceStub
from hopline.registry.v1.visibility_pb2 import Change
from hopline_directory import AgentRecord, Directory
from hopline_rpc.calls import detach
from hopline_rpc.clock import Clock
from hopline_rpc.errors import HoplineError
from hopline_rpc.ids import IdMaker
from sqlalchemy import Connection

from hopline_relay.domain.notices import STARTING_SECONDS
from hopline_relay.domain.values import MESH, sibling
from hopline_relay.journal import Journal
from hopline_relay.outbox import Outbox, Post, is_last
from hopline_relay.signals import Agent, Signals
from hopline_relay.store import outbox, queues
from hopline_relay.store.book import Book
from hopline_relay.store.bulk import grouped
from hopline_relay.store.sql import Record

log = logging.getLogger("hopline.relay.wakes")

SWEEP_SECONDS: Final = 1.0
_NOBODY_CAME: Final = "it was called, and no worker came"


class Wakes:
    """Finds who is to be woken, and is the outbox's kind of post that does it."""

    def __init__(
        self,
        journal: Journal,
        directory: Directory,
        registry: grpc.aio.Channel,
        posts: Outbox,
        is_awake: Callable[[str, str], bool],
        signals: Signals,
        ids: IdMaker,
        clock: Clock,
    ) -> None:
        self._journal = journal
        self._directory = directory
        self._stub = AgentServiceStub(registry)
        self._outbox = posts
        self._is_awake = is_awake
        self._ids = ids
        self._clock = clock
        # Who is woken by a webhook, and who of them has a wake, given up or not.
        self._woken: set[Agent] = set()
        self._called: set[Agent] = set()
        self._hinted: set[Agent] = set()
        self._news = asyncio.Event()
        self._sweep_at = clock.monotonic()
        self._task: asyncio.Task[None] | None = None
        signals.on_claimable(self._hint)

    async def start(self) -> None:
        """Begin to wake; whoever had work while no process was there comes first."""
        self._called = await self._journal.read(outbox.all_wakes)
        for workspace in self._directory.workspaces():
            self._woken |= {
                (workspace.id, each.id) for each in self._directory.agents(workspace.id) if _is_woken(each)
            }
        self._task = detach(self._run(), name="relay wakes")

    async def close(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    # --- what is heard ----------------------------------------------------------------------------

    def _hint(self, agents: set[Agent]) -> None:
        if found := agents & self._woken:
            self._hinted |= found
            self._news.set()

    def attached(self, workspace_id: str, agent_id: str) -> None:
        """Note that a worker of the agent is there: nobody needs to be called any more."""
        self._forget((workspace_id, agent_id))

    def changed(self, changes: list[Change]) -> None:
        """Follow the registry: a new definition is tried anew."""
        for change in changes:
            kind = change.WhichOneof("entity")
            if kind in {"agent", "agent_deleted"}:
                key = change.workspace_id, change.agent.id if kind == "agent" else change.agent_deleted
                self._forget(key)
                agent = self._directory.agent(*key)
                if agent is not None and _is_woken(agent):
                    self._woken.add(key)
                    self._hint({key})
                else:
                    self._woken.discard(key)

    def _forget(self, key: Agent) -> None:
        if key in self._called:
            self._called.discard(key)
            self._journal.along(lambda book: outbox.remove_wake(book.connection, *key))

    # --- looking ----------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self._news.clear()
            hinted, self._hinted = self._hinted, set()
            if self._clock.monotonic() >= self._sweep_at:
                self._sweep_at = self._clock.monotonic() + SWEEP_SECONDS
                hinted = set(self._woken)
            try:
                await self.look(hinted)
            except HoplineError as error:
                log.warning("agents are woken later: %s", error.message)
            except Exception:
                log.exception("nobody can be woken just now")
            # While nobody is woken by a webhook there is nothing to look for.
            timer = self._clock.call_later(SWEEP_SECONDS, self._news.set) if self._woken else None
            try:
                await self._news.wait()
            finally:
                if timer is not None:
                    timer.cancel()

    async def look(self, agents: Iterable[Agent]) -> None:
        """Have those of the agents called that sleep, have work and are not called already."""
        asleep = {key for key in agents if not self._is_awake(*key)}
        if not asleep:
            return
        found = await self._journal.read(partial(_to_call, agents=asleep))
        if not found:
            return
        fresh = {key: self._ids.new_id("wak") for key in found}
        self._called |= found
        await self._journal.write(partial(_call, fresh=fresh))
        self._outbox.wake()

    # --- the post ---------------------------------------------------------------------------------

    async def compose(self, row: Record) -> Post | None:
        """Return what starts the worker; None where it is there, or has nothing to do."""
        key = (row.workspace_id, row.subject_id)
        agent = self._directory.agent(*key)
        if agent is None or not _is_woken(agent) or self._is_awake(*key):
            return None
        waiting = await self._journal.read(lambda connection: queues.count_queued(connection, *key))
        if not waiting:
            return None
        try:
            request = GetWakeWebhookRequest(workspace_id=agent.workspace_id, agent_id=agent.id)
            webhook = await self._stub.GetWakeWebhook(request)
        except HoplineError as error:
            if error.reason == "not_found":
                return None
            raise
        return Post(webhook.url, webhook.secret, self._body(agent, waiting))

    def settle(self, book: Book, row: Record, problem: str, pause: float) -> None:
        """Have it called again unless a worker comes, or give it up and tell its owner."""
        if is_last(row):
            if outbox.give_up(book.connection, row, book.now, problem or _NOBODY_CAME):
                self._note(book, row, "wake.failed", {"reason": problem or _NOBODY_CAME})
                self._tell_owner(book, row)
            return
        # Whoever was reached gets time to start a worker.
        seconds = pause if problem else max(pause, STARTING_SECONDS)
        if outbox.put_off(book.connection, row, book.now + seconds, problem) and not problem:
            self._note(book, row, "wake.called", {})

    def _note(self, book: Book, row: Record, action: str, details: Mapping[str, Any]) -> None:
        about = {"attempts": row.attempts + 1, **details}
        book.note(row.workspace_id, action, MESH, agent_id=row.subject_id, details=about)

    def _tell_owner(self, book: Book, row: Record) -> None:
        agent = self._directory.agent(row.workspace_id, row.subject_id)
        owner = self._directory.user(row.workspace_id, agent.owner_id) if agent is not None else None
        if owner is not None and owner.has_webhook:
            key = (row.workspace_id, sibling("ntc", row.id))
            outbox.add(book.connection, key, outbox.WAKE_FAILED, row.subject_id, owner.id, book.now)

    def _body(self, agent: AgentRecord, waiting: int) -> dict[str, Any]:
        workspace = self._directory.workspace(agent.workspace_id)
        return {
            "event": "agent.wake",
            "workspace": {"id": agent.workspace_id, "name": workspace.name if workspace is not None else ""},
            "agent": {"id": agent.id, "slug": agent.slug, "name": agent.name},
            "waiting": waiting,
        }


def _is_woken(agent: AgentRecord) -> bool:
    """Tell whether a webhook starts the agent's worker when there is work for it."""
    return (
        agent.wake == "webhook" and agent.has_webhook_secret and agent.state == "active" and not agent.deleted
    )


def _to_call(connection: Connection, agents: set[Agent]) -> set[Agent]:
    """Return those of the agents that have work and are not called for it."""
    found = set()
    for workspace_id, ids in grouped(agents).items():
        work = queues.work_of(connection, workspace_id, ids)
        wakes = outbox.wakes(connection, workspace_id, list(work)) if work else {}
        for agent_id, waits in work.items():
            wake = wakes.get(agent_id)
            # One that was given up is tried again for what came after that.
            if wake is None or (wake.ended_at is not None and waits.newest > wake.ended_at):
                found.add((workspace_id, agent_id))
    return found


def _call(book: Book, fresh: Mapping[Agent, str]) -> None:
    connection = book.connection
    for (workspace_id, agent_id), wake_id in fresh.items():
        earlier = outbox.wakes(connection, workspace_id, [agent_id]).get(agent_id)
        if earlier is None or earlier.ended_at is not None:
            outbox.remove_wake(connection, workspace_id, agent_id)
            key = (workspace_id, wake_id)
            outbox.add(connection, key, outbox.WAKING, agent_id, agent_id, book.now)
