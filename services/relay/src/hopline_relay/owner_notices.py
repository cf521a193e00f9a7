"""What owners are told by the webhooks that were set for them: each class is one kind of post."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import grpc.aio
from hopline.registry.v1.identity_pb2 import GetUserWebhookRequest, GetUserWebhookResponse
from hopline.registry.v1.identity_pb2_grpc import IdentityServiceStub
from hopline_directory import Directory
from hopline_rpc.clock import rfc3339
from hopline_rpc.errors import HoplineError
from sqlalchemy import Connection

from hopline_relay.domain.left import NO_PROGRESS
from hopline_relay.domain.values import MESH
from hopline_relay.escalation_ends import note_escalation
from hopline_relay.journal import Journal
from hopline_relay.outbox import Post, is_last
from hopline_relay.store import escalating, outbox, queues, roots, todos
from hopline_relay.store.book import Book
from hopline_relay.store.escalating import options_of
from hopline_relay.store.sql import Record

# Of the todos of a list that sleeps its owner is told the first.
_TODOS_TOLD: Final = 20


class Addresses:
    """Where owners are told, and what every notice says of mesh and people."""

    def __init__(self, directory: Directory, registry: grpc.aio.Channel) -> None:
        self.directory = directory
        self._stub = IdentityServiceStub(registry)

    async def webhook(self, row: Record) -> GetUserWebhookResponse | None:
        """Return where the recipient is told; None when that was taken away."""
        request = GetUserWebhookRequest(workspace_id=row.workspace_id, user_id=row.recipient_id)
        try:
            found: GetUserWebhookResponse = await self._stub.GetUserWebhook(request)
        except HoplineError as error:
            if error.reason == "not_found":
                return None
            raise
        return found

    def workspace(self, row: Record) -> dict[str, str]:
        """Return the workspace as a body names it."""
        workspace = self.directory.workspace(row.workspace_id)
        return {"id": row.workspace_id, "name": workspace.name if workspace is not None else ""}

    def agent(self, workspace_id: str, agent_id: str) -> dict[str, str]:
        """Return an agent as a body names it."""
        agent = self.directory.agent(workspace_id, agent_id)
        return {"id": agent_id, "name": agent.name if agent is not None else ""}

    def is_owner(self, row: Record, agent_id: str) -> bool:
        """Tell whether the agent still is the recipient's, and is."""
        agent = self.directory.agent(row.workspace_id, agent_id)
        return agent is not None and not agent.deleted and agent.owner_id == row.recipient_id


class Notice(ABC):
    """What an owner is told, again and again until it was taken, or was said as often as it may be."""

    def __init__(self, journal: Journal, addresses: Addresses) -> None:
        self._journal = journal
        self._addresses = addresses

    async def compose(self, row: Record) -> Post | None:
        """Return what the owner is told; None where it is out of date, or has nowhere to go."""
        body = await self.body(row)
        webhook = await self._addresses.webhook(row) if body is not None else None
        return None if webhook is None or body is None else Post(webhook.url, webhook.secret, body)

    def settle(self, book: Book, row: Record, problem: str, pause: float) -> None:
        """Note that the owner was told, or have it tried again, or give it up."""
        if problem and not is_last(row):
            outbox.put_off(book.connection, row, book.now + pause, problem)
        elif outbox.remove(book.connection, row):
            details = {"reason": problem} if problem else {}
            self.note(book, row, "not_notified" if problem else "notified", details)

    @abstractmethod
    async def body(self, row: Record) -> dict[str, Any] | None:
        """Return what is said; None once it is out of date."""

    @abstractmethod
    def note(self, book: Book, row: Record, outcome: str, details: dict[str, str]) -> None:
        """Say in the audit log whether the owner was told."""


class EscalationNotices(Notice):
    """A question of an agent to its owner; told while it is pending, and to the owner it has then."""

    async def body(self, row: Record) -> dict[str, Any] | None:
        """Return the question, unless it has ended or is another owner's by now."""
        asked = await self._journal.read(partial(_escalation, row=row))
        if asked is None or asked.state != "pending" or asked.owner_id != row.recipient_id:
            return None
        owner = self._addresses.directory.user(asked.workspace_id, asked.owner_id)
        return {
            "event": "escalation.asked",
            "workspace": self._addresses.workspace(row),
            "escalation": {
                "id": asked.id,
                "agent": self._addresses.agent(asked.workspace_id, asked.agent_id),
                "owner": {"id": asked.owner_id, "name": owner.name if owner is not None else ""},
                "question": asked.question,
                "options": options_of(asked),
                "created_at": rfc3339(asked.created_at),
                "expires_at": rfc3339(asked.expires_at),
            },
            "answer_with": f"hopline answer {asked.id} TEXT",
        }

    def note(self, book: Book, row: Record, outcome: str, details: dict[str, str]) -> None:
        """Say it with the question."""
        asked = _escalation(book.connection, row)
        if asked is not None:
            note_escalation(book, asked, f"escalation.{outcome}", MESH, details)


