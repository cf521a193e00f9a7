"""Asking and waiting: `ask`, a person's prompt, and `check`.

A wait costs a future and a row. Its end, whatever ends it, never ends the work: an answer that comes
later is delivered as a message.
"""

from __future__ import annotations

from dataclasses import dataclass

from hopline.relay.v1 import message_pb2 as pb
from hopline_directory import Directory
from hopline_directory.records import VIEWER
from hopline_rpc import telemetry
from hopline_rpc.clock import Clock
from hopline_rpc.errors import invalid
from hopline_rpc.ids import IdMaker
from hopline_rpc.principals import Principal
from sqlalchemy import Connection, or_, select

from hopline_relay.callers import Inboxes, no_session, no_turn, stand
from hopline_relay.domain.values import VETOED, Fault, clamp_wait
from hopline_relay.drafts import Draft, Sent
from hopline_relay.handover import HandOver
from hopline_relay.hold_views import HoldViews
from hopline_relay.journal import Journal
from hopline_relay.sends import Sends
from hopline_relay.slots import Slots
from hopline_relay.spans import REPEATED
from hopline_relay.store import escalating, outputs, queues, waiting, wakes
from hopline_relay.store.book import Book
from hopline_relay.store.bulk import by_id
from hopline_relay.store.facts import Names, look_up
from hopline_relay.store.schema import debts, deliveries, messages, sessions, turns
from hopline_relay.store.sql import Record
from hopline_relay.taking import Taking
from hopline_relay.view import Views, turn_view
from hopline_relay.waits import Blocked, Outcome, Waiter, Waits


@dataclass(slots=True)
class _Watched:
    """A turn that somebody looks at, and what is known of its outcome."""

    turn: Record
    # `queued`, `running` or `waiting_for_owner`, as long as there is no outcome.
    state: str
    debt: Record | None
    reply: Record | None
    # What an agent in reply mode `all` has written so far.
    written: str = ""

    @property
    def outcome(self) -> Outcome | None:
        """How it came out, if it has."""
        debt, turn = self.debt, self.turn
        if debt is None:
            return self._of_turn() if turn.state not in ("queued", "running") else None
        if debt.state == "open":
            return None
        if self.reply is not None:
            return Outcome("completed", self.reply.body, self.reply.payload, self.reply.id)
        return Outcome(debt.state, fault=Fault(debt.error_code, debt.error_message))

    def _of_turn(self) -> Outcome:
        turn = self.turn
        fault = Fault(turn.error_code, turn.error_message) if turn.error_code else None
        return Outcome(turn.state, fault=fault)


