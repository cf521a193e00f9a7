"""Calls between services of one process: the interface of generated stubs, without a socket.

`InProcessServer` takes servicers through the generated `add_XServicer_to_server`; `channel()` returns
what the generated `XStub` takes. The same interceptor runs around the same handlers, each in a task
and context of its own, so that deadlines, cancellation, metadata and errors are those of a socket.
One test suite runs over both.

*Messages* are copied, not serialised (about 1 us a KB): neither side sees what the other does to its
own object afterwards, as over a socket.

*Responses of a stream* are a rendezvous without a buffer: the server's `yield` (or `context.write`)
returns once the consumer has taken the item AND has come back for the next one. Whoever writes a
change to a stream knows when it returns that the reader has dealt with it.

*Requests of a stream* are buffered, 16 at most, as a socket would do: a client may write a few before
the server reads, then `write` waits.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Generator, Iterable, Mapping
from typing import Any, Final, NamedTuple, NoReturn

import grpc
import grpc.aio

from hopline_rpc.errors import HoplineError, to_status
from hopline_rpc.interceptors import Handler, InProcess, Interceptor
from hopline_rpc.rules import Rules, rules_of_service

log = logging.getLogger("hopline.inprocess")

EOF: Final = grpc.aio.EOF
_REQUEST_BUFFER: Final = 16
_LOCALLY_CANCELLED: Final = "Locally cancelled by application!"
_COLLECTED: Final = "Cancelled upon garbage collection!"
_FINISHED: Final = "RPC already finished."
_HALF_CLOSED: Final = 'RPC is half closed after calling "done_writing".'
_STYLES: Final = "The iterator and read/write APIs may not be mixed on a single RPC."
_BUSY: Final = "another read or write of this stream is under way"

Pairs = tuple[tuple[str, Any], ...]


class _Status(NamedTuple):
    code: grpc.StatusCode
    details: str
    trailing: Pairs
    response: Any = None
    locally_cancelled: bool = False


def _copy(message: Any) -> Any:
    """Return the receiver's own copy of a message."""
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


