"""Sessions and their transcripts, where an agent stands, and who is there."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any, NamedTuple

from hopline.relay.v1 import session_pb2 as pb
from hopline_directory import Directory
from hopline_directory.records import VIEWER, AgentRecord
from hopline_rpc.clock import Clock, to_timestamp
from hopline_rpc.paging import Pager, fit, page_size
from hopline_rpc.principals import Principal
from sqlalchemy import Connection, and_, exists, select

from hopline_relay.callers import no_session
from hopline_relay.domain.values import TASK, TOOL
from hopline_relay.hold_views import HoldViews
from hopline_relay.hooks.items import Words
from hopline_relay.inbox import Inbox
from hopline_relay.journal import Journal
from hopline_relay.peers import leads_in
from hopline_relay.refusals import Refusals
from hopline_relay.store import hooking, outputs, queues, transcripts
from hopline_relay.store.bulk import by_id
from hopline_relay.store.linked import Linked, linked
from hopline_relay.store.schema import children, sessions
from hopline_relay.store.sessions import inbox_of
from hopline_relay.store.sql import Record
from hopline_relay.turns import Turns
from hopline_relay.view import Views, source_name


class Sessions:
    """Serves SessionService, but for prompts."""

    def __init__(
        self,
        journal: Journal,
        directory: Directory,
        inbox: Inbox,
        tunnels: Turns,
        refusals: Refusals,
        views: Views,
        hold_views: HoldViews,
        pager: Pager,
        clock: Clock,
    ) -> None:
        self._journal = journal
        self._directory = directory
        self._inbox = inbox
        self._tunnels = tunnels
        self._refusals = refusals
        self._views = views
        self._hold_views = hold_views
        self._pager = pager
        self._clock = clock

    async def list_sessions(
        self, principal: Principal, request: pb.ListSessionsRequest
    ) -> pb.ListSessionsResponse:
        """Return the sessions that the reader may see, newest first."""
        size = page_size(request.page_size)
        query = (
            "sessions",
            principal.workspace_id,
            principal.id,
            request.agent,
            request.opened_by_session_id,
            request.children_only,
            *((request.channel,) if request.channel else ()),
        )
        position = self._pager.position(query, request.page_token)
        before = int(position[0]) if position and isinstance(position[0], int) else 2**62
        narrower = _narrower(request)
        conditions = [and_(each, *narrower) for each in self._visible(principal, request.agent)]

        def read(connection: Connection) -> tuple[list[Record], dict[str, float], dict[str, Linked]]:
            rows = _newest(connection, principal.workspace_id, conditions, before, size + 1)
            return rows, _last_at(connection, rows), linked(connection, principal.workspace_id, rows)

        rows, last_at, links = await self._journal.read(read)
        page = fit(self._views.session(principal, row, last_at[row.id], links[row.id]) for row in rows[:size])
        await self._hold_views.add_to_sessions(principal, page)
        response = pb.ListSessionsResponse(sessions=page)
        if len(rows) > len(page):
            response.next_page_token = self._pager.token(query, [rows[len(page) - 1].ordinal])
        return response

    def _visible(self, principal: Principal, ref: str) -> list[Any]:
        """Return the conditions, each behind an index of its own, that make up what the reader may see."""
        if principal.kind == "user":
            if ref:
                agents = [self._directory.resolve_for_person(principal, ref, VIEWER)]
            else:
                agents = list(self._directory.for_person(principal, VIEWER).ordered)
            return [sessions.c.agent_id == agent.id for agent in agents]
        crew = self._crew(principal)
        if ref and (agent := self._directory.look_up(principal, ref)).id != principal.id:
            opened = and_(sessions.c.opened_by_id == principal.id, sessions.c.agent_id == agent.id)
            return [_led(agent, crew)] if agent in crew else [opened]
        led = [_led(agent, crew) for agent in crew if not ref]
        own = [sessions.c.agent_id == principal.id]
        return own if ref else [*own, sessions.c.opened_by_id == principal.id, *led]

    async def get(self, principal: Principal, session_id: str) -> pb.Session:
        """Return one session."""
        row, last_at = await self._find(principal, session_id)
        links = await self._journal.read(lambda connection: linked(connection, principal.workspace_id, [row]))
        session = self._views.session(principal, row, last_at, links[session_id])
        await self._hold_views.add_to_sessions(principal, [session])
        return session

    async def read(
        self, principal: Principal, request: pb.ReadSessionRequest, *, takes: bool = True
    ) -> pb.ReadSessionResponse:
        """Return the transcript in order; an agent that is shown an unread message has taken it.

        `takes` false: somebody else reads in its name, and it has taken nothing.
        """
        session, _ = await self._find(principal, request.session_id)
        shown = await self._page(principal, session, request)
        if principal.kind == "agent" and takes:
            self._inbox.touch(principal)
            await self._take_shown(principal, shown.lines)
        page = shown.entries
        if shown.is_end:
            page += await self._being_written(principal, session, shown.before + len(page))
        return pb.ReadSessionResponse(entries=page, next_page_token=shown.token)

    async def _page(self, principal: Principal, session: Record, request: pb.ReadSessionRequest) -> _Shown:
        """Return the lines of a page, as many as fit into it.

        A token holds where the page begins or ends in the record, which nobody is shown, and how many lines
        come before that.
        """
        size, from_end = page_size(request.page_size), request.from_end
        query = (
            "numbered transcript",
            principal.workspace_id,
            principal.id,
            request.session_id,
            *(("from its end",) if from_end else ()),
        )
        position = self._pager.position(query, request.page_token)
        place, count = (int(each or 0) for each in position or (transcripts.END if from_end else 0, 0))

        def read(connection: Connection) -> tuple[list[transcripts.Line], int]:
            if not from_end:
                return transcripts.after(connection, session, place, size + 1), count
            known = count if position else transcripts.count(connection, session)
            return transcripts.before(connection, session, place, size + 1), known

        lines, known = await self._journal.read(read)
        looked_at = reversed(lines[-size:]) if from_end else iter(lines[:size])
        entries = fit(self._entry(principal, session, *rest) for _, *rest in looked_at)
        more, before = len(lines) > len(entries), known
        if from_end:
            entries.reverse()
            lines, before = lines[len(lines) - len(entries) :], max(known - len(entries), 0)
            position_of_next = [lines[0][0], before] if more else []
        else:
            lines = lines[: len(entries)]
            position_of_next = [lines[-1][0], before + len(lines)] if more else []
        for number, entry in enumerate(entries, start=before + 1):
            entry.seq = number
        token = self._pager.token(query, position_of_next) if more else ""
        return _Shown(lines, entries, before, not position if from_end else not more, token)

    async def _being_written(
        self, principal: Principal, session: Record, count: int
    ) -> list[pb.TranscriptEntry]:
        """Return what is being written, or was and went nowhere, behind the last of `count` lines."""
        key = (session.workspace_id, session.id)
        rows = await self._journal.read(lambda connection: outputs.in_session(connection, *key))
        found = []
        for number, row in enumerate(rows, start=count + 1):
            entry = pb.TranscriptEntry(
                seq=number,
                kind="writing" if row.state == "running" else "written",
                at=to_timestamp(row.started_at or row.created_at),
                text=row.body,
                turn_id=row.id,
                thread_id=row.thread_id,
                depth=row.depth,
            )
            author = self._views.party(principal, "agent", row.agent_id, known=True)
            getattr(entry, "from").CopyFrom(author)
            found.append(entry)
        return found

    async def _take_shown(self, principal: Principal, entries: Sequence[transcripts.Line]) -> None:
        agent = self._directory.agent(principal.workspace_id, principal.id)
        unread = [
            message.id
            for _, message, copy in entries
            if copy is not None and copy.recipient_id == principal.id and copy.state == "queued"
        ]
        if unread and agent is not None and agent.state == "active":
            standing = await self._inbox.standing(principal, "", "")
            await self._inbox.take_shown(principal, standing, unread)

    async def _find(self, principal: Principal, session_id: str) -> tuple[Record, float]:
        key = (principal.workspace_id, session_id)
        rows = await self._journal.read(lambda connection: by_id(connection, sessions, {key}))
        row = rows.get(key)
        # Nothing more is read before this: what is hidden takes as long as what never existed.
        if row is None or not self.may_see(principal, row):
            raise no_session(session_id)
        last_at = await self._journal.read(lambda connection: _last_at(connection, [row]))
        return row, last_at[row.id]

    def may_see(self, principal: Principal, row: Record) -> bool:
        """Tell whether a session is one that the reader runs, opened, leads, or may view."""
        agent = self._directory.agent(principal.workspace_id, row.agent_id)
        if principal.kind == "user":
            return agent is not None and self._directory.role_on_agent(principal.id, agent) >= VIEWER
        if principal.id in (row.agent_id, row.opened_by_id):
            return True
        return agent is not None and leads_in(self._directory, principal.id, row, agent)

    def _crew(self, principal: Principal) -> list[AgentRecord]:
        """Return the subagents that the reader leads."""
        everyone = self._directory.agents(principal.workspace_id)
        return [agent for agent in everyone if agent.parent_agent_id == principal.id]

    def _entry(
        self,
        principal: Principal,
        session: Record,
        message: Record,
        copy: Record | None,
    ) -> pb.TranscriptEntry:
        """Return a line of a transcript, not yet numbered: what came in, or what the session's agent said."""
        if copy is not None:
            kind = "prompt" if message.kind in ("ask", "prompt", TASK) else "message_in"
            turn_id = copy.turn_id
        else:
            kind = "answer" if message.kind == "answer" else "message_out"
            turn_id = message.from_turn_id
        if message.from_kind == "mesh":
            kind = "note"
        text = f"{message.subject}({message.body})" if message.kind == TOOL else message.body
        if copy is not None and copy.shaped is not None:
            text = hooking.words_for(copy.shaped, Words(text)).text
        # A transcript is read by the agent itself, by who opened it and by who may look at the agent.
        dealt = principal.kind == "user" or principal.id in (session.agent_id, message.from_id)
        entry = pb.TranscriptEntry(
            kind=kind,
            at=to_timestamp(message.created_at),
            text=text,
            turn_id=turn_id,
            message_id=message.id,
            thread_id=message.thread_id,
            depth=message.depth,
        )
        getattr(entry, "from").CopyFrom(
            self._views.party(
                principal, message.from_kind, message.from_id, known=dealt, name=source_name(message)
            )
        )
        return entry

    # --- where an agent stands --------------------------------------------------------------------

    async def context(self, caller: Principal, request: pb.GetContextRequest) -> pb.GetContextResponse:
        """Return the session, depth, chain and unread messages of the calling agent, or of one that is named.

        A person that names none has refusals alone.
        """
        if caller.kind != "agent" and not request.agent:
            return self._with_refusals(pb.GetContextResponse(), caller)
        agent_id = self._directory.itself_or_viewed(caller, request.agent)
        principal = Principal(kind="agent", id=agent_id, workspace_id=caller.workspace_id)
        session_id = request.caller_session_id
        policy = self._directory.policy(principal.workspace_id)
        since = self._clock.now() - policy.causality_window_seconds

        def read(connection: Connection) -> tuple[Record | None, int, str]:
            session = _own_session(connection, principal, session_id)
            running = queues.running_of(connection, principal.workspace_id, principal.id)
            deepest = max(running, key=lambda row: row.depth, default=None)
            if deepest is not None:
                return session, deepest.depth, deepest.chain
            ended = queues.deepest_ended(connection, principal.workspace_id, principal.id, since)
            return session, ended.depth if ended is not None else 0, ""

        session, depth, chain = await self._journal.read(read)
        if session_id and session is None:
            raise no_session(session_id)
        response = pb.GetContextResponse(
            depth=depth,
            inbox=await self._inbox.unread(principal),
            isolation=self._tunnels.isolation_source(principal.workspace_id, principal.id),
            chain=self._views.chain(caller, chain),
        )
        if session is not None:
            response.session_id, response.turn_id = session.id, session.running_turn_id
        return self._with_refusals(response, principal)

    def _with_refusals(self, response: pb.GetContextResponse, principal: Principal) -> pb.GetContextResponse:
        used, wait = self._refusals.used(principal)
        response.refusals = used
        if wait is not None:
            response.refusals_free_at.CopyFrom(to_timestamp(self._clock.now() + wait))
        return response

    def presence(self, principal: Principal, agent_ids: Sequence[str]) -> dict[str, str]:
        """Return who is there, of the agents that the reader may know."""
        found = {}
        for agent_id in agent_ids:
            agent = self._directory.agent(principal.workspace_id, agent_id)
            if agent is None or agent.deleted or not self._directory.may_know(principal, agent_id):
                continue
            if principal.kind == "agent" and agent.state != "active" and agent_id != principal.id:
                continue  # to its peers an agent that is paused is not there
            found[agent_id] = self.presence_of(agent)
        return found

    def presence_of(self, agent: AgentRecord) -> str:
        """Return how an agent stands."""
        here = self._tunnels.presence_source(agent.workspace_id, agent.id)
        if here is not None:
            return here
        if agent.wake != "none":
            return "sleeping"
        return "inbox_only" if self._inbox.pulls(agent.workspace_id, agent.id) else "offline"


