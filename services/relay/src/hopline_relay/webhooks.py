"""People add webhooks to agents, rotate their secrets and remove them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from hopline.relay.v1 import webhook_pb2 as pb
from hopline_directory import Directory
from hopline_directory.records import OPERATOR, AgentRecord
from hopline_rpc.clock import Clock, rfc3339, to_timestamp
from hopline_rpc.errors import HoplineError
from hopline_rpc.ids import IdMaker
from hopline_rpc.paging import Pager, fit, page_size
from hopline_rpc.principals import Principal

from hopline_relay.callers import actor_of
from hopline_relay.domain.sources import MAX_WEBHOOKS, ROTATION_SECONDS
from hopline_relay.journal import Journal
from hopline_relay.starts import fronted
from hopline_relay.store import webhooks as rows
from hopline_relay.store.book import Book
from hopline_relay.store.sql import Record
from hopline_relay.view import Views

_END: Final = 2**62


class Webhooks:
    """Serves WebhookService, but for deliveries. `draw` returns a fresh secret."""

    def __init__(
        self,
        journal: Journal,
        directory: Directory,
        views: Views,
        pager: Pager,
        ids: IdMaker,
        clock: Clock,
        draw: Callable[[], str],
    ) -> None:
        self._journal = journal
        self._directory = directory
        self._views = views
        self._pager = pager
        self._ids = ids
        self._clock = clock
        self._draw = draw

    async def add(self, principal: Principal, request: pb.AddWebhookRequest) -> pb.AddWebhookResponse:
        """Add one, and return its secret this once."""
        agent = fronted(self._directory.resolve_for_person(principal, request.agent, OPERATOR))
        row: dict[str, Any] = {
            "workspace_id": principal.workspace_id,
            "agent_id": agent.id,
            "name": request.name,
            "id": self._ids.new_id("whk"),
            "author_id": principal.id,
            "secret": self._draw(),
            "old_secret": "",
            "old_until": None,
            "created_at": self._clock.now(),
            "rotated_at": None,
        }
        made = await self._journal.write(lambda book: self._add(book, principal, row, agent))
        return pb.AddWebhookResponse(webhook=self._shown(principal, made), secret=made.secret)

    def _add(self, book: Book, principal: Principal, row: dict[str, Any], agent: AgentRecord) -> Record:
        ordinal = book.ordinal(agent.workspace_id)
        key = (agent.workspace_id, agent.id, row["name"])
        if rows.find(book.connection, key) is not None:
            raise HoplineError(
                "failed_precondition",
                f"{agent.name} has a webhook {row['name']!r} already; rotate its secret, or remove it first",
            )
        if rows.count(book.connection, agent.workspace_id, agent.id) >= MAX_WEBHOOKS:
            raise HoplineError(
                "limit_reached",
                f"{agent.name} has {MAX_WEBHOOKS} webhooks, which is all it may have; remove one first",
                details={"limit": MAX_WEBHOOKS, "used": MAX_WEBHOOKS},
            )
        rows.add(book.connection, {**row, "ordinal": ordinal})
        made = _current(book, key)
        self._note(book, made, "webhook.added", principal)
        return made

    async def list(self, principal: Principal, request: pb.ListWebhooksRequest) -> pb.ListWebhooksResponse:
        """Return those of the agents on which the person is operator, newest first."""
        size = page_size(request.page_size)
        query = ("webhooks", principal.workspace_id, principal.id, request.agent)
        position = self._pager.position(query, request.page_token)
        before = int(position[0]) if position and isinstance(position[0], int) else _END
        if request.agent:
            agents = [self._directory.resolve_for_person(principal, request.agent, OPERATOR).id]
        else:
            agents = [agent.id for agent in self._directory.for_person(principal, OPERATOR).ordered]
        found = await self._journal.read(
            lambda connection: rows.newest(connection, principal.workspace_id, agents, before, size + 1)
        )
        page = fit(self._shown(principal, row) for row in found[:size])
        response = pb.ListWebhooksResponse(webhooks=page)
        if len(found) > len(page):
            response.next_page_token = self._pager.token(query, [found[len(page) - 1].ordinal])
        return response

    async def rotate(
        self, principal: Principal, request: pb.RotateWebhookRequest
    ) -> pb.RotateWebhookResponse:
        """Give one another secret, and return it this once."""
        agent = self._directory.resolve_for_person(principal, request.agent, OPERATOR)
        key, secret = (principal.workspace_id, agent.id, request.name), self._draw()

        def op(book: Book) -> Record:
            row = _current(book, key)
            until = None if request.at_once else book.now + ROTATION_SECONDS
            rows.rotate(book.connection, row, secret, until, principal.id, book.now)
            self._note(
                book, row, "webhook.rotated", principal, {"old_until": rfc3339(until)} if until else None
            )
            return _current(book, key)

        rotated = await self._journal.write(op)
        return pb.RotateWebhookResponse(webhook=self._shown(principal, rotated), secret=secret)

    async def remove(self, principal: Principal, request: pb.RemoveWebhookRequest) -> None:
        """Remove one."""
        agent = self._directory.resolve_for_person(principal, request.agent, OPERATOR)
        key = (principal.workspace_id, agent.id, request.name)

        def op(book: Book) -> None:
            row = _current(book, key)
            rows.remove(book.connection, key)
            self._note(book, row, "webhook.removed", principal)

        await self._journal.write(op)

    def _note(
        self,
        book: Book,
        row: Record,
        action: str,
        principal: Principal,
        details: dict[str, Any] | None = None,
    ) -> None:
        known = {"webhook_id": row.id, "name": row.name, **(details or {})}
        actor = actor_of(self._directory, principal)
        book.note(row.workspace_id, action, actor, agent_id=row.agent_id, details=known)

    def _shown(self, principal: Principal, row: Record) -> pb.Webhook:
        agent = self._directory.agent(row.workspace_id, row.agent_id)
        shown = pb.Webhook(
            agent=self._views.party(principal, "agent", row.agent_id, known=True),
            name=row.name,
            path=f"/{agent.slug}/v1/webhooks/{row.name}" if agent is not None else "",
            author=self._views.party(principal, "user", row.author_id),
            created_at=to_timestamp(row.created_at),
        )
        if row.rotated_at is not None:
            shown.rotated_at.CopyFrom(to_timestamp(row.rotated_at))
        if row.old_until is not None and row.old_until > self._clock.now():
            shown.old_until.CopyFrom(to_timestamp(row.old_until))
        return shown


def _current(book: Book, key: rows.Key) -> Record:
    """Return a webhook as it is now, which nobody else changes before this transaction is through."""
    book.lock(key[0])
    row = rows.find(book.connection, key)
    if row is None:
        raise HoplineError("not_found", f"there is no webhook {key[2]!r}", details={"webhook": key[2]})
    return row
