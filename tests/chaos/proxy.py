"""A TCP proxy between two parts of a mesh, which can cut and delay what passes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

_BLOCK: Final = 64 * 1024


class Proxy:
    """Passes on whatever comes to its port, unless it is told to do worse."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._cut = False
        self._delay = 0.0

    async def start(self) -> str:
        """Listen, and return the address."""
        self._server = await asyncio.start_server(self._passed, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return f"127.0.0.1:{port}"

    def cut(self) -> None:
        """Break every connection, and let no new one through."""
        self._cut = True
        for writer in list(self._open):
            writer.transport.abort()

    def slow(self, seconds: float) -> None:
        """Hold back each block for a while."""
        self._delay = seconds

    def heal(self) -> None:
        """Pass everything on again."""
        self._cut, self._delay = False, 0.0

    async def close(self) -> None:
        """Let go of everything."""
        self.cut()
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _passed(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._cut:
            writer.transport.abort()
            return
        try:
            there, back = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, back}
        for each in (self._pump(reader, back), self._pump(there, writer)):
            task = asyncio.create_task(each)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while block := await reader.read(_BLOCK):
                if self._delay:
                    await asyncio.sleep(self._delay)
                writer.write(block)
                await writer.drain()
        self._open.discard(writer)
        writer.transport.abort()
