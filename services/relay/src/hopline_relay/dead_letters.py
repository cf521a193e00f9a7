"""Dead letters for those who look after an agent: what was given up, sent again, or struck off."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from hopline.relay.v1 import dead_letter_pb2 as pb
from hopline_directory import ADMIN, OPERATOR, VIEWER, AgentRecord, Directory, needs_role
from hopline_rpc.clock import Clock, to_timestamp
from hopline_rpc.errors import HoplineError
from hopline_rpc.ids import IdMaker
from hopline_rpc.paging import Pager, fit, page_size
from hopline_rpc.principals import Principal
from sqlalchemy import Connection

from hopline_relay.callers import actor_of
from hopline_relay.domain.values import MESH, Actor
from hopline_relay.journal import Journal
from hopline_relay.signals import Signals
from hopline_relay.store import dead, queues
from hopline_relay.store.book import Book
from hopline_relay.store.bulk import by_id
from hopline_relay.store.copies import copies_of
from hopline_relay.store.schema import messages
from hopline_relay.store.sql import Record
from hopline_relay.view import Views

# How many of a workspace stay on the list, and how many are struck off in one transaction.
MOST_KEPT: Final = 10_000
_BATCH: Final = 500
_DAY: Final = 86_400.0


class DeadLetters:
    """Serves DeadLetterService."""

    def __init__(
        self,
        journal: Journal,
        directory: Directory,
        signals: Signals,
        views: Views,
        pager: Pager,
        ids: IdMaker,
        clock: Clock,
    ) -> None:
        self._journal = journal
        self._directory = directory
        self._signals = signals
        self._views = views
        self._pager = pager
        self._ids = ids
        self._clock = clock

    # --- looking ----------------------------------------------------------------------------------

    async def list_letters(
        self, principal: Principal, request: pb.ListDeadLettersRequest
    ) -> pb.ListDeadLettersResponse:
        """Return a page, newest message first."""
        size = page_size(request.page_size)
        query = ("dead", principal.workspace_id, principal.id, request.agent)
        position = self._pager.position(query, request.page_token)
        before = int(position[0]) if position and isinstance(position[0], int) else 2**62
        agents = self._agents(principal, request.agent)
        rows = await self._journal.read(
            lambda connection: dead.newest(connection, principal.workspace_id, agents, before, size + 1)
        )
        page = fit(await self._shown(principal, rows[:size]))
        response = pb.ListDeadLettersResponse(dead_letters=page)
        if len(rows) > len(page):
            response.next_page_token = self._pager.token(query, [rows[len(page) - 1].position])
        return response

    def _agents(self, principal: Principal, ref: str) -> Collection[str] | None:
        """Return for whom letters are listed; None for everybody, those who are gone included."""
        directory, workspace_id = self._directory, principal.workspace_id
        if ref:
            gone = directory.agent(workspace_id, ref)
            if gone is not None and gone.deleted and self._operates(principal, gone):
                return [gone.id]
            return [directory.resolve_for_person(principal, ref, OPERATOR).id]
        if directory.workspace_role(workspace_id, principal.id) >= OPERATOR:
            return None
        return [agent.id for agent in directory.agents(workspace_id) if self._operates(principal, agent)]

    def _operates(self, principal: Principal, agent: AgentRecord) -> bool:
        return self._directory.role_on_agent(principal.id, agent) >= OPERATOR

    async def get(self, principal: Principal, turn_id: str) -> pb.DeadLetter:
        """Return one."""
        rows = await self._named(principal, [turn_id], OPERATOR)
        return (await self._shown(principal, rows))[0]

    async def _named(self, principal: Principal, turn_ids: Sequence[str], role: int) -> list[Record]:
        """Return the turns of dead letters that a person may see; `role` is what they need besides."""
        workspace_id = principal.workspace_id
        keys = {(workspace_id, turn_id) for turn_id in turn_ids}

        def read(connection: Connection) -> tuple[dict[tuple[str, str], Record], dict[str, Record]]:
            found = queues.find(connection, keys)
            return found, dead.deliveries_of(connection, workspace_id, list(found.values()))

        rows, letters = await self._journal.read(read)
        named = []
        for turn_id in turn_ids:
            row = rows.get((workspace_id, turn_id))
            held = self._role(principal, row) if row is not None else 0
            if row is None or turn_id not in letters or held < VIEWER:
                raise no_letter(turn_id)
            if held < role:
                raise needs_role(role, "the agent of this dead letter")
            named.append(row)
        return named

    def _role(self, principal: Principal, row: Record) -> int:
        agent = self._directory.agent(principal.workspace_id, row.agent_id)
        return self._directory.role_on_agent(principal.id, agent) if agent is not None else 0

    async def _shown(self, principal: Principal, rows: Sequence[Record]) -> list[pb.DeadLetter]:
        keys = {(row.workspace_id, row.message_id) for row in rows}
        found, copies = await self._journal.read(
            lambda connection: (by_id(connection, messages, keys), copies_of(connection, keys))
        )
        shown = []
        for row in rows:
            key = (row.workspace_id, row.message_id)
            letter = pb.DeadLetter(
                turn_id=row.id,
                agent=self._views.party(principal, "agent", row.agent_id, known=True),
                message=self._views.message(principal, found[key], copies[key]),
                attempts=row.attempt,
                died_at=to_timestamp(row.ended_at),
                session_id=row.session_id,
            )
            letter.error.code, letter.error.message = row.error_code, row.error_message
            shown.append(letter)
        return shown

    # --- acting -----------------------------------------------------------------------------------

    async def retry(self, principal: Principal, turn_ids: Sequence[str]) -> list[str]:
        """Queue a new turn for each; returns their ids."""
        rows = await self._named(principal, turn_ids, OPERATOR)
        for row in rows:
            agent = self._directory.agent(row.workspace_id, row.agent_id)
            if agent is None or agent.deleted:
                name = agent.name if agent is not None else row.agent_id
                raise HoplineError(
                    "failed_precondition", f"{name} is deleted: its dead letters can only be purged"
                )
        fresh = {row.id: self._ids.new_id("trn") for row in rows}
        actor = actor_of(self._directory, principal)
        await self._journal.write(lambda book: self._requeue(book, rows, fresh, actor))
        self._signals.claimable({(row.workspace_id, row.agent_id) for row in rows})
        return [fresh[turn_id] for turn_id in turn_ids]

    def _requeue(self, book: Book, rows: Sequence[Record], fresh: dict[str, str], actor: Actor) -> None:
        _require_dead(book, rows)
        policy = self._directory.policy(rows[0].workspace_id)
        for agent_id in {row.agent_id for row in rows}:
            wanted = sum(row.agent_id == agent_id for row in rows)
            queued = queues.count_queued(book.connection, rows[0].workspace_id, agent_id)
            if queued + wanted > policy.inbox_backlog:
                raise HoplineError(
                    "inbox_full",
                    f"the inbox takes {policy.inbox_backlog} and holds {queued}; retry fewer, or later",
                    details={"limit": policy.inbox_backlog, "used": queued},
                )
        dead.requeue(book, rows, fresh, policy.queue_seconds)
        for row in rows:
            _note(book, "dead_letter.retried", row, actor, fresh[row.id])

    async def purge(self, principal: Principal, turn_ids: Sequence[str]) -> int:
        """Strike letters off."""
        rows = await self._named(principal, turn_ids, ADMIN)
        actor = actor_of(self._directory, principal)

        def op(book: Book) -> None:
            dead.strike_off(book, _require_dead(book, rows))
            for row in rows:
                _note(book, "dead_letter.purged", row, actor)

        await self._journal.write(op)
        return len(rows)

    async def forget(self, workspace_id: str) -> None:
        """Strike off what is older than the workspace keeps records, and what is too much."""
        days = self._directory.policy(workspace_id).retention_days
        died_before = self._clock.now() - days * _DAY if days else 0.0

        def op(book: Book) -> int:
            rows = dead.outdated(
                book.connection, workspace_id, died_before=died_before, keep=MOST_KEPT, most=_BATCH
            )
            letters = dead.deliveries_of(book.connection, workspace_id, rows)
            dead.strike_off(book, list(letters.values()))
            for row in rows:
                _note(book, "dead_letter.purged", row, MESH)
            return len(rows)

        while await self._journal.write(op) == _BATCH:
            pass


def _require_dead(book: Book, rows: Sequence[Record]) -> list[Record]:
    """Return the deliveries; somebody else may have acted on one since it was looked at."""
    letters = dead.deliveries_of(book.connection, rows[0].workspace_id, rows)
    for row in rows:
        if row.id not in letters:
            raise no_letter(row.id)
    return [letters[row.id] for row in rows]


def _note(book: Book, action: str, row: Record, actor: Actor, fresh_id: str = "") -> None:
    book.note(
        row.workspace_id,
        action,
        actor,
        agent_id=row.agent_id,
        thread_id=row.thread_id,
        message_id=row.message_id,
        turn_id=row.id,
        session_id=row.session_id,
        details={"retried_as": fresh_id} if fresh_id else None,
    )


def no_letter(turn_id: str) -> HoplineError:
    """Return the one answer for what is not dead, does not exist, or may not be seen."""
    return HoplineError("not_found", f"there is no dead letter {turn_id!r}", details={"turn_id": turn_id})