class Asks:
    """Serves calls that may wait."""

    def __init__(
        self,
        journal: Journal,
        directory: Directory,
        sends: Sends,
        waits: Waits,
        hand_over: HandOver,
        taking: Taking,
        slots: Slots,
        inboxes: Inboxes,
        views: Views,
        hold_views: HoldViews,
        ids: IdMaker,
        clock: Clock,
    ) -> None:
        self._journal = journal
        self._views = views
        self._hold_views = hold_views
        self._directory = directory
        self._sends = sends
        self._waits = waits
        self._hand_over = hand_over
        self._taking = taking
        self._slots = slots
        self._inboxes = inboxes
        self._ids = ids
        self._clock = clock

    async def ask(self, draft: Draft, wait_seconds: int | None) -> pb.TurnView:
        """Send an ask or a prompt, and wait for the end of its turn."""
        seconds = clamp_wait(wait_seconds)
        waiter = Waiter(self._ids.new_id("wai"), draft.speaker.id) if seconds else None
        draft.waiter = waiter
        sent = None
        outcome = None
        try:
            sent = await self._sends.send(draft)
            draft.cycle = sent.cycle
            if sent.repeated:
                telemetry.note(REPEATED)
            copy = sent.copies[0]
            if copy.state == VETOED:
                return self._kept_back(draft, sent, waiter)
            if sent.repeated:
                return await self.look(
                    draft.principal, copy.turn_id, seconds, from_turn_id=waiter.slot_turn_id if waiter else ""
                )
            if waiter is not None:
                outcome = await self.wait(waiter, seconds, copy.id)
                if outcome is None and waiter.elsewhere:
                    return await self._ended_elsewhere(draft.principal, copy.turn_id, waiter)
        except BaseException:
            if waiter is not None:
                self._gone(waiter)
            raise
        if waiter is not None:
            self._waits.leave(waiter)
            self._waits.forget(draft.principal.workspace_id, waiter)
        state, written = "queued", ""
        if outcome is None and waiter is not None:
            state, written = await self._state_of(draft.principal.workspace_id, copy.turn_id)
        view = turn_view(
            state,
            outcome,
            written=written,
            session_id=copy.session_id,
            turn_id=copy.turn_id,
            thread_id=sent.thread_id,
            message_id=sent.message_id,
            depth=sent.depth,
            agent=self._views.party(draft.principal, "agent", copy.id, known=True),
        )
        return view if outcome is not None or waiter is None else await self._held(draft.principal, view)

    async def _ended_elsewhere(self, principal: Principal, turn_id: str, waiter: Waiter) -> pb.TurnView:
        """Return how a turn stands that ended at another relay; an answer that is a message is taken."""
        self._waits.leave(waiter)
        view = await self.look(principal, turn_id, 0, from_turn_id="")
        self._waits.forget(principal.workspace_id, waiter)
        return view

    def _kept_back(self, draft: Draft, sent: Sent, waiter: Waiter | None) -> pb.TurnView:
        """Return what becomes of an ask that a hook keeps from the agent: there is nothing to wait for."""
        if waiter is not None:
            self._waits.leave(waiter)
        copy = sent.copies[0]
        reason = copy.cancel_reason or "a hook has left nothing of it"
        return turn_view(
            "canceled",
            Outcome("canceled", fault=Fault("canceled", reason)),
            session_id="",
            turn_id="",
            thread_id=sent.thread_id,
            message_id="",
            depth=0,
            agent=self._views.party(draft.principal, "agent", copy.id, known=True),
        )

    async def check(
        self,
        principal: Principal,
        *,
        turn_id: str,
        session_id: str,
        wait_seconds: int | None,
        caller_session_id: str,
        from_turn_id: str,
        endpoint_of: str = "",
    ) -> pb.TurnView:
        """Look at a turn that the caller started, or wait for it; a session stands for its newest turn."""
        from_turn = await self._calling_turn(principal, caller_session_id, from_turn_id)
        if endpoint_of:
            turn_id = await self._newest_bound(principal, session_id, endpoint_of)
        elif session_id:
            turn_id = await self._newest(principal, session_id)
        return await self.look(principal, turn_id, clamp_wait(wait_seconds), from_turn_id=from_turn)

    def hand_back(self, principal: Principal, view: pb.TurnView) -> None:
        """Deliver an answer as a message that a call returned and its caller never received."""
        if principal.kind == "agent" and view.turn_id:
            self._hand_over.back(principal.workspace_id, view.turn_id)

    # --- waiting ----------------------------------------------------------------------------------

    async def wait(self, waiter: Waiter, seconds: float, target: str) -> Outcome | None:
        """Wait for a turn of `target`; the turn that the call comes from stands still meanwhile."""
        turn_id = waiter.slot_turn_id
        if turn_id:
            session_id = waiter.session_id or turn_id
            self._waits.block(waiter, Blocked(turn_id, waiter.principal_id, session_id, target))
        try:
            return await self._slots.wait(waiter, seconds, turn_id)
        finally:
            self._waits.unblock(waiter)

    def _gone(self, waiter: Waiter) -> None:
        """End a wait whose call was cancelled: what it was handed in the meantime is delivered instead."""
        self._waits.leave(waiter)
        workspace_id, turn_id = waiter.key
        if not turn_id:
            return
        if waiter.outcome is not None or waiter.elsewhere:
            self._hand_over.back(workspace_id, turn_id)
        self._waits.forget(workspace_id, waiter)

    async def _state_of(self, workspace_id: str, turn_id: str) -> tuple[str, str]:
        """Return what a turn does that has no outcome yet, and what it has written so far."""
        key = (workspace_id, turn_id)

        def read(connection: Connection) -> tuple[str, str]:
            row = queues.find(connection, {key}).get(key)
            if row is None:
                return "running", ""
            written = outputs.so_far(connection, row) if self._streams(workspace_id, row.agent_id) else ""
            return _state(connection, row), written

        return await self._journal.read(read)

    # --- looking ----------------------------------------------------------------------------------

    async def look(
        self, principal: Principal, turn_id: str, seconds: int, *, from_turn_id: str
    ) -> pb.TurnView:
        """Look at a turn that the caller started, or may look at, and wait for its end."""
        watched = await self._watch(principal, turn_id)
        outcome = watched.outcome
        if outcome is None and seconds:
            outcome = await self._wait_again(principal, watched, seconds, from_turn_id)
            if outcome is None:
                # It may have ended since, and then it was delivered as a message.
                watched = await self._watch(principal, turn_id)
                outcome = watched.outcome
        if outcome is not None and watched.debt is not None and watched.debt.creditor_id == principal.id:
            await self._take(principal, watched.debt)
        turn = watched.turn
        view = turn_view(
            watched.state,
            outcome,
            written=watched.written,
            session_id=turn.session_id,
            turn_id=turn.id,
            thread_id=turn.thread_id,
            message_id=turn.message_id,
            depth=turn.depth,
            agent=self._views.party(
                principal, "agent", turn.agent_id, known=turn.caused_by_id == principal.id
            ),
        )
        return view if outcome is not None else await self._held(principal, view)

    async def _held(self, principal: Principal, view: pb.TurnView) -> pb.TurnView:
        """Say to a person what an answer waits for that is held; what agents ask never is."""
        return await self._hold_views.add_to_turn(principal, view) if principal.kind == "user" else view

    async def _wait_again(
        self, principal: Principal, watched: _Watched, seconds: int, from_turn_id: str
    ) -> Outcome | None:
        turn = watched.turn
        waiter = Waiter(self._ids.new_id("wai"), principal.id)
        self._waits.register(turn.workspace_id, turn.id, waiter)
        row = {
            "workspace_id": turn.workspace_id,
            "id": waiter.id,
            "turn_id": turn.id,
            "instance_id": self._journal.instance_id,
            "waiter_kind": principal.kind,
            "waiter_id": principal.id,
            "waiter_turn_id": from_turn_id,
            "created_at": self._clock.now(),
        }
        try:
            await self._journal.write(
                lambda book: waiting.add(book.connection, row), within=[principal.workspace_id]
            )
            # It may have ended between the look and the registration.
            outcome = (await self._watch(principal, turn.id)).outcome
            if outcome is None:
                waiter.slot_turn_id = from_turn_id
                outcome = await self.wait(waiter, seconds, turn.agent_id)
        except BaseException:
            self._gone(waiter)
            raise
        self._waits.leave(waiter)
        self._waits.forget(turn.workspace_id, waiter)
        return outcome

    async def outcome_of(self, principal: Principal, turn_id: str) -> Outcome | None:
        """Return how a turn came out by the record, if it has."""
        return (await self._watch(principal, turn_id)).outcome

    async def _watch(self, principal: Principal, turn_id: str) -> _Watched:
        key = (principal.workspace_id, turn_id)

        def read(connection: Connection) -> _Watched | None:
            turn = by_id(connection, turns, {key}).get(key)
            debt = by_id(connection, debts, {key}, debts.c.turn_id).get(key)
            # What lies between others is not even read: it would show in the time.
            if turn is None or not self._may_watch(principal, turn):
                return None
            reply = None
            if debt is not None and debt.reply_message_id:
                reply_key = (key[0], debt.reply_message_id)
                reply = by_id(connection, messages, {reply_key}).get(reply_key)
            written = outputs.so_far(connection, turn) if self._streams(key[0], turn.agent_id) else ""
            return _Watched(turn, _state(connection, turn), debt, reply, written)

        watched = await self._journal.read(read)
        if watched is None:
            raise no_turn(turn_id)
        return watched

    def _streams(self, workspace_id: str, agent_id: str) -> bool:
        agent = self._directory.agent(workspace_id, agent_id)
        return agent is not None and agent.reply_mode == "all"

    def _may_watch(self, principal: Principal, turn: Record) -> bool:
        if turn.caused_by_id == principal.id:
            return True
        agent = self._directory.agent(principal.workspace_id, turn.agent_id)
        return (
            principal.kind == "user"
            and agent is not None
            and self._directory.role_on_agent(principal.id, agent) >= VIEWER
        )

    async def _newest(self, principal: Principal, session_id: str) -> str:
        """Return the newest turn that the caller may look at in a session."""
        caused_by = principal.id if principal.kind == "agent" else ""
        turn = await self._journal.read(
            lambda connection: queues.newest_in(connection, principal.workspace_id, session_id, caused_by)
        )
        if turn is None or not self._may_watch(principal, turn):
            raise no_session(session_id)
        return str(turn.id)

    async def _newest_bound(self, principal: Principal, session_id: str, agent_id: str) -> str:
        """Return the caller's newest turn in a session of an agent's own endpoint that it has opened."""
        if not session_id:
            raise invalid("session_id", "is needed through an agent's own endpoint")
        key = (principal.workspace_id, session_id)

        def read(connection: Connection) -> Record | None:
            session = by_id(connection, sessions, {key}).get(key)
            if session is None or not _is_bound(session, agent_id, principal):
                return None
            return queues.newest_in(connection, *key, principal.id)

        turn = await self._journal.read(read)
        if turn is None:
            raise no_session(session_id)
        return str(turn.id)

    async def _calling_turn(self, principal: Principal, session_id: str, turn_id: str) -> str:
        """Return the running turn that the call is made from, if the mesh knows it."""
        if turn_id or not session_id:
            return turn_id
        names = Names(sessions={(principal.workspace_id, session_id)})
        facts = await self._journal.read(lambda connection: look_up(connection, names))
        standing = stand(principal, "", session_id, facts, self._inboxes)
        return standing.turn.id if standing.turn is not None and standing.turn.slot else ""

    # --- taking -----------------------------------------------------------------------------------

    async def _take(self, principal: Principal, debt: Record) -> None:
        """Mark an answer as taken that `check` hands over, and drop the wake that is still queued."""
        if principal.kind != "agent":
            return
        key = (debt.workspace_id, debt.turn_id)
        await self._taking.take(key, lambda book: _drop_wake(book, debt, principal.id))


