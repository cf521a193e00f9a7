"""The stream of committed changes: to the registry's own view first, then to everyone who watches.

A watcher is a position in the feed, not a queue: it reads on from memory, or from SQL when it is far
behind, so that slow watchers cost nothing. A write returns when every watcher has come back for more
after its change, which embedded means that it has been taken over; it waits a second at most.

Where several registries share a database, each reads what the others wrote by the sequence of the table, ten
times a second. One that cannot read says nothing any more, no heartbeat either: its followers ask.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from itertools import islice
from typing import Final

from hopline.registry.v1.visibility_pb2 import Change, WatchChangesResponse
from hopline_directory import Directory
from hopline_rpc.calls import detach
from hopline_rpc.clock import Clock, wait_for
from hopline_rpc.errors import HoplineError
from hopline_rpc.paging import fit
from hopline_store import Reader
from sqlalchemy import Connection

from hopline_registry.store import feed as rows

log = logging.getLogger("hopline.registry")

HEARTBEAT_SECONDS: Final = 0.15
CONSUMED_SECONDS: Final = 1.0
MAX_WATCHERS: Final = 256
_PAGE: Final = 200
_IN_MEMORY: Final = 2_000
# What is sent at once must fit into one message, and an agent's definition alone may have 1 MiB.
_PAGE_BYTES: Final = 1_000_000
# How often is looked for what other registries wrote, and how old the last look may be for a view to be told.
POLL_SECONDS: Final = 0.1
UNSEEN_SECONDS: Final = 0.4
_POLL_PAGE: Final = 1_000

Listener = Callable[[list[Change]], None]


class _Watcher:
    """Someone who watches."""

    def __init__(self) -> None:
        self._news = True
        self._sleeps: asyncio.Future[None] | None = None
        # The last change that it has dealt with; None until it has had its snapshot.
        self.consumed: int | None = None
        # It kept a write waiting once; nobody waits for it again until it has caught up.
        self.late = False

    def wake(self) -> None:
        """Have it look for news."""
        self._news = True
        if self._sleeps is not None and not self._sleeps.done():
            self._sleeps.set_result(None)

    def looks(self) -> None:
        """Say that it looks now: what it is woken for later is news."""
        self._news = False

    async def pause(self, clock: Clock) -> None:
        """Wait for news, or for the time of a heartbeat."""
        if self._news:
            return
        # A bare future, not an event: heartbeats are most of what an idle mesh does.
        self._sleeps = asyncio.get_running_loop().create_future()
        try:
            await wait_for(clock, self._sleeps, HEARTBEAT_SECONDS)
        except TimeoutError:
            return
        finally:
            self._sleeps = None


class Feed:
    """Hands out changes.

    `shared`: other processes write to the same database. `reload` reads all that it holds, for a view that is
    further behind than what the table of changes keeps.
    """

    def __init__(
        self,
        reader: Reader,
        directory: Directory,
        clock: Clock,
        reload: Callable[[Connection], WatchChangesResponse],
        *,
        shared: bool = False,
    ) -> None:
        self._shared = shared
        self._reload = reload
        self._looked: float | None = None
        self._looking = asyncio.Lock()
        self._poll: asyncio.Task[None] | None = None
        self._reader = reader
        self._directory = directory
        self._clock = clock
        self._recent: deque[Change] = deque(maxlen=_IN_MEMORY)
        self._watchers: dict[_Watcher, None] = {}
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._listeners: list[Listener] = []
        self._closed = False

    def add_listener(self, listener: Listener) -> None:
        """Have `listener` called with each write's changes, before anyone else sees them."""
        self._listeners.append(listener)

    def publish(self, changes: list[Change]) -> None:
        """Hand out what a write has committed. Called in the order of commits, on the event loop."""
        if self._shared and changes[0].seq > self._directory.seq + 1:
            return  # others wrote between: whoever looks next takes all of it in order
        self._apply(WatchChangesResponse(changes=changes, head_seq=changes[-1].seq))

    def _apply(self, response: WatchChangesResponse) -> None:
        news = self._directory.apply(response)
        if response.snapshot:
            self._recent.clear()  # what led there is not known
        else:
            self._recent.extend(news)
        if news:
            for listener in self._listeners:
                listener(news)
        for watcher in self._watchers:
            watcher.wake()

    async def start(self) -> None:
        """Begin to look for what others write, where others do."""
        if self._shared:
            await self.look()
            self._poll = detach(self._keep_looking(), name="registry feed")

    @property
    def current(self) -> bool:
        """Whether the view holds what everybody had written a moment ago."""
        return not self._shared or (
            self._looked is not None and self._clock.monotonic() - self._looked <= UNSEEN_SECONDS
        )

    async def look(self) -> None:
        """Take over what other registries have written so far."""
        async with self._looking:
            began = self._clock.monotonic()
            while await self._take_page():
                pass
            self._looked = began

    async def _take_page(self) -> bool:
        """Take over the next changes; tell whether there may be more."""
        found = await self._reader.run(partial(_behind, seq=self._directory.seq))
        if found.head_seq <= self._directory.seq:
            return False
        if not found.changes or found.changes[0].seq > self._directory.seq + 1:
            found = await self._reader.run(self._reload)
        self._apply(found)
        return found.head_seq > self._directory.seq

    async def _keep_looking(self) -> None:
        while True:
            try:
                await self.look()
            except HoplineError as error:
                log.warning("what other registries write cannot be read: %s", error.message)
            except Exception:
                log.exception("what other registries write cannot be read")
            await self._clock.sleep(POLL_SECONDS)

    async def consumed(self, seq: int) -> None:
        """Wait until all watchers have dealt with a change, for a second at most."""
        if self._directory.seq < seq:
            await self.look()
        if not self._behind(seq):
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (seq, waiter)
        self._waiting.append(entry)
        try:
            await wait_for(self._clock, waiter, CONSUMED_SECONDS)
        except TimeoutError:
            for watcher in self._behind(seq):
                watcher.late = True
        finally:
            self._waiting.remove(entry)

    async def watch(self, from_seq: int) -> AsyncIterator[WatchChangesResponse]:
        """Yield what comes after `from_seq`, heartbeats between; a snapshot first where that is unknown."""
        if len(self._watchers) >= MAX_WATCHERS:
            raise HoplineError("overloaded", "too many services watch the registry", retry_after=1.0)
        if self._shared:
            await self.look()  # whoever comes from another registry may be ahead of this one's view
        watcher = _Watcher()
        self._watchers[watcher] = None
        try:
            seq = from_seq
            while not self._closed:
                watcher.looks()
                changes = await self._after(seq)
                if changes is None:
                    seq = self._directory.seq
                    for part in self._snapshot():
                        yield part
                    continue
                if changes or self.current:
                    yield WatchChangesResponse(changes=changes, head_seq=self._directory.seq)
                seq = changes[-1].seq if changes else seq
                self._has_consumed(watcher, seq)
                if seq == self._directory.seq:
                    await watcher.pause(self._clock)
        finally:
            self._watchers.pop(watcher, None)
            self._settle()

    def close(self) -> None:
        """End all watching."""
        self._closed = True
        if self._poll is not None:
            self._poll.cancel()
        for watcher in self._watchers:
            watcher.wake()

    # -- helpers -----------------------------------------------------------------------------------

    def _has_consumed(self, watcher: _Watcher, seq: int) -> None:
        watcher.consumed = seq
        if seq == self._directory.seq:
            watcher.late = False
        self._settle()

    def _behind(self, seq: int) -> list[_Watcher]:
        return [
            each
            for each in self._watchers
            if each.consumed is not None and each.consumed < seq and not each.late
        ]

    def _settle(self) -> None:
        """Release the writes that everyone has dealt with."""
        for seq, waiter in self._waiting:
            if not waiter.done() and not self._behind(seq):
                waiter.set_result(None)

    async def _after(self, seq: int) -> list[Change] | None:
        """Return the next changes behind `seq`; None when they are too old, or of another history."""
        head = self._directory.seq
        if seq == head:
            return []
        if seq == 0 or seq > head:
            return None
        if self._recent and self._recent[0].seq <= seq + 1:
            start = seq + 1 - self._recent[0].seq
            return fit(islice(self._recent, start, start + _PAGE), _PAGE_BYTES)
        found = await self._reader.run(lambda conn: rows.after(conn, seq, _PAGE))
        return fit(found, _PAGE_BYTES) if found and found[0].seq == seq + 1 else None

    def _snapshot(self) -> Iterator[WatchChangesResponse]:
        """Yield the view as it is now, in pages; the last one says that it is the last."""
        head = self._directory.seq
        page, size = WatchChangesResponse(head_seq=head, snapshot=True), 0
        for change in self._directory.snapshot():
            page.changes.append(change)
            size += change.ByteSize()
            if size > _PAGE_BYTES:
                yield page
                page, size = WatchChangesResponse(head_seq=head, snapshot=True), 0
        page.snapshot_end = True
        yield page


def _behind(conn: Connection, seq: int) -> WatchChangesResponse:
    """Return the changes behind a number, with the head; nothing where it is the head."""
    head = rows.head(conn)
    changes = rows.after(conn, seq, _POLL_PAGE) if head > seq else []
    return WatchChangesResponse(changes=changes, head_seq=head)
