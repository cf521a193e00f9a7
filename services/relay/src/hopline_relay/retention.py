"""Retention: what a workspace does not keep for ever is deleted in the background, a little at a time.

Whatever may still matter stays: what is owed, queued, running or asked of an owner, what the counters are
rebuilt from, and a thread as a whole as long as one of its messages is young. The audit log is shortened
from its beginning, and says so itself.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Final, Protocol

from hopline_directory import Directory
from hopline_directory.records import Policy
from hopline_rpc.calls import detach
from hopline_rpc.clock import Clock, rfc3339
from hopline_rpc.errors import HoplineError

from hopline_relay.domain.chain import Head
from hopline_relay.domain.values import MESH
from hopline_relay.journal import Journal
from hopline_relay.store import forgetting, seals
from hopline_relay.store.book import Book
from hopline_relay.store.forgetting import Bounds, Forgotten

log = logging.getLogger("hopline.relay.retention")

# What the log says of it.
CUT: Final = "audit.cut"
SWEPT: Final = "retention.swept"
_DAY: Final = 86_400.0
# Counters are rebuilt from yesterday on, and the day may be one ahead of the clock.
_LEAST_DAYS: Final = 2
_FIRST_SECONDS: Final = 60.0
_EVERY_SECONDS: Final = 3600.0
# Between two transactions others get to write.
_PAUSE_SECONDS: Final = 0.05
_EVENTS: Final = 1000


class Step(Protocol):
    """Deletes a bounded part of what is old, from `after` on."""

    def __call__(self, book: Book, bounds: Bounds, after: float) -> Forgotten:
        """Return what was deleted, and where the next one begins."""
        ...


def bounds_of(workspace_id: str, policy: Policy, now: float) -> Bounds | None:
    """Return what is old in a workspace; None where everything is kept."""
    if not policy.retention_days:
        return None
    pair = policy.pair_budget.seconds if policy.pair_budget is not None else 0
    window = max(policy.causality_window_seconds, pair)
    kept = max(max(policy.retention_days, _LEAST_DAYS) * _DAY, float(window))
    return Bounds(workspace_id, now - kept, now - window)


class Retention:
    """Goes through all workspaces every hour."""

    def __init__(self, journal: Journal, directory: Directory, clock: Clock) -> None:
        self._journal = journal
        self._directory = directory
        self._clock = clock
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, a minute from now."""
        self._task = detach(self._run(), name="retention")

    async def close(self) -> None:
        """Stop; what is left is deleted after the next start."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        await self._clock.sleep(_FIRST_SECONDS)
        while True:
            for workspace in self._directory.workspaces():
                try:
                    await self.sweep(workspace.id)
                except HoplineError as error:
                    log.warning("retention is put off: %s", error.message)
                except Exception:
                    log.exception("retention failed; it is tried again")
            await self._clock.sleep(_EVERY_SECONDS)

    async def sweep(self, workspace_id: str) -> None:
        """Delete what is old in a workspace."""
        bounds = bounds_of(workspace_id, self._directory.policy(workspace_id), self._clock.now())
        if bounds is not None:
            await self._forget(bounds)
            await self._cut(bounds)
        left = partial(seals.is_left_of_cut, workspace_id=workspace_id)
        more = await self._journal.read(left)
        while more:
            await self._journal.write(partial(seals.delete_cut, workspace_id=workspace_id, most=_EVENTS))
            if more := await self._journal.read(left):
                await self._clock.sleep(_PAUSE_SECONDS)

    async def _forget(self, bounds: Bounds) -> None:
        total = Forgotten()
        for step in (forgetting.quiet_threads, forgetting.left_turns, forgetting.ended_todos):
            await self._all_of(step, bounds, total)
        for agent_id in self._directory.agent_ids(bounds.workspace_id):
            await self._all_of(_questions_of(agent_id), bounds, total)
        if total.counts:
            await self._journal.write(lambda book: _note_swept(book, bounds, total))

    async def _all_of(self, step: Step, bounds: Bounds, total: Forgotten) -> None:
        after, more = 0.0, True
        while more:
            found = await self._journal.write(partial(step, bounds=bounds, after=after))
            total.add(found.counts)
            after, more = found.after, found.more
            if more:
                await self._clock.sleep(_PAUSE_SECONDS)

    async def _cut(self, bounds: Bounds) -> None:
        """Let the audit log begin later, as it says itself; what came before is deleted from then on."""
        head = await self._journal.read(
            lambda connection: seals.old_head(connection, bounds.workspace_id, bounds.before)
        )
        if head is not None:
            await self._journal.write(partial(_cut, bounds=bounds, head=head))


def _questions_of(agent_id: str) -> Step:
    def step(book: Book, bounds: Bounds, after: float) -> Forgotten:
        return forgetting.ended_questions(book, bounds, agent_id)

    return step


def _note_swept(book: Book, bounds: Bounds, total: Forgotten) -> None:
    details = {"before": rfc3339(bounds.before), **total.counts}
    book.note(bounds.workspace_id, SWEPT, MESH, details=details)


def _cut(book: Book, bounds: Bounds, head: Head) -> None:
    seals.cut_at(book, bounds.workspace_id, head)
    details = {"through": head.seq, "hash": head.text, "before": rfc3339(bounds.before)}
    book.note(bounds.workspace_id, CUT, MESH, details=details)
