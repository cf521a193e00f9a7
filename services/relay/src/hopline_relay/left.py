"""Where a session leaves something to itself, and who may look at it: the same for todos and timers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from hopline_directory import OPERATOR, VIEWER, Directory, needs_role
from hopline_rpc import telemetry
from hopline_rpc.errors import HoplineError, invalid
from hopline_rpc.principals import Principal
from sqlalchemy import Connection

from hopline_relay.callers import Inboxes, Standing, cause_of, no_session, require_active, standing_of
from hopline_relay.domain.handing import By
from hopline_relay.domain.handing import Standing as Handed
from hopline_relay.domain.left import Origin
from hopline_relay.inbox import Inbox
from hopline_relay.journal import Journal
from hopline_relay.store import queues
from hopline_relay.store import sessions as session_store
from hopline_relay.store.book import Book
from hopline_relay.store.bulk import by_id
from hopline_relay.store.schema import sessions
from hopline_relay.store.sql import Record

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a call of an agent is made from; `settle` says in which session."""

    principal: Principal
    standing: Standing
    # Who does it, at what it counts, where a plugin does it in the agent's name.
    by: By | None = None

    @property
    def details(self) -> dict[str, str]:
        """What the audit log says of who has done it in the agent's name."""
        return {"plugin_id": self.by.plugin_id} if self.by is not None else {}

    def session(self, book: Book) -> Key:
        """Return the session, made where the agent has no inbox session yet."""
        if self.standing.inbox is not None:
            session_store.settle(book, [self.standing.inbox])
            return self.principal.workspace_id, self.standing.inbox.id
        return self.principal.workspace_id, self.standing.session_id


class Seats:
    """Finds where calls are made from, and what people may look at."""

    def __init__(self, journal: Journal, directory: Directory, inbox: Inbox, inboxes: Inboxes) -> None:
        self._journal = journal
        self._directory = directory
        self._inbox = inbox
        self._inboxes = inboxes

    async def take(self, principal: Principal, session_id: str, turn_id: str, by: By | None = None) -> Seat:
        """Return where an agent that wants to change something calls from."""
        self._inbox.touch(principal)
        agent = require_active(self._directory, principal)
        if agent is not None and agent.kind == "receive_only":
            raise HoplineError("receive_only", "this agent only receives: it leaves nothing to itself")
        standing = await standing_of(self._journal, self._inboxes, principal, session_id, turn_id)
        return Seat(principal, standing, by)

    def remember(self, seat: Seat) -> None:
        """Keep the inbox session that was found or made."""
        if seat.standing.inbox is not None and seat.standing.inbox.id:
            self._inboxes.remember(seat.standing.inbox)

    def origin(self, book: Book, seat: Seat, root_of: str) -> Origin:
        """Return at which depth and under which root what is left now comes back.

        `root_of`: an id that a root of its own is named after, where nothing of the agent runs or ran.
        """
        workspace_id = seat.principal.workspace_id
        window = self._directory.policy(workspace_id).causality_window_seconds
        trace = telemetry.current_traceparent()
        cause = cause_of(book.connection, seat.principal, seat.standing, book.now - window)
        if cause is None:
            own = Origin("", 0, f"rot_{root_of.partition('_')[2]}", trace)
            return own if seat.by is None else _as_handed(own, seat.by.standing)
        if seat.standing.turn is not None:
            # Where nothing that ends turns can come between.
            now = queues.find(book.connection, {(workspace_id, cause.id)})[workspace_id, cause.id]
            if now.state != "running":
                raise HoplineError("failed_precondition", "the turn that this call comes from has ended")
        own = Origin(
            cause.id,
            cause.depth,
            cause.root_id,
            trace or cause.span or cause.traceparent,
            cause.hook_generation,
        )
        return own if seat.by is None else _as_handed(own, seat.by.standing)

    def check_open(self, book: Book, session: Key) -> None:
        """Let nothing be left to a session that is closed."""
        row = by_id(book.connection, sessions, {session}).get(session)
        if row is None:
            raise no_session(session[1])
        if row.closed:
            raise HoplineError("session_closed", "this session is closed; start a new one")

    # --- looking ----------------------------------------------------------------------------------

    async def seen(
        self, principal: Principal, session_id: str, caller_session_id: str, turn_id: str
    ) -> Record:
        """Return the session that is looked at; None stands for an inbox session that does not exist yet.

        An agent looks at the one it calls from; a person names one whose agent they may view.
        """
        if principal.kind != "user":
            self._inbox.touch(principal)
            if session_id and session_id != caller_session_id:
                raise no_session(session_id)
            standing = await standing_of(self._journal, self._inboxes, principal, caller_session_id, turn_id)
            if standing.inbox is not None:
                find = session_store.inbox_of
                return await self._journal.read(
                    lambda connection: find(connection, principal.workspace_id, principal.id)
                )
            session_id = standing.session_id
        elif not session_id:
            raise invalid("session_id", "says whose it is: a session of an agent that you may view")
        key = (principal.workspace_id, session_id)
        row = (await self._journal.read(lambda connection: by_id(connection, sessions, {key}))).get(key)
        if row is None or (principal.kind == "user" and self._role(principal, row.agent_id) < VIEWER):
            raise no_session(session_id)
        return row

    async def owned(
        self,
        principal: Principal,
        find: Callable[[Connection], Record | None],
        missing: Callable[[], HoplineError],
        what: str,
    ) -> Record:
        """Return what a person may end: found, of an agent on which they are operator."""
        row = await self._journal.read(find)
        held = self._role(principal, row.agent_id) if row is not None else 0
        if row is None or held < VIEWER:
            raise missing()
        if held < OPERATOR:
            raise needs_role(OPERATOR, what)
        return row

    def _role(self, principal: Principal, agent_id: str) -> int:
        agent = self._directory.agent(principal.workspace_id, agent_id)
        return self._directory.role_on_agent(principal.id, agent) if agent is not None else 0


def _as_handed(own: Origin, handed: Handed) -> Origin:
    """Return where what a plugin leaves stands: the worst of the agent's place and of what it was handed."""
    return replace(
        own,
        depth=max(own.depth, handed.depth),
        root_id=handed.roots[0] if handed.roots and not own.turn_id else own.root_id,
        hook_generation=max(own.hook_generation, handed.generation + 1),
    )
