"""Answers to people that are held: what becomes of each once nothing holds it any more.

Whatever may have ended a reason asks for a look. A sweep looks at everything that is held, again and again:
nothing is held for good. A look decides by the record alone (`domain/holds.py`), and what it decides is
decided anew in the transaction that does it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from hopline_directory import Directory
from hopline_rpc.calls import detach
from hopline_rpc.clock import Clock
from hopline_rpc.errors import HoplineError
from hopline_rpc.faults import point
from sqlalchemy import Connection

from hopline_relay.batching import Batcher
from hopline_relay.callers import named
from hopline_relay.domain.holds import WOKEN, Kept, next_step, wake_text
from hopline_relay.domain.values import MESH, Actor, Fault
from hopline_relay.hold_ends import HoldEnds, unchanged
from hopline_relay.journal import Journal
from hopline_relay.mesh_wakes import MeshWakes, RacedError, Wake
from hopline_relay.store import holds, queues
from hopline_relay.store.book import Book
from hopline_relay.store.bulk import by_id
from hopline_relay.store.holds import Key, Place, seat_of_hold
from hopline_relay.store.outgoing import Outgoing
from hopline_relay.store.schema import messages
from hopline_relay.store.sql import Record

log = logging.getLogger("hopline.relay")

SWEEP_SECONDS: Final = 5.0
# A wake that is refused for these may be tried again; whatever else refuses it sends the draft instead.
_PASSING: Final = frozenset({"unavailable", "internal", "overloaded", "deadline_exceeded"})


class Holding:
    """Looks at what is held."""

    def __init__(
        self, journal: Journal, directory: Directory, ends: HoldEnds, wakes: MeshWakes, clock: Clock
    ) -> None:
        self._journal = journal
        self._directory = directory
        self._ends = ends
        self._wakes = wakes
        self._clock = clock
        self._looks: Batcher[Place, None] = Batcher("looks at what is held", self._treat, clock=clock)
        self._task: asyncio.Task[None] | None = None

    # --- who asks for a look ----------------------------------------------------------------------

    def look(self, places: Iterable[Place]) -> None:
        """Look soon at what is held there: turns have ended, or something may have that it waits for."""
        for place in places:
            self._looks.post(place)

    async def catch_up(self) -> None:
        """Look at everything that is held, as the sweep does."""
        at: Key = ("", "")
        while keys := await self._journal.read(partial(holds.after, key=at)):
            for key in keys:
                await self._settle_safely(key)
            at = keys[-1]

    def start(self) -> None:
        """Begin to sweep."""
        self._task = detach(self._run(), name="held answers")

    async def close(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def drained(self) -> None:
        """Wait until nothing is under way."""
        await self._looks.drained()

    async def _run(self) -> None:
        while True:
            await self._clock.sleep(SWEEP_SECONDS)
            try:
                await self.catch_up()
            except HoplineError as error:
                log.warning("what is held is looked at later: %s", error.message)
            except Exception:
                log.exception("what is held could not be looked at; it is tried again")

    async def _treat(self, places: list[Place]) -> Sequence[BaseException | None]:
        for row in await self._journal.read(partial(holds.in_seats, seats=set(places))):
            await self._settle_safely((row.workspace_id, row.turn_id))
        return [None] * len(places)

    async def _settle_safely(self, key: Key) -> None:
        """One that cannot be settled now keeps no other back: the next sweep tries again."""
        try:
            await self.settle(key)
        except HoplineError as error:
            log.warning("a held answer is looked at later: %s", error.message)

    # --- the look itself --------------------------------------------------------------------------

    async def settle(self, key: Key) -> None:
        """Do what is to be done with one answer that is held, if anything."""
        row = await self._journal.read(partial(holds.find, key=key))
        if row is None:
            return
        if (fault := self._gone(row)) is not None:
            await self._ends.cancel(row, fault, MESH)
            return
        step = await self._journal.read(partial(_step, row=row, now=self._clock.now()))
        point("hold.seen")
        if step == "wake":
            await self._wake(row)
        elif step == "send":
            await self._ends.send(row, MESH, partial(_is_to, "send"))

    def _gone(self, row: Record) -> Fault | None:
        """Return why nobody is left to answer: an agent that is paused owes nothing any more."""
        agent = self._directory.agent(row.workspace_id, row.agent_id)
        if agent is None:
            return None  # not known here yet
        if agent.deleted:
            return Fault("canceled", "the agent was deleted")
        return Fault("agent_paused", "the agent was paused") if agent.state == "paused" else None

    async def _wake(self, row: Record) -> None:
        """Wake the agent with its draft; where it cannot be woken, send the draft as it is."""
        found = await self._journal.read(partial(_origin, row=row))
        if found is None:
            return
        turn, asked = found
        prompter = named(self._directory, row.workspace_id, asked.from_kind, asked.from_id).name
        try:
            await self._wakes.wake(
                Wake(
                    workspace_id=row.workspace_id,
                    agent_id=row.agent_id,
                    session_id=row.seat_id,
                    kind="draft",
                    text=wake_text(row.body, prompter or asked.from_kind),
                    depth=turn.depth,
                    root_id=row.root_id,
                    cause_turn_id=turn.id,
                    traceparent=turn.span or turn.traceparent,
                    take=partial(_take, row=row),
                )
            )
        except RacedError:
            return  # something has changed meanwhile, and whatever did asks for a look
        except HoplineError as error:
            if error.reason in _PASSING:
                raise
            await self._ends.send(row, MESH, partial(_is_to, "wake"), Fault(error.reason, error.message))

    # --- ends that others ask for -----------------------------------------------------------------

    async def canceled(self, turn: Record, fault: Fault, actor: Actor) -> list[Record]:
        """End what is held of the answers that a turn owes, or goes on with: a person has cancelled it.

        Returns the turns that owed them.
        """
        seat = holds.seat_of(turn)
        rows = await self._journal.read(partial(holds.in_seats, seats={(seat.workspace_id, seat.session_id)}))
        keys = {
            (row.workspace_id, row.turn_id)
            for row in rows
            if (row.turn_id == turn.id or seat_of_hold(row) == seat)
            and await self._ends.cancel(row, fault, actor)
        }
        return list((await self._journal.read(partial(queues.find, keys=keys))).values()) if keys else []

    async def agent_gone(self, workspace_id: str, agent_id: str) -> None:
        """End whatever is held of an agent that was paused or deleted."""
        while rows := await self._journal.read(
            partial(holds.of_agents, workspace_id=workspace_id, agent_ids=[agent_id])
        ):
            faults = [(row, self._gone(row)) for row in rows]
            gone = [await self._ends.cancel(row, fault, MESH) for row, fault in faults if fault is not None]
            if not any(gone):
                return


def _step(connection: Connection, row: Record, now: float, but: str = "") -> str:
    """Return what is to be done; `but`: a turn that does not count."""
    seat = seat_of_hold(row)
    why = holds.reasons(connection, seat, now)
    return next_step(holds.kept(row), why, at_work=holds.at_work(connection, seat, but))


def _is_to(step: str, book: Book, row: Record) -> bool:
    """Tell whether that is still what is to be done with this draft."""
    return unchanged(book, row) and _step(book.connection, row, book.now) == step


def _take(book: Book, message: Outgoing, *, row: Record) -> None:
    """Note with which turn the agent is woken, unless it need not be any more."""
    (copy,) = message.copies
    if not unchanged(book, row) or _step(book.connection, row, book.now, but=copy.turn_id) != "wake":
        raise RacedError
    holds.change(book, row, Kept(row.body, WOKEN, copy.turn_id))


def _origin(connection: Connection, row: Record) -> tuple[Record, Record] | None:
    """Return the turn that owes the answer and the message that it owes it to."""
    turn = queues.find(connection, {(row.workspace_id, row.turn_id)}).get((row.workspace_id, row.turn_id))
    key = (row.workspace_id, row.message_id)
    asked = by_id(connection, messages, {key}).get(key)
    return (turn, asked) if turn is not None and asked is not None else None
