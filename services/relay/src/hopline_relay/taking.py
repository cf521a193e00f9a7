"""Answers that a call takes with it: marked as taken, and the wakes dropped that would have brought them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hopline_relay.endings import Endings
from hopline_relay.handover import HandOver, Key
from hopline_relay.journal import Journal
from hopline_relay.store.book import Book
from hopline_relay.store.sql import Record
from hopline_relay.whole import Whole

Drop = Callable[[Book], list[Record]]
"""Marks the answer as taken; returns the turns that would have taken it, as they were."""


class Taking:
    """Takes answers for calls."""

    def __init__(self, journal: Journal, endings: Endings, hand_over: HandOver) -> None:
        self._journal = journal
        self._endings = endings
        self._hand_over = hand_over
        self._whole = Whole("take an answer")

    async def take(self, key: Key, drop: Drop) -> None:
        """Take the answer that `key` stands for.

        A call that goes away does not stop it half-way: the quota service hears of the wakes, or they would
        count as queued for ever, and the answer, which nobody was given, is delivered as a message.
        """
        await self._whole.run(self._take(drop), lambda done: self._nobody_waits(key, done))

    async def drained(self) -> None:
        """Wait until nothing is under way."""
        await self._whole.drained()

    async def _take(self, drop: Drop) -> None:
        await self._endings.tell_quota(await self._journal.write(drop))

    def _nobody_waits(self, key: Key, done: asyncio.Task[None]) -> None:
        if done.cancelled():
            return
        done.exception()  # nobody is left to see it; the answer may have been handed over before that
        self._hand_over.back(*key)
