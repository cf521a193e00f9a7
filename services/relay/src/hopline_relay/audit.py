"""The audit log for those who read it: pages, and events as they are committed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Final

from google.protobuf import json_format
from hopline.relay.v1 import audit_pb2 as pb
from hopline_directory import Directory
from hopline_directory.records import ADMIN, VIEWER
from hopline_rpc.clock import from_timestamp, to_timestamp
from hopline_rpc.paging import Pager, fit, page_size
from hopline_rpc.principals import Principal
from sqlalchemy import Connection

from hopline_relay.journal import Journal
from hopline_relay.store import audit
from hopline_relay.store.audit import Filter, Found
from hopline_relay.store.book import OWNER
from hopline_relay.store.sql import Record
from hopline_relay.view import SOMEBODY

_PAGE: Final = 200
_END: Final = 2**62


class Audit:
    """Serves AuditService."""

    def __init__(self, journal: Journal, directory: Directory, pager: Pager) -> None:
        self._journal = journal
        self._directory = directory
        self._pager = pager
        self._watching: dict[asyncio.Event, str] = {}
        journal.on_audit(self._grown)

    async def list_events(self, principal: Principal, request: pb.ListEventsRequest) -> pb.ListEventsResponse:
        """Return a page of events, oldest first or newest first."""
        size = page_size(request.page_size)
        since = getattr(request, "from")
        wanted = Filter(
            principal.workspace_id,
            self._agents(principal, request.agent),
            request.action,
            from_timestamp(since) if request.HasField("from") else 0.0,
            from_timestamp(request.to) if request.HasField("to") else 0.0,
            request.thread_id,
            self._actor(principal, request.actor),
        )
        query = (
            "audit",
            principal.workspace_id,
            principal.id,
            request.agent,
            request.action,
            request.thread_id,
            wanted.since,
            wanted.until,
            request.after_seq,
            request.descending,
            request.actor,
        )
        position = self._pager.position(query, request.page_token)
        seen = int(position[0]) if position and isinstance(position[0], int) else None
        down = request.descending
        after, before = (request.after_seq, seen or _END) if down else (seen or request.after_seq, _END)
        found = await self._read(wanted, after, before, descending=down, most=size)
        page = fit(self._event(principal, row) for row in found.rows)
        response = pb.ListEventsResponse(events=page)
        if len(page) < len(found.rows):
            response.next_page_token = self._pager.token(query, [page[-1].seq])
        elif found.more:
            response.next_page_token = self._pager.token(query, [found.reached])
        return response

    async def watch(
        self, principal: Principal, request: pb.WatchEventsRequest
    ) -> AsyncIterator[pb.WatchEventsResponse]:
        """Yield events after a number as they are committed."""
        news = asyncio.Event()
        self._watching[news] = principal.workspace_id
        seen = request.after_seq
        try:
            while True:
                news.clear()
                # What the reader may see is asked anew: a role may have been taken away meanwhile.
                wanted = Filter(
                    principal.workspace_id,
                    self._agents(principal, request.agent),
                    request.action,
                    thread_id=request.thread_id,
                )
                found = await self._read(wanted, seen, _END, descending=False, most=_PAGE)
                page = fit(self._event(principal, row) for row in found.rows)
                whole = len(page) == len(found.rows)
                seen = max(seen, found.reached) if whole else page[-1].seq
                if page:
                    yield pb.WatchEventsResponse(events=page)
                if whole and not found.more:
                    await news.wait()
        finally:
            del self._watching[news]

    async def _read(self, wanted: Filter, after: int, before: int, *, descending: bool, most: int) -> Found:
        def read(connection: Connection) -> Found:
            return audit.read(
                connection, wanted, after=after, before=before, descending=descending, most=most
            )

        return await self._journal.read(read)

    def _agents(self, principal: Principal, ref: str) -> tuple[str, ...] | None:
        """Return whose events the reader may see and wants; None for all of the workspace's."""
        if ref:
            return (self._directory.resolve_for_person(principal, ref, VIEWER).id,)
        if self._directory.workspace_role(principal.workspace_id, principal.id) >= ADMIN:
            return None
        return tuple(agent.id for agent in self._directory.for_person(principal, VIEWER).ordered)

    def _actor(self, principal: Principal, ref: str) -> str:
        """Return the id of the person or the agent whose acts the reader wants; empty for everybody's."""
        person = self._directory.person(principal.workspace_id, ref) if ref else None
        if person is not None:
            return person.id
        return self._directory.resolve_for_person(principal, ref, VIEWER).id if ref else ""

    def _grown(self, workspaces: list[str]) -> None:
        for news, workspace_id in self._watching.items():
            if workspace_id in workspaces:
                news.set()

    def _event(self, reader: Principal, row: Record) -> pb.Event:
        event = pb.Event(
            seq=row.seq,
            at=to_timestamp(row.at),
            action=row.action,
            actor_kind=row.actor_kind,
            thread_id=row.thread_id,
            message_id=row.message_id,
            trace_id=row.trace_id,
        )
        details = json.loads(row.details) if row.details else {}
        owner = details.pop(OWNER, "")
        sees_actor = row.actor_kind != "agent" or self._may_see(reader, row.actor_id)
        sees_agent = not row.agent_id or self._may_see(reader, row.agent_id)
        # Who wrote to an agent, and to whom it wrote, is known to it, and so to who may look at it.
        dealt = row.action == "message.sent" and (sees_actor or sees_agent)
        if sees_actor or dealt:
            event.actor_id, event.actor_name = row.actor_id, row.actor_name or self._name(row)
            event.actor_display = f"{event.actor_name} (for {owner})" if owner else event.actor_name
        else:
            event.actor_name = event.actor_display = SOMEBODY
        if sees_agent or dealt:
            event.agent_id = row.agent_id
        if sees_agent:
            event.turn_id, event.session_id = row.turn_id, row.session_id
        if self._directory.workspace_role(reader.workspace_id, reader.id) < VIEWER:
            # Why a name was refused tells whether there is such an agent.
            details.pop("reason", None)
        if details:
            json_format.ParseDict(details, event.details)
        return event

    def _may_see(self, reader: Principal, agent_id: str) -> bool:
        """Tell whether a person may be told of an agent; who sees the workspace is told of all there were."""
        if self._directory.workspace_role(reader.workspace_id, reader.id) >= VIEWER:
            return True
        return self._directory.may_know(reader, agent_id)

    def _name(self, row: Record) -> str:
        """Return the name of an agent that an event names by id alone: turns are written in haste."""
        agent = self._directory.agent(row.workspace_id, row.actor_id) if row.actor_kind == "agent" else None
        return agent.name if agent is not None else ""
