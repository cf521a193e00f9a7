"""What a command prints, passed on while it prints: for agents whose callers see it grow."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

Write = Callable[[str], Awaitable[None]]


@asynccontextmanager
async def passing_on(write: Write) -> AsyncIterator[Callable[[bytes], None]]:
    """Yield what takes bytes as they come; a task of its own writes them on, as fast as the mesh takes them.

    What it has not written at the end is not said: the whole answer is.
    """
    queue: asyncio.Queue[bytes] = asyncio.Queue()
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    async def pump() -> None:
        while True:
            text = decode(await queue.get())
            if text:
                await write(text.replace("\0", "\ufffd"))

    task = asyncio.create_task(pump())
    try:
        yield queue.put_nowait
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task
