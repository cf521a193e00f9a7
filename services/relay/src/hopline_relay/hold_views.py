"""What is held, as people and agents see it: an agent outside the reader's view is `another agent`."""

from __future__ import annotations

from collections.abc import Sequence

from hopline.relay.v1 import draft_pb2, message_pb2, session_pb2
from hopline_rpc.clock import Clock, to_timestamp
from hopline_rpc.principals import Principal
from sqlalchemy import Connection

from hopline_relay.domain.holds import GOING, WOKEN, Reasons
from hopline_relay.journal import Journal
from hopline_relay.store import holds
from hopline_relay.store.bulk import by_id
from hopline_relay.store.schema import messages, sessions
from hopline_relay.store.sql import Record
from hopline_relay.view import Views, source_name


class HoldViews:
    """Shows what is held."""

    def __init__(self, journal: Journal, views: Views, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock
        self._views = views

    def reply_held(self, reader: Principal, why: Reasons) -> draft_pb2.ReplyToHumanResponse:
        """Return what a lead is told whose answer is held."""
        return draft_pb2.ReplyToHumanResponse(
            status=draft_pb2.REPLY_STATUS_HELD,
            waiting_on=self._waited(reader, why),
            open_todos=why.open_todos,
        )

    async def add_to_turn(self, reader: Principal, view: message_pb2.TurnView) -> message_pb2.TurnView:
        """Say of a turn that has not been answered whether its answer is held, and for what."""
        now = self._clock.now()

        def read(connection: Connection) -> tuple[Record, Reasons] | None:
            row = holds.find(connection, (reader.workspace_id, view.turn_id))
            return (row, holds.reasons(connection, holds.seat_of_hold(row), now)) if row is not None else None

        found = await self._journal.read(read)
        if found is not None:
            row, why = found
            view.held, view.has_draft, view.open_todos = True, bool(row.body), why.open_todos
            view.waiting_on.extend(each.agent for each in self._waited(reader, why))
        return view

    async def add_to_sessions(self, reader: Principal, shown: Sequence[session_pb2.Session]) -> None:
        """Say of sessions whether an answer of theirs is held; to people, and to the agent that runs them."""
        wanted = {each.id: each for each in shown if reader.kind == "user" or each.agent.id == reader.id}
        if not wanted:
            return

        now = self._clock.now()

        def read(connection: Connection) -> list[tuple[Record, Reasons]]:
            rows = holds.in_sessions(connection, reader.workspace_id, list(wanted))
            return [(row, holds.reasons(connection, holds.seat_of_hold(row), now)) for row in rows]

        for row, why in await self._journal.read(read):
            session = wanted[row.session_id]
            names = {each.name for each in session.waiting_on}
            session.held = True
            session.open_todos = max(session.open_todos, why.open_todos)
            session.waiting_on.extend(
                each.agent for each in self._waited(reader, why) if each.agent.name not in names
            )

    async def holds(self, reader: Principal, rows: Sequence[Record]) -> list[draft_pb2.Hold]:
        """Return what is held, for a person who may look at it."""
        now = self._clock.now()

        def read(connection: Connection) -> list[tuple[Record, Record, Record, Reasons]]:
            asked = by_id(connection, messages, {(row.workspace_id, row.message_id) for row in rows})
            titled = by_id(connection, sessions, {(row.workspace_id, row.session_id) for row in rows})
            return [
                (
                    row,
                    asked.get((row.workspace_id, row.message_id)),
                    titled.get((row.workspace_id, row.session_id)),
                    holds.reasons(connection, holds.seat_of_hold(row), now),
                )
                for row in rows
            ]

        return [self._hold(reader, *each) for each in await self._journal.read(read)]

    def _hold(
        self, reader: Principal, row: Record, asked: Record | None, session: Record | None, why: Reasons
    ) -> draft_pb2.Hold:
        hold = draft_pb2.Hold(
            session_id=row.session_id,
            session_title=session.title if session is not None else "",
            agent=self._views.party(reader, "agent", row.agent_id),
            turn_id=row.turn_id,
            message_id=row.message_id,
            root_id=row.root_id,
            held_since=to_timestamp(row.created_at),
            has_draft=bool(row.body),
            draft=row.body,
            waiting_on=self._waited(reader, why),
            open_todos=why.open_todos,
            woken=not why and row.state in (WOKEN, GOING),
        )
        if asked is not None:
            hold.prompted_by.CopyFrom(
                self._views.party(reader, asked.from_kind, asked.from_id, name=source_name(asked))
            )
        if row.written_at is not None:
            hold.written_at.CopyFrom(to_timestamp(row.written_at))
        return hold

    def _waited(self, reader: Principal, why: Reasons) -> list[draft_pb2.WaitedFor]:
        found = []
        for each in why.waited:
            # A lead knows whom it has started.
            agent = self._views.party(reader, "agent", each.agent_id, known=reader.kind == "agent")
            waited = draft_pb2.WaitedFor(agent=agent)
            if agent.id:
                waited.session_id, waited.turn_id = each.session_id, each.turn_id
            found.append(waited)
        return found
