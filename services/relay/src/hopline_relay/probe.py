"""Whether a message would get through now, found out the way a message goes, without one.

Like a send: the counters are asked (nothing is charged), then a transaction goes through the writer under
the same fence, changes a row that is this process's own, and is on disk before the answer; and what hands out
turns and ends waits is alive. Nobody sees anything of it. Readiness asks; what was found is kept for a while.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from hopline_rpc.clock import Clock
from hopline_rpc.errors import HoplineError
from sqlalchemy import bindparam, update

from hopline_relay.admission import Admission
from hopline_relay.journal import FencedError, Journal
from hopline_relay.store.book import Book
from hopline_relay.store.schema import instances
from hopline_relay.store.sql import Statement

log = logging.getLogger("hopline.relay")

# A disk that is asleep is not woken for it more often than this; what failed is looked at again soon.
_GOOD_SECONDS: Final = 30.0
_BAD_SECONDS: Final = 1.0
_PATIENCE_SECONDS: Final = 5.0

_TOUCH: Final = Statement(
    update(instances).where(instances.c.id == bindparam("instance")).values(started_at=instances.c.started_at)
)


class SelfProbe:
    """Sends nothing through everything that a send goes through."""

    def __init__(
        self, journal: Journal, admission: Admission, still: Callable[[], str], clock: Clock
    ) -> None:
        self._journal = journal
        self._admission = admission
        # Says which of the loops in the background stands still; empty for none.
        self._still = still
        self._clock = clock
        self._found = ""
        self._until = -1.0
        self._probing = asyncio.Lock()

    async def problem(self) -> str:
        """Return what holds messages up; empty where they go through."""
        async with self._probing:
            if self._clock.monotonic() >= self._until:
                self._found = await self._probe()
                kept = _BAD_SECONDS if self._found else _GOOD_SECONDS
                self._until = self._clock.monotonic() + kept
            return self._found or self._still()

    async def _probe(self) -> str:
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                epoch, _ = await self._admission.admit_nothing()
                await self._journal.write(self._touch, epoch=epoch)
        except HoplineError as error:
            return error.message
        except FencedError:
            return "the counters are being rebuilt, or another process has taken over"
        except TimeoutError:
            return f"a message would not be on disk within {_PATIENCE_SECONDS:.0f} s"
        return ""

    def _touch(self, book: Book) -> None:
        _TOUCH.run(book.connection, {"instance": self._journal.instance_id})
