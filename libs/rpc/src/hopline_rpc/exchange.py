"""The state of one in-process call, between its two sides: outcome, metadata, messages on their way."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import grpc
import grpc.aio

from hopline_rpc.deadlines import Deadlines

EOF: Final = grpc.aio.EOF
REQUEST_BUFFER: Final = 16
FINISHED: Final = "RPC already finished."
_HALF_CLOSED: Final = 'RPC is half closed after calling "done_writing".'
_BUSY: Final = "another read or write of this stream is under way"

Pairs = tuple[tuple[str, Any], ...]


class Status(NamedTuple):
    """How a call ended."""

    code: grpc.StatusCode
    details: str
    trailing: Pairs
    response: Any = None
    locally_cancelled: bool = False


def copy(message: Any) -> Any:
    """Return the receiver's own copy of a message."""
    own = type(message)()
    own.CopyFrom(message)
    return own


class Exchange:
    """What client and server of one call share. Neither side refers to the other's objects."""

    def __init__(self, metadata: Pairs, timeout: float | None) -> None:
        self.loop = asyncio.get_running_loop()
        self.deadlines: Deadlines[Exchange] | None = None
        self.metadata = metadata
        self.deadline = None if timeout is None else self.loop.time() + timeout
        self.status: Status | None = None
        self.initial: Pairs | None = None
        self.handler: asyncio.Task[None] | None = None
        self.callbacks: list[Callable[[], object]] = []
        self._waiters: dict[asyncio.Future[None], None] = {}
        # Responses: the item on offer, whether the consumer has taken it, and who waits.
        self._offer: Any = EOF
        self._taken = False
        self._producer: asyncio.Future[None] | None = None
        self._consumer: asyncio.Future[None] | None = None
        # Requests: a short queue, and who waits at its ends.
        self._requests: deque[Any] = deque()
        self.half_closed = False
        self._request_reader: asyncio.Future[None] | None = None
        self._request_writer: asyncio.Future[None] | None = None

    # -- status ------------------------------------------------------------------------------------

    def expire(self) -> None:
        """End the call because its time is over."""
        self.stop(Status(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", ()))

    def cancel(self, details: str) -> bool:
        """End the call from the client's side."""
        if self.status is not None:
            return False
        self.stop(Status(grpc.StatusCode.CANCELLED, details, (), None, True))
        return True

    def stop(self, status: Status) -> None:
        """Finish the call and stop its handler."""
        if self.status is None:
            self.finish(status)
            if self.handler is not None:
                self.handler.cancel()

    def finish(self, status: Status) -> None:
        """Fix the call's outcome, once, and wake everyone who waits for it."""
        if self.status is not None:
            return
        self.status = status
        if self.deadlines is not None:
            self.deadlines.discard(self)
        self._wake_waiters()
        for end in (self._producer, self._consumer, self._request_reader, self._request_writer):
            wake(end)
        for callback in self.callbacks:
            self.loop.call_soon(callback)
        self.callbacks.clear()

    def send_initial(self, metadata: Pairs) -> None:
        """Let the client see the initial metadata."""
        if self.initial is None:
            self.initial = metadata
            self._wake_waiters()

    def _wake_waiters(self) -> None:
        for waiter in self._waiters:
            wake(waiter)
        self._waiters.clear()

    async def finished(self) -> Status:
        """Wait for the outcome."""
        while self.status is None:
            await self._wait()
        return self.status

    async def started(self) -> Pairs:
        """Wait for the initial metadata, or the outcome if that comes first."""
        while self.initial is None and self.status is None:
            await self._wait()
        return self.initial or ()

    async def _wait(self) -> None:
        waiter: asyncio.Future[None] = self.loop.create_future()
        self._waiters[waiter] = None
        try:
            await waiter
        finally:
            self._waiters.pop(waiter, None)

    def raise_for_status(self) -> None:
        """Raise what a finished call that did not succeed raises."""
        status = self.status
        if status is None or status.code is grpc.StatusCode.OK:
            return
        if status.locally_cancelled:
            raise asyncio.CancelledError
        raise grpc.aio.AioRpcError(
            status.code,
            grpc.aio.Metadata(*(self.initial or ())),
            grpc.aio.Metadata(*status.trailing),
            details=status.details,
            debug_error_string="in-process call",
        )

    # -- responses ---------------------------------------------------------------------------------

    async def offer(self, item: Any) -> None:
        """Hand one response over; returns when the consumer comes back for the next."""
        if self.status is not None:
            raise grpc.aio.UsageError(FINISHED)
        if self._producer is not None:
            raise grpc.aio.UsageError(_BUSY)
        self.send_initial(())
        self._offer, self._taken = item, False
        wake(self._consumer)
        self._producer = self.loop.create_future()
        try:
            await self._producer
        finally:
            self._producer = None

    async def take(self) -> Any:
        """Return the next response, or EOF when there is none to come."""
        if self._consumer is not None:
            raise grpc.aio.UsageError(_BUSY)
        if self._taken:
            # This is the coming back that the producer waits for.
            self._offer, self._taken = EOF, False
            wake(self._producer)
        while self._offer is EOF and self.status is None:
            self._consumer = self.loop.create_future()
            try:
                await self._consumer
            finally:
                self._consumer = None
        if self.status is not None:
            return EOF
        self._taken = True
        return self._offer

    # -- requests ----------------------------------------------------------------------------------

    async def send_request(self, request: Any) -> None:
        """Queue a request; waits while the server is far behind."""
        if self.status is not None:
            raise asyncio.InvalidStateError(FINISHED)
        if self.half_closed:
            raise asyncio.InvalidStateError(_HALF_CLOSED)
        if self._request_writer is not None:
            raise grpc.aio.UsageError(_BUSY)
        while len(self._requests) >= REQUEST_BUFFER and self.status is None:
            self._request_writer = self.loop.create_future()
            try:
                await self._request_writer
            finally:
                self._request_writer = None
        self.raise_for_status()
        self._requests.append(copy(request))
        wake(self._request_reader)

    def close_requests(self) -> None:
        """Say that no request follows."""
        self.half_closed = True
        wake(self._request_reader)

    async def next_request(self) -> Any:
        """Return the next request, or EOF after the last."""
        if self._request_reader is not None:
            raise grpc.aio.UsageError(_BUSY)
        while not self._requests and not self.half_closed:
            if self.status is not None:
                raise asyncio.CancelledError
            self._request_reader = self.loop.create_future()
            try:
                await self._request_reader
            finally:
                self._request_reader = None
        if not self._requests:
            return EOF
        request = self._requests.popleft()
        wake(self._request_writer)
        return request


def wake(waiter: asyncio.Future[None] | None) -> None:
    """Let whoever waits go on."""
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
