"""Threads and their messages, and a look at an inbox that takes nothing."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hopline.relay.v1 import message_pb2 as pb
from hopline_directory import Directory
from hopline_directory.records import VIEWER
from hopline_rpc.clock import Clock, from_timestamp
from hopline_rpc.errors import invalid
from hopline_rpc.paging import Pager, fit, page_size
from hopline_rpc.principals import Principal
from sqlalchemy import Connection, Select, Table, select

from hopline_relay.callers import no_message, no_thread
from hopline_relay.inbox import Inbox
from hopline_relay.journal import Journal
from hopline_relay.store import newer, reading
from hopline_relay.store.bulk import by_id
from hopline_relay.store.copies import copies_of
from hopline_relay.store.schema import QUEUED, heads, messages, participants, threads, turns
from hopline_relay.store.sql import Record
from hopline_relay.view import Views

_END: Final = 2**62
# So many messages are shown before the one with which a list begins.
_LEADING: Final = 4

_Members = dict[str, list[tuple[str, str]]]
_Marks = dict[str, list[tuple[str, int]]]


@dataclass(frozen=True, slots=True)
class Span:
    """Threads whose newest message has an ordinal between two others, in one order or the other."""

    after: int
    before: int
    ascending: bool

    def of(self, query: Select[Any], table: Table, most: int) -> Select[Any]:
        """Return the query for `most` rows within."""
        ordinal = table.c.last_ordinal
        order = ordinal if self.ascending else ordinal.desc()
        return query.where(ordinal > self.after, ordinal < self.before).order_by(order).limit(most)


class Threads:
    """Serves the lists of MessageService."""

    def __init__(
        self,
        journal: Journal,
        directory: Directory,
        inbox: Inbox,
        views: Views,
        pager: Pager,
        clock: Clock,
    ) -> None:
        self._journal = journal
        self._directory = directory
        self._inbox = inbox
        self._views = views
        self._pager = pager
        self._clock = clock

    async def list_threads(
        self, principal: Principal, request: pb.ListThreadsRequest
    ) -> pb.ListThreadsResponse:
        """Return the threads in which the reader takes part, or may look, by their activity."""
        size = page_size(request.page_size)
        since = from_timestamp(getattr(request, "from")) if request.HasField("from") else 0.0
        up = request.ascending
        query = ("threads", principal.workspace_id, principal.id, request.agent, since, up)
        position = self._pager.position(query, request.page_token)
        edge = int(position[0]) if position and isinstance(position[0], int) else None
        parties = self._parties(principal, request.agent)

        def read(connection: Connection) -> tuple[list[Record], _Members, _Marks]:
            after = _active_since(connection, principal.workspace_id, since) if since else 0
            span = Span(max(edge or 0, after), _END, up) if up else Span(after, edge or _END, up)
            rows = _by_activity(connection, principal.workspace_id, parties, span, size + 1)
            ids = [row.id for row in rows[:size]]
            members = _members(connection, principal.workspace_id, ids)
            return rows, members, reading.marks(connection, principal.workspace_id, ids)

        rows, members, marks = await self._journal.read(read)
        page = fit(self._views.thread(principal, row, members[row.id], marks[row.id]) for row in rows[:size])
        response = pb.ListThreadsResponse(threads=page)
        if len(rows) > len(page):
            response.next_page_token = self._pager.token(query, [rows[len(page) - 1].last_ordinal])
        return response

    def _parties(self, principal: Principal, ref: str) -> list[str] | None:
        """Return whose threads are listed; None for the whole workspace's."""
        if principal.kind == "agent":
            return [principal.id]
        if ref:
            return [self._directory.resolve_for_person(principal, ref, VIEWER).id]
        if self._directory.workspace_role(principal.workspace_id, principal.id) >= VIEWER:
            return None
        return [principal.id] + [agent.id for agent in self._directory.for_person(principal, VIEWER).ordered]

    async def list_messages(
        self, principal: Principal, request: pb.ListMessagesRequest
    ) -> pb.ListMessagesResponse:
        """Return a thread's messages in order; an agent that is shown an unread one has taken it."""
        size = page_size(request.page_size)
        query = ("messages", principal.workspace_id, principal.id, request.thread_id)
        _check_beginning(request)
        position = self._pager.position(query, request.page_token)
        workspace_id = principal.workspace_id
        members = await self._journal.read(
            lambda connection: _members(connection, workspace_id, [request.thread_id])
        )
        if not self._may_read(principal, members[request.thread_id]):
            raise no_thread(request.thread_id)
        if principal.kind == "agent":
            self._inbox.touch(principal)
        if position and isinstance(position[0], int):
            after = position[0]
        else:
            after = await self._begin(workspace_id, request, size)
        rows, copies = await self._page(workspace_id, request.thread_id, after, size + 1)
        page = fit(self._shown(principal, rows[:size], copies))
        shown = rows[: len(page)]
        if self._takes(principal, shown, copies):
            standing = await self._inbox.standing(principal, request.caller_session_id, "")
            await self._inbox.take_shown(principal, standing, [row.id for row in shown])
            fresh, copies = await self._page(workspace_id, request.thread_id, after, len(shown))
            page = list(self._shown(principal, fresh, copies))
        marks = await self._journal.read(
            lambda connection: reading.marks(connection, workspace_id, [request.thread_id])
        )
        read = self._views.read_marks(principal, marks[request.thread_id])
        response = pb.ListMessagesResponse(messages=page, read=read)
        if len(rows) > len(shown):
            response.next_page_token = self._pager.token(query, [shown[-1].seq])
        if after > 0:
            response.previous_page_token = self._pager.token(query, [max(after - size, 0)])
        return response

    async def _begin(self, workspace_id: str, request: pb.ListMessagesRequest, size: int) -> int:
        """Return the number behind which the page begins that is asked for without a token."""
        if not request.message_id and not request.from_end:
            return 0
        here = messages.c.workspace_id == workspace_id, messages.c.thread_id == request.thread_id
        if request.message_id:
            wanted = select(messages.c.seq).where(*here, messages.c.id == request.message_id)
        else:
            wanted = select(messages.c.seq).where(*here).order_by(messages.c.seq.desc()).limit(1)
        seq = await self._journal.read(lambda connection: connection.execute(wanted).scalar())
        if request.message_id:
            if seq is None:
                raise no_message(request.message_id)
            return max(int(seq) - 1 - _LEADING, 0)
        return max(int(seq or 0) - size, 0)

    def _shown(
        self,
        principal: Principal,
        rows: Sequence[Record],
        copies: dict[tuple[str, str], list[Record]],
    ) -> Iterator[pb.Message]:
        now = self._clock.now()
        for row in rows:
            found = copies[row.workspace_id, row.id]
            if any(copy.recipient_id == principal.id for copy in found):
                yield self._views.received(principal, row, found, now)
            else:
                yield self._views.message(principal, row, found)

    def _may_read(self, principal: Principal, members: Sequence[tuple[str, str]]) -> bool:
        if any(identifier == principal.id for _, identifier in members):
            return True
        if principal.kind != "user":
            return False
        for kind, identifier in members:
            agent = self._directory.agent(principal.workspace_id, identifier) if kind == "agent" else None
            if agent is not None and self._directory.role_on_agent(principal.id, agent) >= VIEWER:
                return True
        return False

    def _takes(
        self,
        principal: Principal,
        rows: Sequence[Record],
        copies: dict[tuple[str, str], list[Record]],
    ) -> bool:
        """Tell whether this page shows the reading agent something unread; a paused one takes nothing."""
        if principal.kind != "agent":
            return False
        agent = self._directory.agent(principal.workspace_id, principal.id)
        if agent is None or agent.state != "active":
            return False
        return any(
            copy.recipient_id == principal.id and copy.state == "queued"
            for row in rows
            for copy in copies[principal.workspace_id, row.id]
        )

    async def _page(
        self, workspace_id: str, thread_id: str, after: int, most: int
    ) -> tuple[Sequence[Record], dict[tuple[str, str], list[Record]]]:
        statement = (
            select(messages)
            .where(
                messages.c.workspace_id == workspace_id,
                messages.c.thread_id == thread_id,
                messages.c.seq > after,
            )
            .order_by(messages.c.seq)
            .limit(most)
        )

        def read(
            connection: Connection,
        ) -> tuple[Sequence[Record], dict[tuple[str, str], list[Record]]]:
            rows = connection.execute(statement).all()
            return rows, copies_of(connection, [(workspace_id, row.id) for row in rows])

        return await self._journal.read(read)

    async def peek(self, principal: Principal, request: pb.PeekInboxRequest) -> pb.PeekInboxResponse:
        """Return an agent's unread messages, oldest first, for a person who only looks."""
        size = page_size(request.page_size)
        agent = self._directory.resolve_for_person(principal, request.agent, VIEWER)
        query = ("inbox", principal.workspace_id, principal.id, agent.id)
        position = self._pager.position(query, request.page_token)
        after = int(position[0]) if position and isinstance(position[0], int) else 0
        statement = (
            select(turns.c.ordinal, turns.c.message_id, turns.c.caused_by_id)
            .where(
                turns.c.workspace_id == agent.workspace_id,
                turns.c.agent_id == agent.id,
                turns.c.state == QUEUED,
                turns.c.ordinal > after,
            )
            .order_by(turns.c.ordinal)
            .limit(size + 1)
        )

        def read(connection: Connection) -> tuple[Sequence[Any], list[Record], Any, Any]:
            queued = connection.execute(statement).all()
            keys = [(agent.workspace_id, row.message_id) for row in queued[:size]]
            rest = []
            if len(queued) > size:
                rest = newer.after(connection, agent.workspace_id, agent.id, queued[size - 1].ordinal)
            return queued, rest, by_id(connection, messages, keys), copies_of(connection, keys)

        queued, rest, found, copies = await self._journal.read(read)
        queue, now = [*queued[:size], *rest], self._clock.now()
        shown = (((agent.workspace_id, row.message_id), row) for row in queued[:size])
        page = fit(
            self._views.received(principal, found[key], copies[key], now, newer.count(row, queue))
            for key, row in shown
        )
        response = pb.PeekInboxResponse(messages=page)
        if len(queued) > len(page):
            response.next_page_token = self._pager.token(query, [queued[len(page) - 1].ordinal])
        return response