def _narrower(request: pb.ListSessionsRequest) -> list[Any]:
    """Return the further conditions that a list is asked for with."""
    found: list[Any] = []
    if request.opened_by_session_id:
        found.append(sessions.c.opened_by_session_id == request.opened_by_session_id)
    if request.channel:
        found.append(sessions.c.channel == request.channel)
    if request.children_only:
        found.append(
            exists().where(
                children.c.workspace_id == sessions.c.workspace_id, children.c.session_id == sessions.c.id
            )
        )
    return found


def _led(agent: AgentRecord, crew: Sequence[AgentRecord]) -> Any:
    """Return the condition for the sessions that a subagent runs for its lead's crew."""
    openers = [agent.parent_agent_id, *(each.id for each in crew)]
    return and_(sessions.c.agent_id == agent.id, sessions.c.opened_by_id.in_(openers))


class _Shown(NamedTuple):
    """The lines of a page: how many come before them, and whether the transcript ends with it."""

    lines: list[transcripts.Line]
    entries: list[pb.TranscriptEntry]
    before: int
    is_end: bool
    token: str


def _newest(
    connection: Connection, workspace_id: str, conditions: Sequence[Any], before: int, most: int
) -> list[Record]:
    found: dict[str, Record] = {}
    for condition in conditions:
        query = (
            select(sessions)
            .where(sessions.c.workspace_id == workspace_id, condition, sessions.c.ordinal < before)
            .order_by(sessions.c.ordinal.desc())
            .limit(most)
        )
        found.update((row.id, row) for row in connection.execute(query))
    return heapq.nlargest(most, found.values(), key=lambda row: row.ordinal)


def _last_at(connection: Connection, rows: Sequence[Record]) -> dict[str, float]:
    """Return when something last happened in sessions: the newest turn's end, start or queueing."""
    last = {}
    for row in rows:
        turn = queues.newest_in(connection, row.workspace_id, row.id)
        last[row.id] = row.created_at
        if turn is not None:
            last[row.id] = turn.ended_at or turn.started_at or turn.created_at
    return last


def _own_session(connection: Connection, principal: Principal, session_id: str) -> Record | None:
    if not session_id:
        return inbox_of(connection, principal.workspace_id, principal.id)
    query = select(sessions).where(
        sessions.c.workspace_id == principal.workspace_id,
        sessions.c.agent_id == principal.id,
        sessions.c.id == session_id,
    )
    return connection.execute(query).first()
