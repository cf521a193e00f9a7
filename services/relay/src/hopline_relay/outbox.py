"""One outbox for everything that the mesh posts to addresses that people set, each under their signature.

What is to be posted is written with what it tells of, and goes once it was taken, so that a restart loses
none; it is tried again, ever more slowly, and not once it is out of date. What a post says, to whom, and what
its end means, is its kind's: `owner_notices.py`, `wakes.py`.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from hopline_rpc import signatures
from hopline_rpc.calls import detach
from hopline_rpc.clock import Clock
from hopline_rpc.errors import HoplineError

from hopline_relay.domain.notices import MAX_ATTEMPTS, pause
from hopline_relay.journal import Journal
from hopline_relay.posting import Poster
from hopline_relay.store import outbox
from hopline_relay.store.book import Book
from hopline_relay.store.sql import Record

log = logging.getLogger("hopline.relay.outbox")

# At once; and how often is looked whether there is anything to post that nobody has spoken of.
_MOST: Final = 8
_LOOK_SECONDS: Final = 30.0
_RETRY_SECONDS: Final = 5.0
# Where several relays post: how often each looks for what another has left, and how long one has a post.
_SHARED_LOOK_SECONDS: Final = 1.0
_CLAIM_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Post:
    """What is posted where, and the secret that signs it."""

    url: str
    secret: str
    body: Mapping[str, Any]


class Kind(Protocol):
    """What one kind of post says, and what becomes of it."""

    async def compose(self, row: Record) -> Post | None:
        """Return what is to be posted now; None: it is out of date, and goes."""
        ...

    def settle(self, book: Book, row: Record, problem: str, pause: float) -> None:
        """Note how an attempt went: taken, or why not; another one would come after `pause`."""
        ...


class Outbox:
    """Posts what is due."""

    def __init__(self, journal: Journal, post: Poster, clock: Clock, chance: Callable[[], float]) -> None:
        self._journal = journal
        self._post = post
        self._clock = clock
        self._chance = chance
        self._kinds: dict[str, Kind] = {}
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def add_kind(self, name: str, kind: Kind) -> None:
        """Say what rows of a kind mean."""
        self._kinds[name] = kind

    def start(self) -> None:
        """Begin to post."""
        self._task = detach(self._run(), name="relay outbox")

    async def close(self) -> None:
        """Stop; what was not posted is posted by the next process."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        await self._post.close()

    def wake(self) -> None:
        """Say that there is something to post."""
        self._news.set()

    async def _run(self) -> None:
        while True:
            self._news.clear()
            seconds = _RETRY_SECONDS
            try:
                await self.send()
                seconds = await self._rest()
            except HoplineError as error:
                log.warning("what is to be posted waits: %s", error.message)
            except Exception:
                log.exception("nothing can be posted just now")
            timer = self._clock.call_later(seconds, self._news.set)
            try:
                await self._news.wait()
            finally:
                timer.cancel()

    async def _rest(self) -> float:
        """Return how long there is nothing to do."""
        due = await self._journal.read(outbox.next_due)
        most = _SHARED_LOOK_SECONDS if self._journal.shared else _LOOK_SECONDS
        return most if due is None else min(most, max(0.0, due - self._clock.now()))

    async def send(self) -> None:
        """Post whatever is due."""
        while True:
            now = self._clock.now()
            rows = await self._journal.read(partial(outbox.due, now=now, most=_MOST))
            if not rows:
                return
            await asyncio.gather(*(self._send(row) for row in rows))

    async def _send(self, row: Record) -> None:
        if self._journal.shared and not await self._claim(row):
            return  # another relay has it in hand
        kind = self._kinds[row.kind]
        post = await kind.compose(row)
        if post is None:
            await self._journal.write(lambda book: outbox.remove(book.connection, row))
            return
        body = json.dumps({**post.body, "delivery_id": row.id}, ensure_ascii=False).encode()
        headers = {
            "Content-Type": "application/json",
            "Hopline-Delivery": row.id,
            signatures.HEADER: signatures.sign(post.secret, body, int(self._clock.now())),
        }
        problem = await self._post(post.url, body, headers)
        seconds = pause(row.attempts + 1, self._chance())
        await self._journal.write(lambda book: kind.settle(book, row, problem, seconds))

    async def _claim(self, row: Record) -> bool:
        """Take a post before others do; should this process die, it is due again a while later."""
        return await self._journal.write(
            lambda book: outbox.claim(book.connection, row, book.now + _CLAIM_SECONDS),
            within=[row.workspace_id],
        )


def is_last(row: Record) -> bool:
    """Tell whether the attempt that was just made is the last one."""
    return bool(row.attempts + 1 >= MAX_ATTEMPTS)
