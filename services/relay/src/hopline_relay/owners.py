"""People look at the questions of their agents, answer them, or take them back."""

from __future__ import annotations

from hopline.relay.v1 import escalation_pb2 as pb
from hopline_directory import Directory
from hopline_directory.records import OPERATOR, VIEWER
from hopline_rpc.errors import HoplineError, invalid
from hopline_rpc.paging import Pager, fit, page_size
from hopline_rpc.principals import Principal

from hopline_relay.callers import actor_of, no_escalation
from hopline_relay.domain.escalations import option_problem, withdrawn_text
from hopline_relay.escalation_ends import End, Ended, EscalationEnds
from hopline_relay.journal import Journal
from hopline_relay.store import escalating
from hopline_relay.store.sql import Record
from hopline_relay.view import Views

_END = 2**62


class Owners:
    """Serves the people's side of EscalationService."""

    def __init__(
        self, journal: Journal, directory: Directory, ends: EscalationEnds, views: Views, pager: Pager
    ) -> None:
        self._journal = journal
        self._directory = directory
        self._ends = ends
        self._views = views
        self._pager = pager

    async def list(
        self, principal: Principal, request: pb.ListEscalationsRequest
    ) -> pb.ListEscalationsResponse:
        """Return questions, newest first, of the agents on which the person holds `viewer`."""
        size = page_size(request.page_size)
        query = ("escalations", principal.workspace_id, principal.id, request.agent, request.all)
        position = self._pager.position(query, request.page_token)
        before = int(position[0]) if position and isinstance(position[0], int) else _END
        if request.agent:
            agents = [self._directory.resolve_for_person(principal, request.agent, VIEWER).id]
        else:
            agents = [agent.id for agent in self._directory.for_person(principal, VIEWER).ordered]
        rows = await self._journal.read(
            lambda connection: escalating.newest(
                connection,
                principal.workspace_id,
                agents,
                pending=not request.all,
                before=before,
                most=size + 1,
            )
        )
        page = fit(self._views.escalation(principal, row) for row in rows[:size])
        response = pb.ListEscalationsResponse(escalations=page)
        if len(rows) > len(page):
            response.next_page_token = self._pager.token(query, [rows[len(page) - 1].ordinal])
        return response

    async def get(self, principal: Principal, escalation_id: str) -> pb.Escalation:
        """Return one question."""
        return self._views.escalation(principal, await self._find(principal, escalation_id))

    async def answer(self, principal: Principal, escalation_id: str, text: str) -> pb.Escalation:
        """Answer a question; the first answer counts."""
        row = await self._find(principal, escalation_id, OPERATOR)
        # One that has ended is said to have, whatever the answer.
        if row.state == "pending" and (problem := option_problem(text, escalating.options_of(row))):
            raise invalid("text", problem)
        end = End((row.workspace_id, row.id), "answered", text, actor_of(self._directory, principal))
        return self._outcome(principal, await self._ends.end(end, row.agent_id), end)

    async def withdraw(self, principal: Principal, escalation_id: str, reason: str) -> pb.Escalation:
        """End a question without an answer; its agent is told."""
        row = await self._find(principal, escalation_id, OPERATOR)
        actor = actor_of(self._directory, principal)
        text = withdrawn_text(reason or f"by {actor.name or actor.id}")
        end = End((row.workspace_id, row.id), "withdrawn", text, actor, reason=reason)
        return self._outcome(principal, await self._ends.end(end, row.agent_id), end)

    def _outcome(self, principal: Principal, ended: Ended, end: End) -> pb.Escalation:
        row = ended.row
        if not ended.done and not _repeats(row, end):
            raise HoplineError(
                "failed_precondition",
                f"this question has ended before: it is {row.state}{self._by(row)}; nothing was changed",
                details={"status": row.state},
            )
        return self._views.escalation(principal, row)

    def _by(self, row: Record) -> str:
        user = self._directory.user(row.workspace_id, row.ended_by_id)
        return f" by {user.name}" if user is not None else ""

    async def _find(self, principal: Principal, escalation_id: str, role: int = VIEWER) -> Record:
        key = (principal.workspace_id, escalation_id)
        row = await self._journal.read(lambda connection: escalating.find(connection, key))
        agent = self._directory.agent(row.workspace_id, row.agent_id) if row is not None else None
        held = self._directory.role_on_agent(principal.id, agent) if agent is not None else 0
        if row is None or held < VIEWER:
            raise no_escalation(escalation_id)
        if held < role:
            raise HoplineError(
                "permission_denied",
                "only the agent's owner, or who holds `operator` on the agent, answers for its owner",
            )
        return row


def _repeats(row: Record, end: End) -> bool:
    """Tell whether the same person has ended it in just this way before."""
    if (row.state, row.ended_by_id) != (end.state, end.actor.id):
        return False
    return end.state == "withdrawn" or bool(row.answer == end.text)
