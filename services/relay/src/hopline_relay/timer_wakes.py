"""Fires timers: what is due wakes its session once, whoever looks and whenever a process dies.

Late rather than never: what cannot wake it just now is tried again.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Final

from hopline_rpc.calls import detach
from hopline_rpc.clock import Clock, rfc3339
from hopline_rpc.errors import HoplineError

from hopline_relay.domain.left import TIMER, timer_payload
from hopline_relay.domain.values import MESH
from hopline_relay.hooks.items import DELIVERED, Shaped
from hopline_relay.hooks.left import LeftHooks
from hopline_relay.journal import Journal
from hopline_relay.looking import Looking
from hopline_relay.mesh_wakes import PASSING, MeshWakes, RacedError, Wake
from hopline_relay.store import queues, timers
from hopline_relay.store.book import Book
from hopline_relay.store.outgoing import Outgoing
from hopline_relay.store.sql import Record

log = logging.getLogger("hopline.relay.timers")

_MOST: Final = 100
PUT_OFF_SECONDS: Final = 60.0
# By how much a clock must have been set back before times are worked out anew.
_SET_BACK_SECONDS: Final = 60.0


class TimerWakes:
    """Looks for timers that are due."""

    def __init__(self, journal: Journal, wakes: MeshWakes, clock: Clock) -> None:
        self._journal = journal
        self._wakes = wakes
        self._clock = clock
        # Who is asked about timers that are due; and what was said of those that could not fire just then.
        self.hooks: LeftHooks | None = None
        self._shaped: dict[str, asyncio.Task[Shaped]] = {}
        # Agents whose timers were put off because they are paused.
        self._paused: set[tuple[str, str]] = set()
        # One look at a time: what the last one took off the list is not asked about again.
        self._one = asyncio.Lock()
        self.looking = Looking(
            "timers", clock, self.look, lambda: journal.read(timers.next_due), shared=journal.shared
        )

    async def agent_active(self, workspace_id: str, agent_id: str) -> None:
        """Look now at what was put off while an agent was paused."""
        if (workspace_id, agent_id) in self._paused:
            self._paused.discard((workspace_id, agent_id))
            await self._journal.write(lambda book: timers.make_due_of_agent(book, workspace_id, agent_id))
            self.looking.wake()

    async def agent_deleted(self, workspace_id: str, agent_id: str) -> None:
        """Call off the timers of an agent."""
        self._paused.discard((workspace_id, agent_id))
        await self._journal.write(lambda book: timers.drop_of_agent(book, workspace_id, agent_id))

    async def look(self) -> bool:
        """Fire whatever is due; False: something has to be tried again soon."""
        async with self._one:
            return await self._look()

    async def _look(self) -> bool:
        done, last = True, None
        while True:
            now = self._clock.now()
            ahead = now + _SET_BACK_SECONDS
            rows = await self._journal.read(partial(timers.due, now=now, ahead=ahead, most=_MOST, after=last))
            done = all(await asyncio.gather(*(self._try(row, now) for row in rows))) and done
            if len(rows) < _MOST:
                return done
            last = rows[-1]

    async def _try(self, row: Record, now: float) -> bool:
        """Treat one; what goes wrong with it is its own."""
        try:
            await self._treat(row, now)
        except RacedError:
            return True  # another process was first, or it was called off just now
        except HoplineError as error:
            log.warning("timer %s fires later: %s", row.id, error.message)
            return False
        except Exception:
            log.exception("timer %s cannot be fired just now", row.id)
            return False
        return True

    async def _treat(self, row: Record, now: float) -> None:
        if row.due_at > now:
            log.warning("the clock was set back: timer %s is due anew", row.id)
            left = max(0.0, row.due_at - row.set_at)
            await self._journal.write(lambda book: timers.set_anew(book, row, book.now + left))
            return
        if await self._was_canceled(row):
            await self._drop(row, "canceled")
            return
        shaped = await self._shape(row)
        if shaped is not None and not shaped.goes_on:
            await self._drop(row, "vetoed")
            return
        late = max(0, int(now - row.fires_at))
        wake = Wake(
            workspace_id=row.workspace_id,
            agent_id=row.agent_id,
            session_id=row.session_id,
            kind=TIMER,
            subject="Timer",
            text=row.body if shaped is None else shaped.words.text,
            payload=timer_payload(row.id, late),
            depth=row.depth,
            root_id=row.root_id,
            cause_turn_id=row.turn_id,
            traceparent=row.traceparent,
            hook_generation=row.hook_generation,
            take=partial(_take, row=row),
        )
        try:
            await self._wakes.wake(wake)
            self._shaped.pop(row.id, None)
        except HoplineError as error:
            if error.reason in PASSING:
                await self._journal.write(lambda book: timers.put_off(book, row, PUT_OFF_SECONDS))
                if error.reason == "agent_paused":
                    self._paused.add((row.workspace_id, row.agent_id))
            else:  # its root has no turns left, the session is closed, or the agent is gone
                await self._drop(row, error.reason)

    async def _shape(self, row: Record) -> Shaped | None:
        """Have hooks asked about a timer that is due, once however often it is tried; None without any."""
        if self.hooks is None or not self.hooks.concern(row.workspace_id, DELIVERED):
            return None
        if row.id not in self._shaped:
            key = (row.workspace_id, row.turn_id)
            turns = await self._journal.read(lambda connection: queues.find(connection, {key}))
            if len(self._shaped) >= _MOST:
                self._shaped.clear()
            if row.id not in self._shaped:  # another look may have come here meanwhile
                asked = self.hooks.due(row, turns.get(key))
                self._shaped[row.id] = detach(asked, name="hooked timer")
        return await asyncio.shield(self._shaped[row.id])

    async def _was_canceled(self, row: Record) -> bool:
        """Tell whether the turn that set it was cancelled since; a pause only interrupts."""
        key = (row.workspace_id, row.turn_id)
        turn = (await self._journal.read(lambda connection: queues.find(connection, {key}))).get(key)
        return turn is not None and turn.state == "canceled" and turn.error_code != "agent_paused"

    async def _drop(self, row: Record, reason: str) -> None:
        def op(book: Book) -> None:
            book.lock(row.workspace_id)
            if timers.remove(book, row):
                timers.note(book, row, "timer.dropped", MESH, {"reason": reason})

        await self._journal.write(op)
        self._shaped.pop(row.id, None)


def _take(book: Book, message: Outgoing, *, row: Record) -> None:
    if not timers.take(book, row):
        raise RacedError
    (copy,) = message.copies
    book.note(
        row.workspace_id,
        "timer.fired",
        MESH,
        agent_id=row.agent_id,
        thread_id=message.thread_id,
        message_id=message.id,
        turn_id=copy.turn_id,
        session_id=row.session_id,
        details={
            "timer_id": row.id,
            "due_at": rfc3339(row.fires_at),
            "depth": row.depth,
            "root_id": row.root_id,
        },
        trace_id=message.trace_id,
    )
