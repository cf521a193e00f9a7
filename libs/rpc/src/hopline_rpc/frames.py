"""The outbound side of a stream whose frames hold as many items as are ready.

Whatever is put while a write is in flight leaves together in the next frame: at rest an item goes out at
once and alone, under load the cost of a write is shared. The queue is bounded; who fills it is told.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, Generic, Protocol, TypeVar

from hopline_rpc.errors import HoplineError

FRAME_ITEMS: Final = 1024
# A larger single item still travels, alone: its own limits keep it below what gRPC takes.
FRAME_BYTES: Final = 1024 * 1024


class Sized(Protocol):
    """A message that knows its size on the wire."""

    def ByteSize(self) -> int:  # noqa: N802 - protobuf's own name
        """Return the bytes it takes."""
        ...


Item = TypeVar("Item", bound=Sized)


class FrameQueue(Generic[Item]):
    """Items on their way into frames. One task takes, any number put.

    Above a quarter of its limits it is `congested`: whoever can wait should, until `drained`. With
    `refuses` off the limits are only that mark: for whoever bounds by other means what it puts.
    """

    def __init__(
        self, max_items: int = 8192, max_bytes: int = 64 * 1024 * 1024, *, refuses: bool = True
    ) -> None:
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._refuses = refuses
        self._items: deque[tuple[Item, int]] = deque()
        self._bytes = 0
        self._closed = False
        self._filled = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()

    def __len__(self) -> int:
        return len(self._items)

    @property
    def congested(self) -> bool:
        """Whether the other side takes less than we have for it."""
        return len(self._items) > self._max_items // 4 or self._bytes > self._max_bytes // 4

    def put(self, item: Item) -> None:
        """Queue an item; `overloaded` over the limits. After `close` it is dropped."""
        if self._closed:
            return
        size = item.ByteSize()
        full = len(self._items) >= self._max_items or self._bytes + size > self._max_bytes
        if full and self._refuses:
            raise HoplineError("overloaded", "the other side does not read what is sent to it")
        self._items.append((item, size))
        self._bytes += size
        self._filled.set()
        if self.congested:
            self._drained.clear()

    async def take(self) -> list[Item]:
        """Wait for something and return a frame's worth of it; empty once closed and emptied."""
        while not self._items:
            if self._closed:
                return []
            self._filled.clear()
            await self._filled.wait()
        taken = [self._pop()]
        size = taken[0].ByteSize()
        while self._items and len(taken) < FRAME_ITEMS and size + self._items[0][1] <= FRAME_BYTES:
            size += self._items[0][1]
            taken.append(self._pop())
        if not self.congested:
            self._drained.set()
        return taken

    def _pop(self) -> Item:
        item, size = self._items.popleft()
        self._bytes -= size
        return item

    async def drained(self) -> None:
        """Wait while the queue is congested."""
        await self._drained.wait()

    def close(self) -> None:
        """Take no more; what is queued can still be taken."""
        self._closed = True
        self._filled.set()
        self._drained.set()

    def abandon(self) -> list[Item]:
        """Close, and return what will never be sent."""
        self.close()
        unsent = [item for item, _ in self._items]
        self._items.clear()
        self._bytes = 0
        return unsent