def _check_beginning(request: pb.ListMessagesRequest) -> None:
    goes_on = "begins a list: leave it out where page_token goes on with one"
    if request.message_id and request.page_token:
        raise invalid("message_id", goes_on)
    if request.from_end and request.page_token:
        raise invalid("from_end", goes_on)
    if request.from_end and request.message_id:
        raise invalid("from_end", "leave it out where message_id says where to begin")


def _by_activity(
    connection: Connection, workspace_id: str, parties: Sequence[str] | None, span: Span, most: int
) -> list[Record]:
    """Return threads by the ordinal of their newest message: each party's through its index, merged."""
    if parties is None:
        statement = span.of(select(threads).where(threads.c.workspace_id == workspace_id), threads, most)
        return list(connection.execute(statement).all())
    found: dict[str, int] = {}
    for party_id in parties:
        query = select(participants.c.thread_id, participants.c.last_ordinal).where(
            participants.c.workspace_id == workspace_id, participants.c.party_id == party_id
        )
        rows = connection.execute(span.of(query, participants, most))
        found.update((row.thread_id, row.last_ordinal) for row in rows)
    pick = heapq.nsmallest if span.ascending else heapq.nlargest
    picked = pick(most, found, key=found.__getitem__)
    rows_by_id = by_id(connection, threads, {(workspace_id, thread_id) for thread_id in picked})
    return [rows_by_id[workspace_id, thread_id] for thread_id in picked]


def _active_since(connection: Connection, workspace_id: str, at: float) -> int:
    """Return the ordinal behind which threads have a message at `at` or later: ordinals grow with time."""
    high = connection.execute(select(heads.c.ordinal).where(heads.c.workspace_id == workspace_id)).scalar()
    low, high = 0, (high or 0) + 1
    base = select(threads.c.last_at).where(threads.c.workspace_id == workspace_id)
    while low < high:
        middle = (low + high) // 2
        moment = connection.execute(Span(middle, _END, ascending=True).of(base, threads, 1)).scalar()
        if moment is not None and moment < at:
            low = middle + 1
        else:
            high = middle
    return low


def _members(
    connection: Connection, workspace_id: str, thread_ids: Sequence[str]
) -> dict[str, list[tuple[str, str]]]:
    members: dict[str, list[tuple[str, str]]] = {thread_id: [] for thread_id in thread_ids}
    query = select(participants.c.thread_id, participants.c.party_kind, participants.c.party_id).where(
        participants.c.workspace_id == workspace_id, participants.c.thread_id.in_(list(thread_ids))
    )
    for row in connection.execute(query):
        members[row.thread_id].append((row.party_kind, row.party_id))
    return members