class RootNotices(Notice):
    """A root that was refused further turns; told until somebody extends it."""

    async def body(self, row: Record) -> dict[str, Any] | None:
        """Return which root it is, unless it was extended meanwhile."""
        workspace_id, root_id = row.workspace_id, row.subject_id

        def read(connection: Connection) -> tuple[Record | None, int]:
            return roots.find(connection, workspace_id, root_id), roots.count(
                connection, workspace_id, root_id
            )

        kept, used = await self._journal.read(read)
        if kept is None or kept.exhausted_at is None or not self._addresses.is_owner(row, kept.agent_id):
            return None
        policy = self._addresses.directory.policy(workspace_id)
        return {
            "event": "root.exhausted",
            "workspace": self._addresses.workspace(row),
            "root": {
                "id": root_id,
                "agent": self._addresses.agent(workspace_id, kept.agent_id),
                "turns": used,
                "limit": policy.root_turns + kept.extra_turns,
                "exhausted_at": rfc3339(kept.exhausted_at),
            },
            "extend_with": f"hopline root extend {root_id} N",
        }

    def note(self, book: Book, row: Record, outcome: str, details: dict[str, str]) -> None:
        """Say it with the root."""
        kept = roots.find(book.connection, row.workspace_id, row.subject_id)
        agent_id = kept.agent_id if kept is not None else ""
        about = {"root_id": row.subject_id, "owner_id": row.recipient_id}
        book.note(row.workspace_id, f"root.{outcome}", MESH, agent_id=agent_id, details={**about, **details})


class WakeFailedNotices(Notice):
    """An agent that could not be woken; told while that is so."""

    async def body(self, row: Record) -> dict[str, Any] | None:
        """Return which agent it is and why, unless its worker has come since."""
        workspace_id, agent_id = row.workspace_id, row.subject_id

        def read(connection: Connection) -> tuple[Record | None, int]:
            wakes = outbox.wakes(connection, workspace_id, [agent_id])
            return wakes.get(agent_id), queues.count_queued(connection, workspace_id, agent_id)

        wake, waiting = await self._journal.read(read)
        if wake is None or wake.ended_at is None or not self._addresses.is_owner(row, agent_id):
            return None
        return {
            "event": "wake.failed",
            "workspace": self._addresses.workspace(row),
            "agent": self._addresses.agent(workspace_id, agent_id),
            "waiting": waiting,
            "attempts": wake.attempts,
            "reason": wake.problem,
        }

    def note(self, book: Book, row: Record, outcome: str, details: dict[str, str]) -> None:
        """Say it with the agent."""
        about = {"owner_id": row.recipient_id, **details}
        book.note(row.workspace_id, f"wake.{outcome}", MESH, agent_id=row.subject_id, details=about)


class TodosAsleepNotices(Notice):
    """Todos that woke their session in vain and sleep now; told while they do."""

    async def body(self, row: Record) -> dict[str, Any] | None:
        """Return which session it is and what is open there, unless the list is awake again."""
        workspace_id, session_id = row.workspace_id, row.subject_id

        def read(connection: Connection) -> tuple[Record | None, Sequence[Record]]:
            return (
                todos.list_of(connection, workspace_id, session_id),
                todos.open_of(connection, workspace_id, session_id),
            )

        listed, noted = await self._journal.read(read)
        if listed is None or listed.reason != NO_PROGRESS:
            return None
        if not self._addresses.is_owner(row, listed.agent_id):
            return None
        return {
            "event": "todos.asleep",
            "workspace": self._addresses.workspace(row),
            "agent": self._addresses.agent(workspace_id, listed.agent_id),
            "session_id": session_id,
            "wakes": listed.wakes,
            "open": len(noted),
            "todos": [{"id": todo.id, "text": todo.body} for todo in noted[:_TODOS_TOLD]],
            "asleep_at": rfc3339(listed.asleep_at),
            "look_with": f"hopline todos {session_id}",
        }

    def note(self, book: Book, row: Record, outcome: str, details: dict[str, str]) -> None:
        """Say it with the session."""
        listed = todos.list_of(book.connection, row.workspace_id, row.subject_id)
        book.note(
            row.workspace_id,
            f"todos.{outcome}",
            MESH,
            agent_id=listed.agent_id if listed is not None else "",
            session_id=row.subject_id,
            details={"owner_id": row.recipient_id, **details},
        )


def _escalation(connection: Connection, row: Record) -> Record | None:
    return escalating.find(connection, (row.workspace_id, row.subject_id))
