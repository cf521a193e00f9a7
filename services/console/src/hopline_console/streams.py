"""Pages that are kept up to date: one stream of hints (server-sent events) for each that is looked at."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Final

from hopline.relay.v1 import audit_pb2
from hopline_rpc.calls import CallInfo, LiveCalls
from hopline_rpc.clock import Clock
from hopline_rpc.errors import HoplineError
from hopline_rpc.ids import IdMaker
from hopline_rpc.principals import Principal

from hopline_console.mesh import Mesh

# Often enough for proxies that give up on silence; not more often than a page can be drawn.
_BEAT_SECONDS: Final = 15.0
_HINT_SECONDS: Final = 0.5


class Streams:
    """The streams that are open."""

    def __init__(self, most: int, clock: Clock, ids: IdMaker) -> None:
        self._most = most
        self._clock = clock
        self._ids = ids
        self._by_person: Counter[str] = Counter()
        self._ended = False
        self.live = LiveCalls()

    @property
    def count(self) -> int:
        """How many there are."""
        return self._by_person.total()

    def end_all(self) -> None:
        """End them, and let no new one begin."""
        self._ended = True
        self.live.end(lambda call: True, HoplineError("unavailable", "the console is shutting down"))

    def take(self, principal: Principal) -> None:
        """Take a place; `overloaded` where the person has too many open."""
        if self._ended:
            raise HoplineError("unavailable", "the console is shutting down")
        if self._by_person[principal.id] >= self._most:
            text = f"{self._most} pages of yours are kept up to date already; close one, or reload this one"
            raise HoplineError("overloaded", text, retry_after=_BEAT_SECONDS)
        self._by_person[principal.id] += 1

    def leave(self, principal: Principal) -> None:
        """Give a place back."""
        self._by_person[principal.id] -= 1
        if not self._by_person[principal.id]:
            del self._by_person[principal.id]

    async def hints(self, principal: Principal, mesh: Mesh) -> AsyncIterator[str]:
        """Yield a hint whenever something has happened that this person may see, and a beat meanwhile.

        Ends when the credential is taken away, and with the console.
        """
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a stream of hints needs a task")
        call = CallInfo("live", "", self._ids, task, streaming=True)
        call.principal = principal
        self.live.add(call)
        news = asyncio.Event()
        watching = asyncio.create_task(_watch(mesh, news))
        try:
            yield "retry: 3000\n\n"
            while not watching.done():
                if await self._beat(news, watching):
                    news.clear()
                    yield "event: changed\ndata:\n\n"
                    await self._clock.sleep(_HINT_SECONDS)
                else:
                    yield ": still here\n\n"
        except asyncio.CancelledError:
            if call.ended() is None:
                raise
        finally:
            watching.cancel()
            self.live.discard(call)

    async def _beat(self, news: asyncio.Event, watching: asyncio.Task[None]) -> bool:
        """Wait for news, for at most a beat; tells whether there are some."""
        waits = [asyncio.ensure_future(news.wait()), asyncio.ensure_future(self._clock.sleep(_BEAT_SECONDS))]
        try:
            await asyncio.wait({*waits, watching}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
        return news.is_set()


async def _watch(mesh: Mesh, news: asyncio.Event) -> None:
    newest = await mesh.events.ListEvents(audit_pb2.ListEventsRequest(page_size=1, descending=True))
    after = newest.events[0].seq if newest.events else 0
    # What happened between the page and this stream, or while it was away, is told by nothing else.
    news.set()
    async for _ in mesh.events.WatchEvents(audit_pb2.WatchEventsRequest(after_seq=after)):
        news.set()
