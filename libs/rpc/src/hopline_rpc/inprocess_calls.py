"""The call objects of in-process channels: what generated stubs return, with gRPC's own interface."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator
from typing import Any, Final

import grpc
import grpc.aio

from hopline_rpc.exchange import EOF, Exchange

log = logging.getLogger("hopline.inprocess")

_LOCALLY_CANCELLED: Final = "Locally cancelled by application!"
_COLLECTED: Final = "Cancelled upon garbage collection!"
_STYLES: Final = "The iterator and read/write APIs may not be mixed on a single RPC."


class Call:
    """What every kind of call object offers."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def __del__(self) -> None:
        # A call that nobody holds any more is over; its handler must not run on. The collector may be
        # at work on any thread.
        exchange = self._exchange
        if exchange.status is None and not exchange.loop.is_closed():
            exchange.loop.call_soon_threadsafe(exchange.cancel, _COLLECTED)

    def cancel(self) -> bool:
        """End the call and its handler."""
        return self._exchange.cancel(_LOCALLY_CANCELLED)

    def cancelled(self) -> bool:
        """Tell whether the call was cancelled."""
        status = self._exchange.status
        return status is not None and status.code is grpc.StatusCode.CANCELLED

    def done(self) -> bool:
        """Tell whether the call has its outcome."""
        return self._exchange.status is not None

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call back when the call has its outcome."""
        if self._exchange.status is not None:
            callback(self)
        else:
            self._exchange.callbacks.append(lambda: callback(self))

    def time_remaining(self) -> float | None:
        """Return the seconds left; None without a deadline."""
        deadline = self._exchange.deadline
        return None if deadline is None else max(deadline - self._exchange.loop.time(), 0)

    async def initial_metadata(self) -> grpc.aio.Metadata:
        """Wait for the initial metadata."""
        return grpc.aio.Metadata(*await self._exchange.started())

    async def trailing_metadata(self) -> grpc.aio.Metadata:
        """Wait for the trailing metadata."""
        return grpc.aio.Metadata(*(await self._exchange.finished()).trailing)

    async def code(self) -> grpc.StatusCode:
        """Wait for the outcome's code."""
        return (await self._exchange.finished()).code

    async def details(self) -> str:
        """Wait for the outcome's text."""
        return (await self._exchange.finished()).details

    async def debug_error_string(self) -> str:
        """Wait for the outcome; there is no transport to say more."""
        await self._exchange.finished()
        return ""

    async def _until_cancelled(self, step: Any) -> Any:
        """Await a step; a caller cancelled meanwhile takes the call with it, as gRPC does."""
        try:
            return await step
        except asyncio.CancelledError:
            self.cancel()
            raise


class UnaryResponse(Call):
    """A call with one response."""

    def __await__(self) -> Generator[Any, None, Any]:
        return self._until_cancelled(self._response()).__await__()

    async def _response(self) -> Any:
        status = await self._exchange.finished()
        self._exchange.raise_for_status()
        return status.response

    async def wait_for_connection(self) -> None:
        """Wait until the server has answered."""
        await self._exchange.started()
        self._exchange.raise_for_status()


class StreamResponse(Call):
    """A call with a stream of responses."""

    _responses: AsyncIterator[Any] | None = None
    _reads = False

    def __aiter__(self) -> AsyncIterator[Any]:
        if self._reads:
            raise grpc.aio.UsageError(_STYLES)
        if self._responses is None:
            self._responses = self._iterate()
        return self._responses

    async def _iterate(self) -> AsyncIterator[Any]:
        while (response := await self._until_cancelled(self._exchange.take())) is not EOF:
            yield response
        self._exchange.raise_for_status()

    async def read(self) -> Any:
        """Return the next response, EOF after the last."""
        if self._responses is not None:
            raise grpc.aio.UsageError(_STYLES)
        self._reads = True
        response = await self._until_cancelled(self._exchange.take())
        if response is EOF:
            self._exchange.raise_for_status()
        return response

    async def wait_for_connection(self) -> None:
        """Wait until the server has sent its initial metadata."""
        await self._exchange.started()
        self._exchange.raise_for_status()


class StreamRequest(Call):
    """A call with a stream of requests."""

    _poller: asyncio.Task[None] | None = None

    def feed(self, requests: Any) -> None:
        """Send what an iterator yields; without one the caller writes."""
        if requests is not None:
            self._poller = self._exchange.loop.create_task(_feed(requests, self._exchange))
            self._exchange.callbacks.append(self._poller.cancel)

    async def write(self, request: Any) -> None:
        """Send a request; waits while the server is far behind."""
        if self._poller is not None:
            raise grpc.aio.UsageError(_STYLES)
        await self._until_cancelled(self._exchange.send_request(request))

    async def done_writing(self) -> None:
        """Say that no request follows."""
        if self._poller is not None:
            raise grpc.aio.UsageError(_STYLES)
        self._exchange.close_requests()


async def _feed(requests: Any, exchange: Exchange) -> None:
    """Send what an iterator yields. It knows only the exchange, so that a dropped call can be collected."""
    try:
        if isinstance(requests, AsyncIterable):
            async for request in requests:
                await exchange.send_request(request)
        else:
            for request in requests:
                await exchange.send_request(request)
        exchange.close_requests()
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        pass  # the call ended first; whoever awaits it learns why
    except BaseException as error:
        log.debug("a request iterator failed", exc_info=error)
        exchange.cancel(_LOCALLY_CANCELLED)
        if not isinstance(error, Exception):
            raise


class UnaryUnaryCall(UnaryResponse, grpc.aio.UnaryUnaryCall[Any, Any]):
    """One request, one response."""


class UnaryStreamCall(StreamResponse, grpc.aio.UnaryStreamCall[Any, Any]):
    """One request, a stream of responses."""


class StreamUnaryCall(StreamRequest, UnaryResponse, grpc.aio.StreamUnaryCall[Any, Any]):
    """A stream of requests, one response."""


class StreamStreamCall(StreamRequest, StreamResponse, grpc.aio.StreamStreamCall[Any, Any]):
    """Streams both ways."""

    async def wait_for_connection(self) -> None:
        """Return at once: there is nothing to connect."""
        self._exchange.raise_for_status()
