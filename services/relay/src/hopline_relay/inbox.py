"""Pulling: an agent takes unread messages, which become one turn of its own until each is settled."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from hopline.quota.v1 import admission_pb2 as quota_pb
from hopline.relay.v1 import message_pb2 as pb
from hopline_directory import Directory
from hopline_rpc import telemetry
from hopline_rpc.clock import Clock
from hopline_rpc.paging import fit
from hopline_rpc.principals import Principal
from sqlalchemy import Connection

from hopline_relay.admission import Admission, requeued_item
from hopline_relay.batching import Batcher
from hopline_relay.callers import Inboxes, Standing, actor_of, no_message, require_active, standing_of
from hopline_relay.claims import Claims, given_back, may_still, withdrawal
from hopline_relay.domain.batches import held_by_worker
from hopline_relay.domain.values import PULL_LEASE_SECONDS
from hopline_relay.endings import Ending, Endings
from hopline_relay.finding import Found, load
from hopline_relay.held import Pull
from hopline_relay.journal import Journal
from hopline_relay.signals import Signals
from hopline_relay.store import newer, pulling, queues
from hopline_relay.store import sessions as session_store
from hopline_relay.store import turns as turn_store
from hopline_relay.store.book import Book
from hopline_relay.store.bulk import by_id
from hopline_relay.store.facts import Names, look_up
from hopline_relay.store.outgoing import Copy, Outgoing
from hopline_relay.store.schema import sessions
from hopline_relay.store.sql import Record
from hopline_relay.store.turns import Ended, Start
from hopline_relay.view import DELIVERY_STATES, Views
from hopline_relay.whole import Whole

# A lease of ten minutes need not be written anew with each of a busy agent's calls.
_RENEW_SECONDS: Final = 30.0
# How long after its last pull an agent counts as one that pulls.
_PULLS_SECONDS: Final = 600.0
_TRIES: Final = 5

Unseen = tuple[str, str, tuple[str, ...]]
"""Workspace, agent, and ids of messages that were taken for it and never reached it."""
_Taken = tuple[list[Start], int]
"""What was taken, and how many messages are unread then."""


class Inbox:
    """Serves agents that pull."""

    def __init__(
        self,
        journal: Journal,
        directory: Directory,
        admission: Admission,
        endings: Endings,
        claims: Claims,
        signals: Signals,
        inboxes: Inboxes,
        clock: Clock,
    ) -> None:
        self._journal = journal
        self._directory = directory
        self._admission = admission
        self._endings = endings
        self._claims = claims
        self._signals = signals
        self._inboxes = inboxes
        self._clock = clock
        self._views = Views(directory)
        # When the lease of an agent's pull is renewed next, and when it pulled last.
        self._renew_at: dict[tuple[str, str], float] = {}
        self._pulled_at: dict[tuple[str, str], float] = {}
        self._renewals: Batcher[tuple[str, str], None] = Batcher("pull leases", self._renew)
        self._returns: Batcher[Unseen, None] = Batcher("messages put back", self._put_back, clock=clock)
        self._taking = Whole("take messages")
        # Whether an agent has pulled lately at another relay.
        self.pulls_elsewhere: Callable[[str, str], bool] = lambda workspace_id, agent_id: False
        # Calls that wait, oldest first.
        self._pulls: dict[tuple[str, str], list[Pull]] = defaultdict(list)

    # --- taking -----------------------------------------------------------------------------------

    async def take(
        self, principal: Principal, *, limit: int, wait_seconds: int, session_id: str, turn_id: str
    ) -> pb.TakeInboxResponse:
        """Take up to `limit` unread messages, oldest first; wait for a first one."""
        require_active(self._directory, principal)
        standing = await self.standing(principal, session_id, turn_id)
        agent = (principal.workspace_id, principal.id)
        self._pulled_at[agent] = self._clock.monotonic()
        ends_at = self._clock.monotonic() + wait_seconds
        while True:
            news = self._signals.queue_grows(agent)
            try:
                response = await self._take_oldest(principal, standing, limit)
                left = ends_at - self._clock.monotonic()
                if response.messages or left <= 0:
                    return response
                given = await self._wait(principal, standing, news, left)
                if given is not None:
                    return given
            finally:
                self._signals.ignore(agent, news)

    def put_back(self, principal: Principal, message_ids: Sequence[str]) -> None:
        """Make messages unread again that were taken by a call whose caller has not got them."""
        if message_ids:
            self._returns.post((principal.workspace_id, principal.id, tuple(message_ids)))

    async def take_shown(self, principal: Principal, standing: Standing, message_ids: Sequence[str]) -> None:
        """Take the unread ones among messages that the agent is about to be shown."""
        keys = {(principal.workspace_id, message_id) for message_id in message_ids}
        rows = await self._journal.read(lambda connection: pulling.unread_of(connection, principal, keys))
        if rows:
            await self._take(principal, standing, rows)

    async def standing(self, principal: Principal, session_id: str, turn_id: str) -> Standing:
        """Work out where a call comes from."""
        return await standing_of(self._journal, self._inboxes, principal, session_id, turn_id)

    async def unread(self, principal: Principal) -> int:
        """Return how many messages of the agent are unread."""
        return await self._journal.read(
            partial(queues.count_queued, workspace_id=principal.workspace_id, agent_id=principal.id)
        )

    # --- waiting ----------------------------------------------------------------------------------

    async def _wait(
        self, principal: Principal, standing: Standing, news: asyncio.Future[None], seconds: float
    ) -> pb.TakeInboxResponse | None:
        """Wait for news; what is given to the call meanwhile is its answer."""
        agent = (principal.workspace_id, principal.id)
        pull = Pull(*agent, standing.session_id, news)
        if pull.session_id:
            self._pulls[agent].append(pull)
        timer = self._clock.call_later(seconds, lambda: None if news.done() else news.set_result(None))
        try:
            await news
            if pull.decided is not None:
                await asyncio.shield(pull.decided)
        except BaseException:
            pull.gone = True
            if pull.taken is not None:
                self.put_back(principal, [message.id for message in pull.taken.messages])
            raise
        finally:
            timer.cancel()
            self._wait_no_more(pull)
        return pull.taken

    def _wait_no_more(self, pull: Pull) -> None:
        agent = (pull.workspace_id, pull.agent_id)
        if pull in (waiting := self._pulls.get(agent, [])):
            waiting.remove(pull)
            if not waiting:
                del self._pulls[agent]

    def take_place(self, workspace_id: str, agent_id: str) -> Pull | None:
        """Keep a waiting call for one message of the agent, until `hand_over` or `free_place`."""
        for pull in self._pulls.get((workspace_id, agent_id), ()):
            if not pull.news.done():
                self._wait_no_more(pull)
                pull.decided = asyncio.get_running_loop().create_future()
                return pull
        return None

    def hand_over(self, pull: Pull, message: Outgoing, copy: Copy, remaining: int, newer: int) -> None:
        """Give a waiting call the message whose turn has started for it; `remaining` are unread."""
        agent = (pull.workspace_id, pull.agent_id)
        self._renew_at[agent] = self._clock.monotonic() + _RENEW_SECONDS
        reader = Principal("agent", pull.agent_id, pull.workspace_id)
        if pull.gone:
            self.put_back(reader, [message.id])
        else:
            now = self._clock.now()
            shown = self._views.handed(reader, copy.turn, message.row, message.delivered, now, newer)
            pull.taken = pb.TakeInboxResponse(
                messages=[shown],
                remaining=remaining,
                turn_id=copy.turn.batch_id,
                session_id=copy.turn.run_session_id,
            )
        self.free_place(pull)

    def free_place(self, pull: Pull) -> None:
        """Let a call for which a place was kept go on."""
        for future in (pull.decided, pull.news):
            if future is not None and not future.done():
                future.set_result(None)

    # --- taking what is there ---------------------------------------------------------------------

    async def _take_oldest(
        self, principal: Principal, standing: Standing, limit: int
    ) -> pb.TakeInboxResponse:
        def read(connection: Connection) -> tuple[Sequence[Record], list[Record], Found]:
            rows = queues.queued_of(connection, principal.workspace_id, principal.id, limit)
            rest = []
            if len(rows) == limit:
                rest = newer.after(connection, principal.workspace_id, principal.id, rows[-1].ordinal)
            found = Found()
            load(connection, found, rows)
            return rows, rest, found

        for _ in range(_TRIES):
            rows, rest, found = await self._journal.read(read)
            if not rows:
                return pb.TakeInboxResponse()
            mine = []
            for row in rows:
                message = found.messages[row.workspace_id, row.message_id]
                closed = found.sessions[row.workspace_id, row.session_id].closed
                if not closed and may_still(self._directory, row, message, found.authors):
                    mine.append(row)
                else:
                    await self._endings.end(Ending(withdrawal(row)))
            if not mine:
                continue
            shown = self._shown(principal, mine, [*mine, *rest], found)
            starts, remaining = await self._take(principal, standing, mine[: len(shown)])
            if starts:
                taken = {start.row.message_id for start in starts}
                return pb.TakeInboxResponse(
                    messages=[message for message in shown if message.id in taken],
                    remaining=remaining,
                    turn_id=starts[0].batch_id,
                    session_id=starts[0].run_session_id,
                )
        return pb.TakeInboxResponse(remaining=await self.unread(principal))

    def _shown(
        self, principal: Principal, rows: Sequence[Record], queue: Sequence[Record], found: Found
    ) -> list[pb.Message]:
        """Return the messages of turns that are about to be taken, as far as they fit into one answer.

        `queue`: these, and what is behind them.
        """
        now, messages = self._clock.now(), []
        for row in rows:
            key = (row.workspace_id, row.message_id)
            copies = [
                copy._replace(state="taken") if copy.recipient_id == principal.id else copy
                for copy in found.copies[key]
            ]
            follow = newer.count(row, queue)
            messages.append(self._views.handed(principal, row, found.messages[key], copies, now, follow))
        return fit(messages)

    async def _take(self, principal: Principal, standing: Standing, rows: Sequence[Record]) -> _Taken:
        """Make queued turns running, as one in the session of the call.

        A caller that goes away does not stop it half-way: what it took is put back when it is done.
        """
        return await self._taking.run(
            self._make_running(principal, standing, rows), lambda done: self._nobody_waits(principal, done)
        )

    def _nobody_waits(self, principal: Principal, done: asyncio.Task[_Taken]) -> None:
        if not done.cancelled() and done.exception() is None:
            self.put_back(principal, [start.row.message_id for start in done.result()[0]])

    async def _make_running(self, principal: Principal, standing: Standing, rows: Sequence[Record]) -> _Taken:
        # The quota service may be about to hear that an attempt is over which this one would repeat.
        ids = {row.id for row in rows}
        await self._claims.released(ids)
        with self._claims.withholding(ids):
            return await self._begin_and_write(principal, standing, rows)

    async def _begin_and_write(
        self, principal: Principal, standing: Standing, rows: Sequence[Record]
    ) -> _Taken:
        await self._admission.begin([_begin(row) for row in rows])
        spans = {row.id: telemetry.reserve(row.traceparent) for row in rows}
        turn_seconds = self._directory.policy(principal.workspace_id).turn_seconds
        try:
            taken, remaining = await self._journal.write(
                lambda book: self._start(book, principal, standing, rows, spans, turn_seconds),
                within=[principal.workspace_id],
            )
        except BaseException:
            await self._give_back(rows)
            raise
        running = {start.row.id for start in taken}
        if lost := [row for row in rows if row.id not in running]:
            await self._give_back(lost)
        self._inboxes.remember(standing.inbox)
        if taken:
            agent = (principal.workspace_id, principal.id)
            self._renew_at[agent] = self._clock.monotonic() + _RENEW_SECONDS
        return taken, remaining

    async def _give_back(self, rows: Sequence[Record]) -> None:
        """Tell that these were not taken; a worker that has passed them by may look again."""
        await self._admission.told_ends(await given_back(self._journal, rows))
        self._signals.claimable({(row.workspace_id, row.agent_id) for row in rows})

    def _start(
        self,
        book: Book,
        principal: Principal,
        standing: Standing,
        rows: Sequence[Record],
        spans: dict[str, str],
        turn_seconds: int,
    ) -> _Taken:
        unread = partial(queues.count_queued, book.connection, principal.workspace_id, principal.id)
        session_id, running = _session_of(book, principal, standing)
        # Others may have taken some of them since, and a pull is named after one that is its own.
        now = queues.find(book.connection, {(row.workspace_id, row.id) for row in rows})
        rows = [row for row in rows if now[row.workspace_id, row.id].state == "queued"]
        if not rows:
            return [], unread()
        # The turn that the call came from may have ended since: then this is a pull of its own.
        batch_id = running or rows[0].id
        starts = [
            Start(
                row,
                epoch=0,
                slot=False,
                started_at=book.now,
                lease_until=book.now + PULL_LEASE_SECONDS,
                deadline_at=book.now + turn_seconds,
                span=spans[row.id],
                delivery="taken",
                batch_id=batch_id,
                run_session_id=session_id,
            )
            for row in rows
        ]
        taken = turn_store.start(book, starts, self._journal.instance_id)
        if not running:
            turn_store.hold_sessions(book.connection, taken[:1])
        return taken, unread()

    # --- settling ---------------------------------------------------------------------------------

    async def done(self, principal: Principal, message_id: str) -> pb.DoneResponse:
        """End the turn of a message without an answer; one that a worker runs is left to the worker."""
        require_active(self._directory, principal)
        key = (principal.workspace_id, message_id)
        for _ in range(_TRIES):
            facts = await self._journal.read(lambda connection: look_up(connection, Names(messages={key})))
            delivery = facts.delivery(*key, principal.id)
            if delivery is None:
                raise no_message(message_id)
            if delivery.state not in ("queued", "delivered", "taken"):
                return pb.DoneResponse(state=DELIVERY_STATES[delivery.state])
            turn = facts.turns.get((key[0], delivery.turn_id))
            if (
                turn is None
                or turn.state not in ("queued", "running")
                or (turn.state == "running" and held_by_worker(turn))
            ):
                await self._journal.write(lambda book: pulling.mark_done(book, principal, message_id))
                return pb.DoneResponse(state=pb.DELIVERY_STATE_DONE)
            ended = Ended(
                turn.workspace_id,
                turn.id,
                (turn.state,),
                "completed",
                "done",
                attempt=turn.attempt,
                actor=actor_of(self._directory, principal),
            )
            await self._endings.end(Ending(ended))
        return pb.DoneResponse(state=pb.DELIVERY_STATE_DONE)

    # --- leases -----------------------------------------------------------------------------------

    def touch(self, principal: Principal) -> None:
        """Renew the lease of what the calling agent has pulled: it is alive."""
        agent = (principal.workspace_id, principal.id)
        renew_at = self._renew_at.get(agent)
        if renew_at is None and self.pulls_elsewhere(*agent):
            renew_at = 0.0
        if renew_at is not None and self._clock.monotonic() >= renew_at:
            self._renew_at[agent] = self._clock.monotonic() + _RENEW_SECONDS
            self._renewals.post(agent)

    def remember(self, agents: Sequence[tuple[str, str]]) -> None:
        """Know after a start which agents hold messages that they pulled."""
        now = self._clock.monotonic()
        for agent in agents:
            self._renew_at[agent] = self._pulled_at[agent] = now

    def pulls(self, workspace_id: str, agent_id: str) -> bool:
        """Tell whether the agent has pulled its inbox lately."""
        last = self._pulled_at.get((workspace_id, agent_id))
        if last is not None and self._clock.monotonic() - last < _PULLS_SECONDS:
            return True
        return self.pulls_elsewhere(workspace_id, agent_id)

    def pullers(self) -> list[tuple[str, str]]:
        """Return the agents that have pulled here lately."""
        since = self._clock.monotonic() - _PULLS_SECONDS
        return [agent for agent, last in self._pulled_at.items() if last > since]

    async def drained(self) -> None:
        """Wait until nothing is under way."""
        await self._taking.drained()
        await self._returns.drained()
        await self._renewals.drained()

    async def _put_back(self, unseen: list[Unseen]) -> list[None]:
        def find(connection: Connection) -> dict[str, Record]:
            return {
                row.id: row
                for workspace_id, agent_id, message_ids in unseen
                for row in queues.running_of(connection, workspace_id, agent_id)
                if row.run_session_id and row.message_id in message_ids
            }

        rows = await self._journal.read(find)
        # Told first: while they run in the record nobody takes them, whose start this could undo.
        await self._admission.told_ends([requeued_item(row, row.attempt) for row in rows.values()])

        def op(book: Book) -> None:
            still = [row for row in find(book.connection).values() if row.id in rows]
            turn_store.requeue(
                book, still, lambda each: self._directory.policy(each).queue_seconds, free=True
            )

        await self._journal.write(op)
        self._signals.claimable({(row.workspace_id, row.agent_id) for row in rows.values()})
        return [None] * len(unseen)

    async def _renew(self, agents: list[tuple[str, str]]) -> list[None]:
        def op(book: Book) -> list[tuple[str, str]]:
            idle = []
            for workspace_id, agent_id in agents:
                running = queues.running_of(book.connection, workspace_id, agent_id)
                pulled = [row for row in running if row.run_session_id]
                until = book.now + PULL_LEASE_SECONDS
                turn_store.set_leases(book, [(row, until) for row in pulled], self._journal.instance_id)
                if not pulled:
                    idle.append((workspace_id, agent_id))
            return idle

        for agent in await self._journal.write(op, within=[workspace_id for workspace_id, _ in agents]):
            self._renew_at.pop(agent, None)
        return [None] * len(agents)


def _session_of(book: Book, principal: Principal, standing: Standing) -> tuple[str, str]:
    """Return the session that a pull runs in, and the turn that runs there already."""
    session_id = standing.session_id
    if standing.inbox is not None:
        session_store.settle(book, [standing.inbox])
        session_id = standing.inbox.id
    key = (principal.workspace_id, session_id)
    session = by_id(book.connection, sessions, {key})[key]
    return session_id, session.running_turn_id


def _begin(row: Record) -> quota_pb.BeginTurnItem:
    return quota_pb.BeginTurnItem(
        turn_id=row.id,
        workspace_id=row.workspace_id,
        agent_id=row.agent_id,
        depth=row.depth,
        root_id=row.root_id,
        attempt=row.attempt + 1,
    )
