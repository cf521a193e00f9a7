"""Threads for tools that are plain functions.

Not the event loop's own pool: that has a few threads, which functions that hang would take from everybody
else, and which a process that ends waits for.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

# As many as the mesh has a worker run at once.
MAX_THREADS: Final = 32


class ToolThreads:
    """Runs functions beside the event loop, each in a thread.

    None can be stopped: one whose call is over keeps its place until it returns, or until the process ends.
    """

    def __init__(self, most: int = MAX_THREADS) -> None:
        self._places = asyncio.Semaphore(most)

    async def run(self, function: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Run a function in the caller's context; whatever it raises is raised here."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
        context = contextvars.copy_context()

        def work() -> None:
            result, error = None, None
            try:
                result = context.run(function, **arguments)
            except BaseException as raised:
                error = raised
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(over, result, error)

        def over(result: Any, error: BaseException | None) -> None:
            self._places.release()
            if not ended.done():
                # In a pair: a future takes no StopIteration, which `next` without a default raises.
                ended.set_result((result, error))

        await self._places.acquire()
        try:
            threading.Thread(target=work, name="tool", daemon=True).start()
        except RuntimeError:
            self._places.release()
            raise
        result, error = await ended
        if error is not None:
            raise error
        return result