class _Exchange:
    """What client and server of one call share. Neither side refers to the other's objects."""

    def __init__(self, metadata: Pairs, timeout: float | None) -> None:
        self.loop = asyncio.get_running_loop()
        self.metadata = metadata
        self.deadline = None if timeout is None else self.loop.time() + timeout
        self.status: _Status | None = None
        self.initial: Pairs | None = None
        self.handler: asyncio.Task[None] | None = None
        self.callbacks: list[Callable[[], object]] = []
        self._waiters: set[asyncio.Future[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
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

    def start_timer(self) -> None:
        """End the call when its time is over."""
        if self.deadline is not None:
            self._timer = self.loop.call_at(self.deadline, self._expire)

    def _expire(self) -> None:
        self.stop(_Status(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", ()))

    def cancel(self, details: str) -> bool:
        """End the call from the client's side."""
        if self.status is not None:
            return False
        self.stop(_Status(grpc.StatusCode.CANCELLED, details, (), None, True))
        return True

    def stop(self, status: _Status) -> None:
        """Finish the call and stop its handler."""
        if self.status is None:
            self.finish(status)
            if self.handler is not None:
                self.handler.cancel()

    def finish(self, status: _Status) -> None:
        """Fix the call's outcome, once, and wake everyone who waits for it."""
        if self.status is not None:
            return
        self.status = status
        if self._timer is not None:
            self._timer.cancel()
        self._wake_waiters()
        for end in (self._producer, self._consumer, self._request_reader, self._request_writer):
            _wake(end)
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
            _wake(waiter)
        self._waiters.clear()

    async def finished(self) -> _Status:
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
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

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
            raise grpc.aio.UsageError(_FINISHED)
        if self._producer is not None:
            raise grpc.aio.UsageError(_BUSY)
        self.send_initial(())
        self._offer, self._taken = item, False
        _wake(self._consumer)
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
            _wake(self._producer)
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
            raise asyncio.InvalidStateError(_FINISHED)
        if self.half_closed:
            raise asyncio.InvalidStateError(_HALF_CLOSED)
        if self._request_writer is not None:
            raise grpc.aio.UsageError(_BUSY)
        while len(self._requests) >= _REQUEST_BUFFER and self.status is None:
            self._request_writer = self.loop.create_future()
            try:
                await self._request_writer
            finally:
                self._request_writer = None
        self.raise_for_status()
        self._requests.append(_copy(request))
        _wake(self._request_reader)

    def close_requests(self) -> None:
        """Say that no request follows."""
        self.half_closed = True
        _wake(self._request_reader)

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
        _wake(self._request_writer)
        return request


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


# --- the server's side ---------------------------------------------------------------------------


class InProcessContext(InProcess):
    """What a handler gets as its `context`."""

    def __init__(self, exchange: _Exchange) -> None:
        self._exchange = exchange
        self._code: grpc.StatusCode | None = None
        self._details = ""
        self._trailing: Pairs = ()
        self._aborted: grpc.aio.AbortError | None = None

    def invocation_metadata(self) -> Pairs:
        """Return the caller's metadata."""
        return self._exchange.metadata

    def time_remaining(self) -> float | None:
        """Return the seconds the caller still waits; None when it set no deadline."""
        deadline = self._exchange.deadline
        return None if deadline is None else max(deadline - self._exchange.loop.time(), 0)

    async def read(self) -> Any:
        """Return the next request of a stream, EOF after the last."""
        self._check()
        return await self._exchange.next_request()

    async def write(self, message: Any) -> None:
        """Hand a response to the consumer; returns when it comes back for the next."""
        self._check()
        await self._exchange.offer(_copy(message))

    async def send_initial_metadata(self, initial_metadata: Any) -> None:
        """Let the caller see the initial metadata now."""
        self._check()
        if self._exchange.initial is not None:
            raise grpc.aio.UsageError("Send initial metadata failed: already sent")
        self._exchange.send_initial(tuple(initial_metadata))

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Any = ()) -> NoReturn:
        """End the call with an error."""
        if self._aborted is not None:
            raise grpc.aio.UsageError("Abort already called!")
        self._code, self._details = code, details or self._details
        self._trailing = tuple(trailing_metadata) or self._trailing
        self._aborted = grpc.aio.AbortError("Locally aborted.")
        self._exchange.send_initial(())
        self._exchange.finish(_Status(code, self._details, self._trailing))
        raise self._aborted

    async def abort_with_status(self, status: grpc.Status) -> NoReturn:
        """End the call with an error."""
        await self.abort(status.code, status.details, status.trailing_metadata or ())

    def set_trailing_metadata(self, trailing_metadata: Any) -> None:
        """Set what travels behind the last response."""
        self._trailing = tuple(trailing_metadata)

    def trailing_metadata(self) -> Pairs:
        """Return what was set so far."""
        return self._trailing

    def set_code(self, code: grpc.StatusCode) -> None:
        """Set the code with which the call will end."""
        self._code = code

    def code(self) -> grpc.StatusCode | None:
        """Return the code that was set."""
        return self._code

    def set_details(self, details: str) -> None:
        """Set the text that goes with the code."""
        self._details = details

    def details(self) -> str:
        """Return the text that was set."""
        return self._details

    def set_compression(self, compression: grpc.Compression) -> None:
        """Accept and ignore: nothing is sent anywhere."""

    def disable_next_message_compression(self) -> None:
        """Accept and ignore: nothing is sent anywhere."""

    def peer(self) -> str:
        """Name the other side."""
        return "inprocess:"

    def peer_identities(self) -> None:
        """Return nothing: there is no transport to authenticate anyone."""

    def peer_identity_key(self) -> None:
        """Return nothing: there is no transport to authenticate anyone."""

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        """Return nothing: there is no transport to authenticate anyone."""
        return {}

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call back when the call has ended."""
        self._exchange.callbacks.append(lambda: callback(self))

    def done(self) -> bool:
        """Tell whether the call has its outcome."""
        return self._exchange.status is not None

    def cancelled(self) -> bool:
        """Tell whether the caller cancelled."""
        status = self._exchange.status
        return status is not None and status.code is grpc.StatusCode.CANCELLED

    def complete(self, response: Any) -> None:
        """End the call after its handler has returned."""
        if self._aborted is not None:
            return  # the handler swallowed the abort; its outcome stands
        code = self._code or grpc.StatusCode.OK
        self._exchange.send_initial(())
        self._exchange.finish(_Status(code, self._details, self._trailing, response))

    def fail(self, error: BaseException) -> None:
        """End the call whose handler raised what no interceptor caught."""
        code = self._code or grpc.StatusCode.UNKNOWN
        self._exchange.finish(_Status(code, f"Unexpected {type(error)}: {error}", self._trailing))

    def _check(self) -> None:
        if self._aborted is not None:
            raise self._aborted
        if self._exchange.status is not None:
            raise grpc.aio.UsageError(_FINISHED)


async def _requests(context: InProcessContext) -> AsyncIterator[Any]:
    while (request := await context.read()) is not EOF:
        yield request


async def _run(handler: Handler, request: Any, exchange: _Exchange) -> None:
    """Run a handler in its task, as gRPC's server would."""
    context = InProcessContext(exchange)
    given = _requests(context) if handler.request_streaming else request
    try:
        if handler.response_streaming:
            await _respond(handler, given, context)
            context.complete(None)
        else:
            behaviour: Any = handler.stream_unary if handler.request_streaming else handler.unary_unary
            response = await behaviour(given, context)
            context.complete(_copy(response) if response is not None else None)
    except grpc.aio.AbortError:
        pass
    except asyncio.CancelledError:
        exchange.finish(_Status(grpc.StatusCode.CANCELLED, "the handler was cancelled", ()))
        raise
    except Exception as error:
        if exchange.status is None:
            log.exception("an in-process handler failed")
        context.fail(error)


async def _respond(handler: Handler, given: Any, context: InProcessContext) -> None:
    behaviour: Any = handler.stream_stream if handler.request_streaming else handler.unary_stream
    if not inspect.isasyncgenfunction(behaviour):
        await behaviour(given, context)
        return
    async for response in behaviour(given, context):
        await context.write(response)


class InProcessServer(grpc.aio.Server):
    """Holds servicers for calls inside the process."""

    def __init__(self, interceptor: Interceptor | None = None) -> None:
        self._interceptor = interceptor
        self._stopping = False
        self._tasks: set[asyncio.Task[None]] = set()
        # By service, then by method: what a socket server registers too.
        self.services: dict[str, dict[str, Handler]] = {}
        self.handlers: dict[str, Handler] = {}

    def add_registered_method_handlers(
        self, service_name: str, method_handlers: Mapping[str, Handler]
    ) -> None:
        """Take a servicer; called by the generated `add_XServicer_to_server`."""
        self.add_service(service_name, method_handlers, rules_of_service(service_name))

    def add_service(
        self, service_name: str, method_handlers: Mapping[str, Handler], rules: Mapping[str, Rules]
    ) -> None:
        """Take a servicer with rules that are not in its contract."""
        wrapped = {
            name: self._wrap(f"/{service_name}/{name}", handler, rules[name])
            for name, handler in method_handlers.items()
        }
        self.services[service_name] = wrapped
        for name, handler in wrapped.items():
            self.handlers[f"/{service_name}/{name}"] = handler

    def _wrap(self, path: str, handler: Handler, rules: Rules) -> Handler:
        return handler if self._interceptor is None else self._interceptor.wrap(path, handler, rules)

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """Accept and ignore: generated code registers the same handlers by method as well."""

    def channel(self) -> InProcessChannel:
        """Return a channel for generated stubs."""
        return InProcessChannel(self)

    def begin(self, path: str, request: Any, metadata: Pairs, timeout: float | None) -> _Exchange:
        """Start a call."""
        exchange = _Exchange(metadata, timeout)
        handler = self.handlers.get(path)
        if handler is None:
            exchange.finish(_Status(grpc.StatusCode.UNIMPLEMENTED, "Method not found!", ()))
        elif self._stopping:
            wire = to_status(HoplineError("unavailable", "the service is shutting down"))
            exchange.finish(_Status(wire.code, wire.message, wire.trailing_metadata))
        elif timeout is not None and timeout <= 0:
            exchange.finish(_Status(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", ()))
        else:
            # A context of its own: the caller's identity, deadline and trace are not the handler's.
            task = exchange.loop.create_task(_run(handler, request, exchange), context=contextvars.Context())
            exchange.handler = task
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            exchange.start_timer()
        return exchange

    def add_insecure_port(self, address: str) -> int:
        """Refuse: there are no ports inside a process."""
        raise grpc.aio.UsageError("an in-process server has no ports")

    def add_secure_port(self, address: str, server_credentials: grpc.ServerCredentials) -> int:
        """Refuse: there are no ports inside a process."""
        raise grpc.aio.UsageError("an in-process server has no ports")

    async def start(self) -> None:
        """Do nothing: calls are taken as soon as a servicer is there."""

    async def stop(self, grace: float | None) -> None:
        """Take no more calls, wait `grace` seconds for the running ones, then cancel them."""
        self._stopping = True
        if self._tasks and grace:
            await asyncio.wait(set(self._tasks), timeout=grace)
        running = set(self._tasks)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    async def wait_for_termination(self, timeout: float | None = None) -> bool:
        """Wait until no call runs; true when `timeout` came first."""
        if not self._tasks:
            return False
        _, pending = await asyncio.wait(set(self._tasks), timeout=timeout)
        return bool(pending)


# --- the client's side ---------------------------------------------------------------------------


class _Call:
    """What every kind of call object offers."""

    def __init__(self, exchange: _Exchange) -> None:
        self._exchange = exchange

    def __del__(self) -> None:
        # A call that nobody holds any more is over; its handler must not run on.
        exchange = self._exchange
        if exchange.status is None and not exchange.loop.is_closed():
            exchange.cancel(_COLLECTED)

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


class _UnaryResponse(_Call):
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


class _StreamResponse(_Call):
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


class _StreamRequest(_Call):
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


async def _feed(requests: Any, exchange: _Exchange) -> None:
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


class UnaryUnaryCall(_UnaryResponse, grpc.aio.UnaryUnaryCall[Any, Any]):
    """One request, one response."""


class UnaryStreamCall(_StreamResponse, grpc.aio.UnaryStreamCall[Any, Any]):
    """One request, a stream of responses."""


class StreamUnaryCall(_StreamRequest, _UnaryResponse, grpc.aio.StreamUnaryCall[Any, Any]):
    """A stream of requests, one response."""


class StreamStreamCall(_StreamRequest, _StreamResponse, grpc.aio.StreamStreamCall[Any, Any]):
    """Streams both ways."""

    async def wait_for_connection(self) -> None:
        """Return at once: there is nothing to connect."""
        self._exchange.raise_for_status()


class _MultiCallable:
    def __init__(self, server: InProcessServer, path: str) -> None:
        self._server = server
        self._path = path

    def _begin(self, request: Any, metadata: Any, timeout: float | None) -> _Exchange:
        pairs: Pairs = tuple(metadata) if metadata else ()
        return self._server.begin(self._path, request, pairs, timeout)


class _UnaryUnary(_MultiCallable, grpc.aio.UnaryUnaryMultiCallable[Any, Any]):
    def __call__(
        self,
        request: Any,
        *,
        timeout: float | None = None,
        metadata: Any = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> UnaryUnaryCall:
        return UnaryUnaryCall(self._begin(_copy(request), metadata, timeout))


class _UnaryStream(_MultiCallable, grpc.aio.UnaryStreamMultiCallable[Any, Any]):
    def __call__(
        self,
        request: Any,
        *,
        timeout: float | None = None,
        metadata: Any = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> UnaryStreamCall:
        return UnaryStreamCall(self._begin(_copy(request), metadata, timeout))


class _StreamUnary(_MultiCallable, grpc.aio.StreamUnaryMultiCallable[Any, Any]):
    def __call__(
        self,
        request_iterator: Any = None,
        timeout: float | None = None,
        metadata: Any = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> StreamUnaryCall:
        call = StreamUnaryCall(self._begin(None, metadata, timeout))
        call.feed(request_iterator)
        return call


class _StreamStream(_MultiCallable, grpc.aio.StreamStreamMultiCallable[Any, Any]):
    def __call__(
        self,
        request_iterator: Any = None,
        timeout: float | None = None,
        metadata: Any = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> StreamStreamCall:
        call = StreamStreamCall(self._begin(None, metadata, timeout))
        call.feed(request_iterator)
        return call


class InProcessChannel(grpc.aio.Channel):
    """What generated stubs take in place of a channel over a socket."""

    def __init__(self, server: InProcessServer) -> None:
        self._server = server

    def unary_unary(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: bool | None = False,
    ) -> grpc.aio.UnaryUnaryMultiCallable[Any, Any]:
        """Return the callable of a method."""
        return _UnaryUnary(self._server, method)

    def unary_stream(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: bool | None = False,
    ) -> grpc.aio.UnaryStreamMultiCallable[Any, Any]:
        """Return the callable of a method."""
        return _UnaryStream(self._server, method)

    def stream_unary(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: bool | None = False,
    ) -> grpc.aio.StreamUnaryMultiCallable[Any, Any]:
        """Return the callable of a method."""
        return _StreamUnary(self._server, method)

    def stream_stream(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: bool | None = False,
    ) -> grpc.aio.StreamStreamMultiCallable[Any, Any]:
        """Return the callable of a method."""
        return _StreamStream(self._server, method)

    async def close(self, grace: float | None = None) -> None:
        """Do nothing: the server belongs to somebody else."""

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """Say that the channel is ready, which it always is."""
        return grpc.ChannelConnectivity.READY

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Wait for ever once ready: the state does not change."""
        if last_observed_state is grpc.ChannelConnectivity.READY:
            await asyncio.get_running_loop().create_future()

    async def channel_ready(self) -> None:
        """Return at once."""

    async def __aenter__(self) -> InProcessChannel:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
