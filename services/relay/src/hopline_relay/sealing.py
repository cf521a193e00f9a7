"""The sealer: chains what has been written into the audit log, in batches, behind everything else.

A seal is written in the background, a moment after its events were committed, by the one process that the
record knows as alive. What an earlier process left unsealed is sealed after a start.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Final

from hopline_rpc.calls import detach
from hopline_rpc.clock import Clock
from hopline_rpc.errors import HoplineError

from hopline_relay.journal import Journal
from hopline_relay.store import seals
from hopline_relay.store.seals import Ahead

log = logging.getLogger("hopline.relay.sealing")

# How long events lie before they are sealed together, and how many go into one seal.
LAG_SECONDS: Final = 1.0
BATCH: Final = 500
_RETRY_SECONDS: Final = 5.0


class Sealer:
    """Seals the logs of all workspaces."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock
        self._grown: set[str] = set()
        # Workspaces whose next event cannot be sealed before a time of the monotonic clock.
        self._held: dict[str, float] = {}
        self._news = asyncio.Event()
        self._turn = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        journal.on_audit(self._on_growth)

    def start(self) -> None:
        """Begin to seal, with what an earlier process has left."""
        self._task = detach(self._run(), name="audit sealer")

    async def close(self) -> None:
        """Stop; what is not sealed yet is sealed after the next start."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def seal(self, workspace_id: str) -> None:
        """Seal all that can be sealed of a workspace's log now."""
        async with self._turn:
            while await self._batch(workspace_id):
                pass

    def _on_growth(self, workspaces: list[str]) -> None:
        self._grown.update(workspaces)
        self._news.set()

    async def _run(self) -> None:
        while True:
            try:
                self._on_growth(list(await self._journal.read(seals.logged_workspaces)))
                break
            except HoplineError as error:
                log.warning("the audit log cannot be read yet: %s", error.message)
                await self._clock.sleep(_RETRY_SECONDS)
        while True:
            await self._news.wait()
            await self._clock.sleep(LAG_SECONDS)
            self._news.clear()
            grown, self._grown = self._grown, set()
            for workspace_id in sorted(grown):
                if self._held.get(workspace_id, 0.0) <= self._clock.monotonic():
                    await self._try(workspace_id)

    async def _try(self, workspace_id: str) -> None:
        try:
            await self.seal(workspace_id)
        except Exception as error:
            passes = isinstance(error, HoplineError) and error.retryable
            log.warning("the audit log is sealed later: %s", error, exc_info=None if passes else error)
            self._hold(workspace_id, _RETRY_SECONDS)

    async def _batch(self, workspace_id: str) -> bool:
        """Seal one batch; tells whether there is more to seal at once."""
        look = partial(seals.ahead, workspace_id=workspace_id, now=self._clock.now(), most=BATCH)
        found = await self._journal.read(look)
        if found.links and not await self._write(workspace_id, found):
            return False
        if found.missing:
            # Sealed over, a gap would be as good as true.
            log.error("event %d of the audit log of %s is gone", found.missing, workspace_id)
            self._hold(workspace_id, seals.COUNTED_SECONDS)
        elif found.held_until is not None:
            wait = found.held_until - self._clock.now()
            self._hold(workspace_id, min(max(wait, LAG_SECONDS), seals.COUNTED_SECONDS))
        return found.more

    async def _write(self, workspace_id: str, found: Ahead) -> bool:
        return await self._journal.write(
            lambda book: seals.seal(book, workspace_id, found, self._journal.instance_id),
            within=[workspace_id],
        )

    def _hold(self, workspace_id: str, seconds: float) -> None:
        """Look at a workspace again after a time, and not before."""
        self._held[workspace_id] = self._clock.monotonic() + seconds
        self._clock.call_later(seconds, partial(self._on_growth, [workspace_id]))
