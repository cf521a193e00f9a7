"""People set schedules, look at them, pause, resume and remove them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Final

from hopline.relay.v1 import schedule_pb2 as pb
from hopline_directory import OPERATOR, VIEWER, AgentRecord, Directory, needs_role
from hopline_rpc.clock import Clock, rfc3339, to_timestamp
from hopline_rpc.errors import HoplineError, invalid
from hopline_rpc.ids import IdMaker
from hopline_rpc.paging import Pager, fit, page_size
from hopline_rpc.principals import Principal

from hopline_relay.callers import actor_of
from hopline_relay.cron import read_cron
from hopline_relay.domain.sources import MAX_SCHEDULES
from hopline_relay.domain.values import title_of
from hopline_relay.journal import Journal
from hopline_relay.starts import fronted
from hopline_relay.store import requests, scheduling
from hopline_relay.store.book import Book
from hopline_relay.store.sql import Record
from hopline_relay.view import Views

_END: Final = 2**62
_STATES: Final = {
    "active": pb.SCHEDULE_STATE_ACTIVE,
    "paused": pb.SCHEDULE_STATE_PAUSED,
    "stopped": pb.SCHEDULE_STATE_STOPPED,
}


class Schedules:
    """Serves ScheduleService. `changed` is called when one may be due earlier than was known."""

    def __init__(
        self,
        journal: Journal,
        directory: Directory,
        views: Views,
        pager: Pager,
        ids: IdMaker,
        clock: Clock,
        changed: Callable[[], None],
    ) -> None:
        self._journal = journal
        self._directory = directory
        self._views = views
        self._pager = pager
        self._ids = ids
        self._clock = clock
        self._changed = changed

    async def add(self, principal: Principal, request: pb.AddScheduleRequest) -> pb.Schedule:
        """Set one."""
        agent = fronted(self._directory.resolve_for_person(principal, request.agent, OPERATOR))
        timezone = request.timezone or "UTC"
        cron = read_cron(request.cron, timezone)
        now = self._clock.now()
        row: dict[str, Any] = {
            "workspace_id": principal.workspace_id,
            "id": self._ids.new_id("sch"),
            "agent_id": agent.id,
            "author_id": principal.id,
            "name": _name(request),
            "cron": request.cron,
            "timezone": timezone,
            "body": request.text,
            "state": "active",
            "created_at": now,
            "due_at": cron.next(now),
            "set_at": now,
            "fired": 0,
            "skipped": 0,
            "fired_at": None,
            "turn_id": "",
            "session_id": "",
            "problem_code": "",
            "problem_message": "",
            "problem_at": None,
        }
        made = await self._journal.write(lambda book: self._add(book, principal, request, row, agent))
        self._changed()
        return self._shown(principal, made)

    def _add(
        self,
        book: Book,
        principal: Principal,
        request: pb.AddScheduleRequest,
        row: dict[str, Any],
        agent: AgentRecord,
    ) -> Record:
        key = (row["workspace_id"], row["id"])
        ordinal = book.ordinal(key[0])
        if request.request_id:
            earlier = requests.result_of(
                book, principal, request.request_id.lower(), _digest(request, agent), row["id"]
            )
            if earlier:
                found = scheduling.find(book.connection, (key[0], earlier))
                if found is None:
                    raise no_schedule(earlier)
                return found
        if scheduling.count(book.connection, key[0], agent.id) >= MAX_SCHEDULES:
            raise HoplineError(
                "limit_reached",
                f"{agent.name} has {MAX_SCHEDULES} schedules, which is all it may have; remove one first",
                details={"limit": MAX_SCHEDULES, "used": MAX_SCHEDULES},
            )
        scheduling.add(book.connection, {**row, "ordinal": ordinal})
        made = _current(book, key)
        details = {"cron": made.cron, "timezone": made.timezone, "due_at": rfc3339(made.due_at)}
        scheduling.note(book, made, "schedule.added", actor_of(self._directory, principal), details)
        return made

    async def list(self, principal: Principal, request: pb.ListSchedulesRequest) -> pb.ListSchedulesResponse:
        """Return those of the agents on which the person is operator, newest first."""
        size = page_size(request.page_size)
        query = ("schedules", principal.workspace_id, principal.id, request.agent)
        position = self._pager.position(query, request.page_token)
        before = int(position[0]) if position and isinstance(position[0], int) else _END
        if request.agent:
            agents = [self._directory.resolve_for_person(principal, request.agent, OPERATOR).id]
        else:
            agents = [agent.id for agent in self._directory.for_person(principal, OPERATOR).ordered]
        rows = await self._journal.read(
            lambda connection: scheduling.newest(connection, principal.workspace_id, agents, before, size + 1)
        )
        page = fit(self._shown(principal, row) for row in rows[:size])
        response = pb.ListSchedulesResponse(schedules=page)
        if len(rows) > len(page):
            response.next_page_token = self._pager.token(query, [rows[len(page) - 1].ordinal])
        return response

    async def get(self, principal: Principal, schedule_id: str) -> pb.Schedule:
        """Return one."""
        return self._shown(principal, await self._find(principal, schedule_id))

    async def pause(self, principal: Principal, schedule_id: str) -> pb.Schedule:
        """Let it fire no more."""
        row = await self._find(principal, schedule_id)
        key = (row.workspace_id, row.id)

        def op(book: Book) -> Record:
            current = _current(book, key)
            if current.state == "active":
                scheduling.set_state(book, current, "paused", None, current.author_id)
                scheduling.note(book, current, "schedule.paused", actor_of(self._directory, principal))
            return _current(book, key)

        return self._shown(principal, await self._journal.write(op))

    async def resume(self, principal: Principal, schedule_id: str) -> pb.Schedule:
        """Let it fire from now on; in the caller's name, where its author may no longer."""
        row = await self._find(principal, schedule_id)
        due_at = read_cron(row.cron, row.timezone).next(self._clock.now())
        agent = self._directory.agent(row.workspace_id, row.agent_id)
        key = (row.workspace_id, row.id)

        def op(book: Book) -> Record:
            current = _current(book, key)
            if current.state != "active":
                author = current.author_id
                if agent is None or self._directory.role_on_agent(author, agent) < OPERATOR:
                    author = principal.id
                scheduling.set_state(book, current, "active", due_at, author)
                details = {"author_id": author}
                actor = actor_of(self._directory, principal)
                scheduling.note(book, current, "schedule.resumed", actor, details)
            return _current(book, key)

        resumed = await self._journal.write(op)
        self._changed()
        return self._shown(principal, resumed)

    async def remove(self, principal: Principal, schedule_id: str) -> None:
        """Remove it."""
        row = await self._find(principal, schedule_id)
        key = (row.workspace_id, row.id)

        def op(book: Book) -> None:
            current = _current(book, key)
            scheduling.remove(book.connection, key)
            details = {"fired": current.fired, "skipped": current.skipped}
            actor = actor_of(self._directory, principal)
            scheduling.note(book, current, "schedule.removed", actor, details)

        await self._journal.write(op)

    async def _find(self, principal: Principal, schedule_id: str) -> Record:
        key = (principal.workspace_id, schedule_id)
        row = await self._journal.read(lambda connection: scheduling.find(connection, key))
        agent = self._directory.agent(row.workspace_id, row.agent_id) if row is not None else None
        held = self._directory.role_on_agent(principal.id, agent) if agent is not None else 0
        if row is None or held < VIEWER:
            raise no_schedule(schedule_id)
        if held < OPERATOR:
            raise needs_role(OPERATOR, "the agent of this schedule")
        return row

    def _shown(self, principal: Principal, row: Record) -> pb.Schedule:
        shown = pb.Schedule(
            id=row.id,
            agent=self._views.party(principal, "agent", row.agent_id, known=True),
            name=row.name,
            cron=row.cron,
            timezone=row.timezone,
            text=row.body,
            state=_STATES[row.state],
            author=self._views.party(principal, "user", row.author_id),
            created_at=to_timestamp(row.created_at),
            turn_id=row.turn_id,
            session_id=row.session_id,
            fired=row.fired,
            skipped=row.skipped,
        )
        if row.due_at is not None:
            shown.next_at.CopyFrom(to_timestamp(row.due_at))
        if row.fired_at is not None:
            shown.fired_at.CopyFrom(to_timestamp(row.fired_at))
        if row.problem_at is not None:
            shown.problem.code, shown.problem.message = row.problem_code, row.problem_message
            shown.problem.at.CopyFrom(to_timestamp(row.problem_at))
        return shown


def _current(book: Book, key: scheduling.Key) -> Record:
    """Return a schedule as it is now, which nobody else changes before this transaction is through."""
    book.lock(key[0])
    current = scheduling.find(book.connection, key)
    if current is None:
        raise no_schedule(key[1])
    return current


def _name(request: pb.AddScheduleRequest) -> str:
    if not request.name:
        return title_of(request.text)
    if not request.name.isprintable() or not request.name.strip():
        raise invalid("name", "must be printable characters on one line")
    return request.name.strip()


def _digest(request: pb.AddScheduleRequest, agent: AgentRecord) -> bytes:
    content = (agent.id, request.cron, request.timezone, request.name, request.text)
    return hashlib.blake2b("\0".join(("schedule", *content)).encode(), digest_size=16).digest()


def no_schedule(schedule_id: str) -> HoplineError:
    """Return the one answer for a schedule that does not exist or that the caller may not know of."""
    return HoplineError(
        "not_found", f"there is no schedule {schedule_id!r}", details={"schedule_id": schedule_id}
    )
