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
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import aclosing
from typing import Any, NoReturn, TypeAlias, cast

import grpc
import grpc.aio

from hopline_rpc.deadlines import Deadlines
from hopline_rpc.errors import HoplineError, to_status
from hopline_rpc.exchange import EOF, FINISHED, Exchange, Pairs, Status, copy
from hopline_rpc.inprocess_calls import (
    Call,
    StreamRequest,
    StreamStreamCall,
    StreamUnaryCall,
    UnaryStreamCall,
    UnaryUnaryCall,
)
from hopline_rpc.interceptors import Handler, InProcess, Interceptor
from hopline_rpc.rules import Rules, rules_of_service

log = logging.getLogger("hopline.inprocess")

# Generic in their type stubs only, hence the quotes.
UnaryUnary: TypeAlias = "grpc.aio.UnaryUnaryMultiCallable[Any, Any]"
UnaryStream: TypeAlias = "grpc.aio.UnaryStreamMultiCallable[Any, Any]"
StreamUnary: TypeAlias = "grpc.aio.StreamUnaryMultiCallable[Any, Any]"
StreamStream: TypeAlias = "grpc.aio.StreamStreamMultiCallable[Any, Any]"


class InProcessContext(InProcess):
    """What a handler gets as its `context`."""

    def __init__(self, exchange: Exchange) -> None:
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
        await self._exchange.offer(copy(message))

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
        self._exchange.finish(Status(code, self._details, self._trailing))
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
        self._exchange.finish(Status(code, self._details, self._trailing, response))

    def fail(self, error: BaseException) -> None:
        """End the call whose handler raised what no interceptor caught."""
        code = self._code or grpc.StatusCode.UNKNOWN
        self._exchange.finish(Status(code, f"Unexpected {type(error)}: {error}", self._trailing))

    def _check(self) -> None:
        if self._aborted is not None:
            raise self._aborted
        if self._exchange.status is not None:
            raise grpc.aio.UsageError(FINISHED)


async def _requests(context: InProcessContext) -> AsyncIterator[Any]:
    while (request := await context.read()) is not EOF:
        yield request


async def _run(handler: Handler, request: Any, exchange: Exchange) -> None:
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
            context.complete(copy(response) if response is not None else None)
    except grpc.aio.AbortError:
        pass
    except asyncio.CancelledError:
        exchange.finish(Status(grpc.StatusCode.CANCELLED, "the handler was cancelled", ()))
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
    async with aclosing(behaviour(given, context)) as responses:
        async for response in responses:
            await context.write(response)


class InProcessServer(grpc.aio.Server):
    """Holds servicers for calls inside the process."""

    def __init__(self, interceptor: Interceptor | None = None) -> None:
        self._interceptor = interceptor
        self._stopping = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._deadlines: Deadlines[Exchange] = Deadlines()
        self.services: list[str] = []
        # By path; a socket server finds them here too.
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
        self.services.append(service_name)
        for name, handler in method_handlers.items():
            path = f"/{service_name}/{name}"
            self.handlers[path] = self._wrap(path, handler, rules[name])

    def _wrap(self, path: str, handler: Handler, rules: Rules) -> Handler:
        return handler if self._interceptor is None else self._interceptor.wrap(path, handler, rules)

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """Accept and ignore: generated code registers the same handlers by method as well."""

    def channel(self) -> InProcessChannel:
        """Return a channel for generated stubs."""
        return InProcessChannel(self)

    def begin(self, path: str, request: Any, metadata: Pairs, timeout: float | None) -> Exchange:
        """Start a call."""
        exchange = Exchange(metadata, timeout)
        handler = self.handlers.get(path)
        if handler is None:
            exchange.finish(Status(grpc.StatusCode.UNIMPLEMENTED, "Method not found!", ()))
        elif self._stopping:
            wire = to_status(HoplineError("unavailable", "the service is shutting down"))
            exchange.finish(Status(wire.code, wire.message, wire.trailing_metadata))
        elif timeout is not None and timeout <= 0:
            exchange.finish(Status(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", ()))
        else:
            # A context of its own: the caller's identity, deadline and trace are not the handler's.
            task = exchange.loop.create_task(_run(handler, request, exchange), context=contextvars.Context())
            exchange.handler = task
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            if exchange.deadline is not None:
                exchange.deadlines = self._deadlines
                self._deadlines.add(exchange)
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
    ) -> UnaryUnary:
        """Return the callable of a method."""
        return cast(UnaryUnary, self._with_request(method, UnaryUnaryCall))

    def unary_stream(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: bool | None = False,
    ) -> UnaryStream:
        """Return the callable of a method."""
        return cast(UnaryStream, self._with_request(method, UnaryStreamCall))

    def stream_unary(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: bool | None = False,
    ) -> StreamUnary:
        """Return the callable of a method."""
        return cast(StreamUnary, self._with_requests(method, StreamUnaryCall))

    def stream_stream(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: bool | None = False,
    ) -> StreamStream:
        """Return the callable of a method."""
        return cast(StreamStream, self._with_requests(method, StreamStreamCall))

    def _with_request(self, method: str, make: type[Call]) -> Callable[..., Call]:
        def call(
            request: Any,
            *,
            timeout: float | None = None,
            metadata: Any = None,
            credentials: grpc.CallCredentials | None = None,
            wait_for_ready: bool | None = None,
            compression: grpc.Compression | None = None,
        ) -> Call:
            return make(self._server.begin(method, copy(request), tuple(metadata or ()), timeout))

        return call

    def _with_requests(self, method: str, make: type[StreamRequest]) -> Callable[..., Call]:
        def call(
            request_iterator: Any = None,
            timeout: float | None = None,
            metadata: Any = None,
            credentials: grpc.CallCredentials | None = None,
            wait_for_ready: bool | None = None,
            compression: grpc.Compression | None = None,
        ) -> Call:
            begun = make(self._server.begin(method, None, tuple(metadata or ()), timeout))
            begun.feed(request_iterator)
            return begun

        return call

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
