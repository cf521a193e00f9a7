"""What is known of the call being served, for whatever code it runs."""

from __future__ import annotations

import asyncio
import contextvars
import weakref
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, TypeVar

from hopline_rpc.deadlines import Deadlines
from hopline_rpc.errors import HoplineError, too_late
from hopline_rpc.ids import IdMaker
from hopline_rpc.principals import Principal

T = TypeVar("T")

_current: contextvars.ContextVar[CallInfo | None] = contextvars.ContextVar("hopline_call", default=None)


class CallInfo:
    """One call on its way through a service. Made by the interceptor, read by everyone."""

    __slots__ = (
        "_closing",
        "_ids",
        "_pending",
        "_request_id",
        "_task",
        "_writing",
        "deadline",
        "ending",
        "method",
        "principal",
        "responses",
        "streaming",
        "subject",
    )

    def __init__(
        self, method: str, request_id: str, ids: IdMaker, task: asyncio.Task[Any], *, streaming: bool = False
    ) -> None:
        self.method = method
        # Weak, because the task's context holds this call: a cycle would be left to the collector.
        self._task = weakref.ref(task)
        self.streaming = streaming
        self.principal: Principal | None = None
        self.subject: Principal | None = None
        # On the event loop's clock. None: the call may take as long as it likes.
        self.deadline: float | None = None
        self.ending: HoplineError | None = None
        # The handler's generator, when it streams responses over a socket.
        self.responses: AsyncGenerator[Any, None] | None = None
        self._writing = False
        self._closing: asyncio.Task[None] | None = None
        self._pending: asyncio.Task[None] | None = None
        self._request_id = request_id
        self._ids = ids

    @property
    def request_id(self) -> str:
        """Name the call in logs and on the next hops; made up when first asked for."""
        if not self._request_id:
            self._request_id = self._ids.new_id("req")
        return self._request_id

    def end(self, error: HoplineError) -> None:
        """Stop the handler; its caller gets `error`.

        While a message is under way gRPC can send no status, and a client that does not read may hold
        it up for long. Then the handler is closed at once, and the status follows the message.
        """
        task = self._task()
        if self.ending is not None or task is None:
            return
        self.ending = error
        if not self._writing:
            task.cancel()
        elif self.responses is not None:
            self._closing = asyncio.get_running_loop().create_task(self.responses.aclose())

    def expire(self) -> None:
        """Stop the handler because its time is over."""
        self.end(too_late())

    async def write(self, context: Any, response: Any) -> None:
        """Send one response over a socket, or raise what ended the call meanwhile."""
        self._writing = True
        try:
            await context.write(response)
        finally:
            self._writing = False
        if self.ending is not None:
            if self._closing is not None:
                await self._closing
            raise self.ending

    async def write_apart(self, context: Any, response: Any) -> None:
        """Send one response over a socket for a handler that writes by itself.

        Such a handler may be cancelled while it writes; the message stays under way then, and the
        status has to wait for it (`settle`).
        """
        self._pending = asyncio.get_running_loop().create_task(context.write(response))
        self._pending.add_done_callback(_look_at)
        await asyncio.shield(self._pending)

    async def settle(self) -> None:
        """Wait for a message that is still under way."""
        if self._pending is not None and not self._pending.done():
            await asyncio.wait({self._pending})

    def ended(self) -> HoplineError | None:
        """Return what a cancelled handler was ended with; None when the cancellation came from elsewhere."""
        task = self._task()
        if self.ending is not None and task is not None:
            task.uncancel()
        return self.ending

    def finish(self) -> None:
        """Let tasks that the handler left behind go on without its deadline."""
        self.deadline = None
        self.responses = None


def _look_at(task: asyncio.Task[None]) -> None:
    """Take note of a failure that nobody may be left to see."""
    if not task.cancelled():
        task.exception()


def current_call() -> CallInfo | None:
    """Return the call being served, or None outside of one."""
    return _current.get()


def set_current_call(call: CallInfo | None) -> None:
    """Make `call` the current one of this task and of those it starts."""
    _current.set(call)


def remaining() -> float | None:
    """Return the seconds left for the call being served; None when it has no deadline."""
    call = _current.get()
    if call is None or call.deadline is None:
        return None
    return call.deadline - asyncio.get_running_loop().time()


def detach(work: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
    """Start a task that outlives the call it is started in: it inherits no caller, deadline or trace."""
    return asyncio.get_running_loop().create_task(work, name=name, context=contextvars.Context())


class LiveCalls(Deadlines[CallInfo]):
    """The calls a service is serving right now: a revocation or a drain ends some of them."""

    def end(self, matches: Callable[[CallInfo], bool], error: HoplineError) -> int:
        """End every call that matches, and return how many there were."""
        found = [call for call in self if matches(call)]
        for call in found:
            call.end(error)
        return len(found)
