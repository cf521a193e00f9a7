"""People look at the answers that are held, and release them."""

from __future__ import annotations

from functools import partial
from typing import Final

from hopline.relay.v1 import draft_pb2 as pb
from hopline.relay.v1 import message_pb2
from hopline_directory import Directory
from hopline_directory.records import OPERATOR, VIEWER
from hopline_rpc.errors import HoplineError
from hopline_rpc.paging import Pager, fit, page_size
from hopline_rpc.principals import Principal
from sqlalchemy import Connection

from hopline_relay.asks import Asks
from hopline_relay.callers import actor_of, no_session, no_turn
from hopline_relay.hold_ends import HoldEnds, unchanged
from hopline_relay.hold_views import HoldViews
from hopline_relay.journal import Journal
from hopline_relay.store import holds
from hopline_relay.store.bulk import by_id
from hopline_relay.store.prompted import newest_in
from hopline_relay.store.schema import debts, sessions
from hopline_relay.store.sql import Record

_END: Final = 2**62
_TRIES: Final = 5


class HeldAnswers:
    """Serves the people's side of DraftService."""

    def __init__(
        self,
        journal: Journal,
        directory: Directory,
        ends: HoldEnds,
        asks: Asks,
        views: HoldViews,
        pager: Pager,
    ) -> None:
        self._journal = journal
        self._directory = directory
        self._ends = ends
        self._asks = asks
        self._views = views
        self._pager = pager

    async def get(self, principal: Principal, session_id: str) -> list[pb.Hold]:
        """Return what is held of a session, oldest first."""
        await self._session(principal, session_id, VIEWER)
        return await self._views.holds(principal, await self._rows(principal, session_id))

    async def list_held(self, principal: Principal, request: pb.ListHeldRequest) -> pb.ListHeldResponse:
        """Return what is held, newest first, of the agents on which the person holds `viewer`."""
        size = page_size(request.page_size)
        query = ("held", principal.workspace_id, principal.id, request.agent)
        position = self._pager.position(query, request.page_token)
        before = int(position[0]) if position and isinstance(position[0], int) else _END
        if request.agent:
            agents = [self._directory.resolve_for_person(principal, request.agent, VIEWER).id]
        else:
            agents = [agent.id for agent in self._directory.for_person(principal, VIEWER).ordered]
        rows = await self._journal.read(
            partial(
                holds.of_agents,
                workspace_id=principal.workspace_id,
                agent_ids=agents,
                before=before,
                most=size + 1,
            )
        )
        page = fit(iter(await self._views.holds(principal, rows[:size])))
        response = pb.ListHeldResponse(holds=page)
        if len(rows) > len(page):
            response.next_page_token = self._pager.token(query, [rows[len(page) - 1].ordinal])
        return response

    async def release(self, principal: Principal, session_id: str, turn_id: str) -> message_pb2.TurnView:
        """Send the newest draft of a session as it is; returns the turn that it answers."""
        session = await self._session(principal, session_id, OPERATOR)
        actor = actor_of(self._directory, principal)
        for _ in range(_TRIES):
            rows = await self._rows(principal, session_id)
            row = next((each for each in rows if turn_id in ("", each.turn_id)), None)
            if row is None:
                answered = await self._answered(session, turn_id)
                return await self._asks.look(principal, answered, 0, from_turn_id="")
            if not row.body:
                raise HoplineError(
                    "failed_precondition",
                    "the agent has written no answer yet that could be released; cancel the turn, or wait",
                    details={"session_id": session_id, "turn_id": row.turn_id},
                )
            if await self._ends.send(row, actor, unchanged):
                return await self._asks.look(principal, row.turn_id, 0, from_turn_id="")
        raise HoplineError("unavailable", "the draft keeps changing; try again")

    async def _answered(self, session: Record, turn_id: str) -> str:
        """Return the turn whose answer has been given before; refuse where none was held or given."""
        workspace_id = session.workspace_id

        def read(connection: Connection) -> Record | None:
            newest = newest_in(connection, workspace_id, session.agent_id, session.id)
            wanted = turn_id or (newest.turn_id if newest is not None else "")
            return by_id(connection, debts, {(workspace_id, wanted)}, debts.c.turn_id).get(
                (workspace_id, wanted)
            )

        debt = await self._journal.read(read)
        if turn_id and (debt is None or debt.debtor_id != session.agent_id or debt.creditor_kind == "agent"):
            raise no_turn(turn_id)
        if debt is None or debt.state != "answered":
            raise HoplineError(
                "failed_precondition",
                "no answer of this session is held",
                details={"session_id": session.id},
            )
        return str(debt.turn_id)

    async def _rows(self, principal: Principal, session_id: str) -> list[Record]:
        return await self._journal.read(
            partial(holds.in_sessions, workspace_id=principal.workspace_id, session_ids=[session_id])
        )

    async def _session(self, principal: Principal, session_id: str, role: int) -> Record:
        key = (principal.workspace_id, session_id)
        row = (await self._journal.read(lambda connection: by_id(connection, sessions, {key}))).get(key)
        agent = self._directory.agent(principal.workspace_id, row.agent_id) if row is not None else None
        held = self._directory.role_on_agent(principal.id, agent) if agent is not None else 0
        if row is None or held < VIEWER:
            raise no_session(session_id)
        if held < role:
            raise HoplineError(
                "permission_denied", "only who holds `operator` on the agent releases what it has drafted"
            )
        return row
