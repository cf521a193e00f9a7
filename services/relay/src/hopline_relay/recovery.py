"""What a start finds of the process before it, and what happens when agents are paused or deleted."""

from __future__ import annotations

from typing import Any

from hopline.registry.v1.agent_pb2 import AGENT_STATE_PAUSED
from hopline.registry.v1.visibility_pb2 import Change
from hopline_directory import Directory
from sqlalchemy import select, update

from hopline_relay.cancel import Cancels
from hopline_relay.domain.values import Fault
from hopline_relay.endings import Endings
from hopline_relay.escalation_ends import EscalationEnds
from hopline_relay.holding import Holding
from hopline_relay.inbox import Inbox
from hopline_relay.journal import Journal
from hopline_relay.sends import Sends
from hopline_relay.siblings import SILENT_SECONDS
from hopline_relay.signals import Signals
from hopline_relay.store import limits, replicas
from hopline_relay.store.book import Book
from hopline_relay.store.schema import instances, turns
from hopline_relay.store.sql import insert
from hopline_relay.turns import Turns


async def begin(journal: Journal, inbox: Inbox, directory: Directory) -> None:
    """Fence processes that died here, and give the workers of what they ran time to come back.

    Where several share the record, those that live are left alone.
    """
    if journal.shared:
        await _begin_beside(journal, inbox, directory)
        return

    def op(book: Book) -> list[tuple[str, str]]:
        connection = book.connection
        connection.execute(update(instances).where(instances.c.ended_at.is_(None)).values(ended_at=book.now))
        insert(
            connection,
            instances,
            [
                {
                    "id": journal.instance_id,
                    "started_at": book.now,
                    "ended_at": None,
                    "seen_at": None,
                    "tunnels": 0,
                    "address": "",
                }
            ],
        )
        running = limits.renew(book, journal.instance_id, directory.policy)
        return [(row.workspace_id, row.agent_id) for row in running if row.run_session_id]

    inbox.remember(await journal.write(op))


async def _begin_beside(journal: Journal, inbox: Inbox, directory: Directory) -> None:
    def op(book: Book) -> bool:
        replicas.fence(book.connection, SILENT_SECONDS)
        replicas.begin(book.connection, journal.instance_id, book.now)
        return not replicas.others(book.connection, journal.instance_id)

    # Whoever is the first again does not know how long nobody was there to be heard of by workers.
    await take_over(journal, inbox, directory, everything=await journal.write(op))


async def take_over(
    journal: Journal, inbox: Inbox, directory: Directory, *, everything: bool = False
) -> None:
    """Give the workers of dead relays a whole lease to come back to a live one."""

    def op(book: Book) -> list[tuple[str, str]]:
        of = None if everything else replicas.dead(book.connection)
        running = limits.renew(book, journal.instance_id, directory.policy, of=of)
        return [(row.workspace_id, row.agent_id) for row in running if row.run_session_id]

    inbox.remember(await journal.write(op))


async def end(journal: Journal) -> None:
    """Say that this process is gone for good."""

    def op(book: Book) -> None:
        book.connection.execute(
            update(instances).where(instances.c.id == journal.instance_id).values(ended_at=book.now)
        )

    await journal.write(op)


class Departures:
    """Ends what an agent runs and owes when it is paused or deleted, and its tunnels with its tokens."""

    def __init__(
        self,
        journal: Journal,
        directory: Directory,
        sends: Sends,
        endings: Endings,
        cancels: Cancels,
        escalations: EscalationEnds,
        tunnels: Turns,
        holding: Holding,
        signals: Signals,
    ) -> None:
        self._journal = journal
        self._sends = sends
        self._endings = endings
        self._directory = directory
        self._cancels = cancels
        self._escalations = escalations
        self._tunnels = tunnels
        self._holding = holding
        self._signals = signals

    async def changed(self, changes: list[Change]) -> None:
        """Follow the registry's changes; everything is done when this returns."""
        for change in changes:
            kind = change.WhichOneof("entity")
            if kind == "agent":
                await self._agent(change)
            elif kind == "agent_deleted":
                await self._gone(
                    change.workspace_id,
                    change.agent_deleted,
                    Fault("canceled", "the agent was deleted"),
                    deleted=True,
                )
            elif kind == "policy":
                self._tunnels.on_policy(change.workspace_id)
            elif kind == "token_revoked":
                token = change.token_revoked
                self._tunnels.on_agent_gone(
                    change.workspace_id,
                    token.subject_id,
                    token.id,
                    "unauthenticated",
                    "a valid credential is needed",
                )

    async def catch_up(self) -> None:
        """Do for every agent what was missed while no process of the relay was there."""
        for workspace in self._directory.workspaces():
            for agent_id in await self._busy(workspace.id):
                agent = self._directory.agent(workspace.id, agent_id)
                if agent is None:
                    continue
                if agent.deleted:
                    fault = Fault("canceled", "the agent was deleted")
                    await self._gone(workspace.id, agent_id, fault, deleted=True)
                elif agent.state == "paused":
                    await self._paused(workspace.id, agent_id)

    async def _busy(self, workspace_id: str) -> list[str]:
        query: Any = (
            select(turns.c.agent_id)
            .where(turns.c.workspace_id == workspace_id, turns.c.due_at.is_not(None))
            .distinct()
        )
        return list(await self._journal.read(lambda connection: connection.execute(query).scalars().all()))

    async def _agent(self, change: Change) -> None:
        await self._escalations.owned_by(change.workspace_id, change.agent.id, change.agent.owner_id)
        if change.agent.state == AGENT_STATE_PAUSED:
            await self._paused(change.workspace_id, change.agent.id)
        else:
            # It may have been resumed, or may be reached by others now.
            self._signals.claimable({(change.workspace_id, change.agent.id)})

    async def _paused(self, workspace_id: str, agent_id: str) -> None:
        await self._gone(workspace_id, agent_id, Fault("agent_paused", "the agent was paused"), deleted=False)

    async def _gone(self, workspace_id: str, agent_id: str, fault: Fault, *, deleted: bool) -> None:
        code = "unauthenticated" if deleted else "agent_paused"
        try:
            await self._cancels.agent_stopped(workspace_id, agent_id, fault, deleted=deleted)
        finally:
            self._tunnels.on_agent_gone(workspace_id, agent_id, "", code, fault.message)
        # What was decided on before the agent stopped may have been written after we looked.
        await self._sends.begun_before()
        await self._endings.begun_before()
        await self._cancels.agent_stopped(workspace_id, agent_id, fault, deleted=deleted)
        await self._escalations.agent_gone(workspace_id, agent_id, fault.message)
        await self._holding.agent_gone(workspace_id, agent_id)
