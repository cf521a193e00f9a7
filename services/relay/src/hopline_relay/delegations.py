"""Turns for those who look at them or end them."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from functools import partial

from hopline.relay.v1 import delegation_pb2 as pb
from hopline_directory import Directory
from hopline_directory.records import OPERATOR, VIEWER
from hopline_rpc.errors import HoplineError
from hopline_rpc.paging import Pager, fit, page_size
from hopline_rpc.principals import Principal
from sqlalchemy import Connection, select

from hopline_relay.callers import actor_of, no_session, no_turn, require_active
from hopline_relay.cancel import Cancels
from hopline_relay.domain.values import ANSWERS, Fault
from hopline_relay.inbox import Inbox
from hopline_relay.journal import Journal
from hopline_relay.peers import leads_in
from hopline_relay.store import children, escalating, queues
from hopline_relay.store.bulk import by_id
from hopline_relay.store.schema import sessions, turns
from hopline_relay.store.sql import Record
from hopline_relay.view import TURN_STATES, Views


class Delegations:
    """Serves DelegationService."""

    def __init__(
        self,
        journal: Journal,
        directory: Directory,
        cancels: Cancels,
        inbox: Inbox,
        views: Views,
        pager: Pager,
    ) -> None:
        self._journal = journal
        self._directory = directory
        self._cancels = cancels
        self._inbox = inbox
        self._views = views
        self._pager = pager

    async def cancel(self, principal: Principal, request: pb.CancelRequest) -> pb.CancelResponse:
        """End a turn that the caller started, or may operate, and what only it waits for."""
        self._inbox.touch(principal)
        require_active(self._directory, principal)
        row = await self._find(principal, request)
        actor = actor_of(self._directory, principal)
        fault = Fault("canceled", f"canceled by {actor.name or actor.id}")
        # Who cancels its own question need not be told that it was cancelled.
        outcome = await self._cancels.cancel_whole(
            row.workspace_id, row.id, fault, actor, tell=row.caused_by_id != principal.id
        )
        canceled = outcome.canceled
        if request.WhichOneof("of") == "session_id":
            # Started by turns that have ended since, their reports would wake the session again.
            find = partial(children.owing, workspace_id=row.workspace_id, session_id=request.session_id)
            for child in await self._journal.read(find):
                ended = await self._cancels.cancel_whole(
                    row.workspace_id, child.turn_id, fault, actor, tell=False
                )
                canceled += ended.canceled
        return pb.CancelResponse(status=TURN_STATES[outcome.state], canceled=canceled)

    async def _find(self, principal: Principal, request: pb.CancelRequest) -> Record:
        if request.WhichOneof("of") == "session_id":
            return await self._newest(principal, request.session_id)
        key = (principal.workspace_id, request.turn_id)
        rows = await self._journal.read(lambda connection: by_id(connection, turns, {key}))
        row = rows.get(key)
        if row is None or not self._may_end(principal, row):
            raise no_turn(request.turn_id)
        return row

    async def _newest(self, principal: Principal, session_id: str) -> Record:
        caused_by = principal.id if principal.kind == "agent" else ""
        row = await self._journal.read(
            lambda connection: queues.newest_in(connection, principal.workspace_id, session_id, caused_by)
        )
        if row is None or not self._may_end(principal, row):
            raise no_session(session_id)
        return row

    def _may_end(self, principal: Principal, row: Record) -> bool:
        if principal.kind == "user" and self._role(principal, row) >= OPERATOR:
            return True
        if row.caused_by_id != principal.id:
            return False
        if row.cause in ANSWERS:
            raise HoplineError(
                "failed_precondition",
                "your answer started nothing of your own there; only who asked may cancel what it woke",
            )
        return True

    def _role(self, principal: Principal, row: Record) -> int:
        agent = self._directory.agent(principal.workspace_id, row.agent_id)
        return self._directory.role_on_agent(principal.id, agent) if agent is not None else 0

    async def get(self, principal: Principal, turn_id: str) -> pb.Turn:
        """Return one turn, for whoever may see its session."""
        key = (principal.workspace_id, turn_id)

        def read(connection: Connection) -> tuple[Record | None, Record | None]:
            row = by_id(connection, turns, {key}).get(key)
            # A session is looked for whether there is a turn or not: both take as long.
            session_key = (key[0], row.session_id if row is not None else turn_id)
            return row, by_id(connection, sessions, {session_key}).get(session_key)

        row, session = await self._journal.read(read)
        if row is None or session is None or not self._may_see(principal, row, session):
            raise no_turn(turn_id)
        found = row
        asks = await self._journal.read(lambda connection: escalating.waiting_turns(connection, [found]))
        return self._views.turn(principal, row, asks_owner=row.id in asks)

    def _may_see(self, principal: Principal, row: Record, session: Record) -> bool:
        if principal.kind == "user":
            return row.caused_by_id == principal.id or self._role(principal, row) >= VIEWER
        if principal.id in (row.agent_id, row.caused_by_id, session.opened_by_id):
            return True
        agent = self._directory.agent(principal.workspace_id, row.agent_id)
        return agent is not None and leads_in(self._directory, principal.id, session, agent)

    async def list_turns(self, principal: Principal, request: pb.ListTurnsRequest) -> pb.ListTurnsResponse:
        """Return turns, newest first, of the agents on which the person holds `viewer`."""
        size = page_size(request.page_size)
        query = ("turns", principal.id, request.agent, request.root_id, request.session_id)
        position = self._pager.position(query, request.page_token)
        before = int(position[0]) if position and isinstance(position[0], int) else 2**62
        if request.agent:
            agents = [self._directory.resolve_for_person(principal, request.agent, VIEWER).id]
        else:
            agents = [agent.id for agent in self._directory.for_person(principal, VIEWER).ordered]
        root_id, session_id = request.root_id, request.session_id

        def read(connection: Connection) -> tuple[list[Record], set[str]]:
            workspace_id = principal.workspace_id
            if session_id:
                found = queues.of_session(connection, workspace_id, session_id, before, size + 1)
            else:
                found = _newest(connection, workspace_id, agents, root_id, before, size + 1)
            rows = [row for row in found if row.agent_id in agents and root_id in ("", row.root_id)]
            return rows, escalating.waiting_turns(connection, rows)

        rows, asking = await self._journal.read(read)
        page = fit(self._views.turn(principal, row, asks_owner=row.id in asking) for row in rows[:size])
        response = pb.ListTurnsResponse(turns=page)
        if len(rows) > len(page):
            response.next_page_token = self._pager.token(query, [_position(rows[len(page) - 1], session_id)])
        return response


def _position(row: Record, session_id: str) -> int:
    return int(row.position if session_id else row.ordinal)


_STATES = ("queued", "running", "completed", "failed", "canceled")


def _newest(
    connection: Connection, workspace_id: str, agents: Sequence[str], root_id: str, before: int, most: int
) -> list[Record]:
    """Return the newest turns: those of a root by its index, else each agent's in each state, merged."""
    base = (
        select(turns)
        .where(turns.c.workspace_id == workspace_id, turns.c.ordinal < before)
        .order_by(turns.c.ordinal.desc())
        .limit(most)
    )
    if root_id:
        return list(connection.execute(base.where(turns.c.root_id == root_id)).all())
    found: list[Record] = []
    for agent_id in agents:
        for state in _STATES:
            query = base.where(turns.c.agent_id == agent_id, turns.c.state == state)
            found += connection.execute(query).all()
    return heapq.nlargest(most, found, key=lambda row: row.ordinal)