def _is_bound(session: Record, agent_id: str, principal: Principal) -> bool:
    """Tell whether a session was opened by the caller, through that agent's own endpoint."""
    return (session.agent_id, session.channel, session.opened_by_id) == (agent_id, "mcp", principal.id)


def _state(connection: Connection, turn: Record) -> str:
    """Return what a turn does that is asked for before its outcome is known."""
    if escalating.waiting_turns(connection, [turn]):
        return "waiting_for_owner"
    return str(turn.state) if turn.state in ("queued", "running") else "running"


_ANSWERS = select(deliveries).join(
    messages,
    (messages.c.workspace_id == deliveries.c.workspace_id) & (messages.c.id == deliveries.c.message_id),
)


def _drop_wake(book: Book, debt: Record, principal_id: str) -> list[Record]:
    """Take the answer, or the notice that there is none, off its recipient's queue."""
    query = _ANSWERS.where(
        messages.c.workspace_id == debt.workspace_id,
        messages.c.thread_id == debt.thread_id,
        messages.c.in_reply_to == debt.message_id,
        or_(messages.c.id == debt.reply_message_id, messages.c.kind == "notice"),
        deliveries.c.recipient_id == principal_id,
        deliveries.c.state == "queued",
    )
    return wakes.drop(book, book.connection.execute(query).all())
