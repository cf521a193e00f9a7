"""Fires schedules: what is due becomes a turn, once, whoever looks and whenever a process dies.

A time is taken by the transaction that writes its turn (`store/scheduling.py`), so that two replicas, or one
that comes back, never fire it twice; and what no transaction has taken is still due. Times that passed
meanwhile count as skipped. What cannot become a turn for a reason that lasts is skipped with that reason.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Final

from hopline.registry.v1.visibility_pb2 import Change
from hopline_directory import Directory
from hopline_directory.records import OPERATOR, AgentRecord
from hopline_rpc.clock import Clock
from hopline_rpc.errors import HoplineError
from hopline_rpc.faults import point
from hopline_rpc.principals import Principal

from hopline_relay.cron import Cron, read_cron
from hopline_relay.domain.sources import Firing, Source
from hopline_relay.drafts import Draft
from hopline_relay.journal import Journal
from hopline_relay.looking import Looking
from hopline_relay.sends import Sends
from hopline_relay.store import scheduling, sources
from hopline_relay.store.discharging import RacedError
from hopline_relay.store.sql import Record

log = logging.getLogger("hopline.relay.schedules")

_MOST: Final = 100
# By how much a clock must have been set back before times are worked out anew.
_SET_BACK_SECONDS: Final = 60.0
# What passes by itself, or is seen for what it is at the next look (a role that was lost just now): the time
# stays due.
_PASSING: Final = frozenset(
    {"unavailable", "internal", "overloaded", "deadline_exceeded", "not_found", "permission_denied"}
)


class Firings:
    """Looks for what is due."""

    def __init__(self, journal: Journal, directory: Directory, sends: Sends, clock: Clock) -> None:
        self._journal = journal
        self._directory = directory
        self._sends = sends
        self._clock = clock
        self._looking = Looking(
            "schedules",
            clock,
            self.fire,
            lambda: self._journal.read(scheduling.next_due),
            shared=journal.shared,
        )

    def start(self) -> None:
        """Begin to fire."""
        self._looking.start()

    async def close(self) -> None:
        """Stop; what is due then is fired by the next process."""
        await self._looking.close()

    def wake(self) -> None:
        """Say that something may be due earlier than was known."""
        self._looking.wake()

    async def changed(self, changes: list[Change]) -> None:
        """Forget the schedules and webhooks of agents that were deleted."""
        for change in changes:
            if change.WhichOneof("entity") == "agent_deleted":
                await self._forget(change.workspace_id, change.agent_deleted)

    async def catch_up(self) -> None:
        """Forget those of agents that were deleted while no process of the relay was there."""
        for workspace_id, agent_id in await self._journal.read(sources.agents_with_any):
            agent = self._directory.agent(workspace_id, agent_id)
            if agent is not None and agent.deleted:
                await self._forget(workspace_id, agent_id)

    async def _forget(self, workspace_id: str, agent_id: str) -> None:
        await self._journal.write(lambda book: sources.remove_all_of(book.connection, workspace_id, agent_id))

    async def fire(self) -> bool:
        """Fire whatever is due; False: something has to be tried again, which keeps nothing else back."""
        done, last = True, None
        while True:
            now = self._clock.now()
            ahead = now + _SET_BACK_SECONDS
            look = partial(scheduling.due, now=now, ahead=ahead, most=_MOST, after=last)
            rows = await self._journal.read(look)
            done = all(await asyncio.gather(*(self._try(row, now) for row in rows))) and done
            if len(rows) < _MOST:
                return done
            last = rows[-1]

    async def _try(self, row: Record, now: float) -> bool:
        """Treat one; what goes wrong with it is its own."""
        try:
            return await self._treat(row, now)
        except HoplineError as error:
            log.warning("schedule %s fires later: %s", row.id, error.message)
        except Exception:
            log.exception("schedule %s cannot be fired just now", row.id)
        return False

    async def _treat(self, row: Record, now: float) -> bool:
        """Fire one, or say why not; False: try again."""
        try:
            cron = read_cron(row.cron, row.timezone)
        except HoplineError as error:
            # A time zone that is not known here any more.
            await self._skip(row, None, 1, "stopped", error.reason, error.message)
            return True
        if row.due_at > now:
            log.warning("the clock was set back: schedule %s is due anew", row.id)
            await self._journal.write(lambda book: scheduling.set_due(book, row, cron.next(now)))
            return True
        agent = self._directory.agent(row.workspace_id, row.agent_id)
        if agent is None:
            return False  # not known here yet
        if agent.deleted:
            await self._forget(row.workspace_id, row.agent_id)
            return True
        return await self._fire(row, cron, agent, now)

    async def _fire(self, row: Record, cron: Cron, agent: AgentRecord, now: float) -> bool:
        missed, next_at = cron.passed(row.due_at, now)
        if self._directory.role_on_agent(row.author_id, agent) < OPERATOR:
            user = self._directory.user(row.workspace_id, row.author_id)
            name = user.name if user is not None else "its author"
            text = f"{name} is no longer operator of {agent.name}; who resumes it takes it over"
            await self._skip(row, None, missed + 1, "stopped", "permission_denied", text)
            return True
        if agent.state != "active":
            code = "agent_paused" if agent.state == "paused" else "failed_precondition"
            text = f"{agent.name} was {agent.state}"
            await self._skip(row, next_at, missed + 1, "active", code, text)
            return True
        point("schedule.due")
        firing = Firing(row.workspace_id, row.id, agent.id, row.due_at, next_at, missed)
        try:
            await self._sends.send(_draft(row, firing))
        except RacedError:
            return True  # another process was first, or it was paused or removed just now
        except HoplineError as error:
            if error.reason in _PASSING:
                log.warning("schedule %s fires later: %s", row.id, error.message)
                return False
            await self._skip(row, next_at, missed + 1, "active", error.reason, error.message)
            return True
        point("schedule.fired")
        return True

    async def _skip(
        self, row: Record, next_at: float | None, missed: int, state: str, code: str, text: str
    ) -> None:
        await self._journal.write(
            lambda book: scheduling.skip(book, row, next_at, missed, state=state, code=code, message=text)
        )


def _draft(row: Record, firing: Firing) -> Draft:
    return Draft(
        principal=Principal(kind="user", id=row.author_id, workspace_id=row.workspace_id),
        kind="prompt",
        text=row.body,
        to=(row.agent_id,),
        subject=row.name,
        source=Source("schedule", row.id, row.name, row.author_id),
        firing=firing,
    )
