"""What happens around every call: tracing, deadline, log and metrics, errors, authentication, validation.

One object does it, in that order, for calls over sockets and inside the process alike. It wraps each
handler once, when its servicer is registered, so that a call costs no look-ups, no chain of objects
and no second coroutine per step.

Handlers of streaming requests must read from the iterator they are given (`context.read()` would pass
by validation). Handlers that stream responses may be async generators or write to the context.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final, NamedTuple, TypeAlias

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message
from opentelemetry.trace import Span

from hopline_rpc import telemetry
from hopline_rpc.auth import Authenticator
from hopline_rpc.calls import CallInfo, LiveCalls, current_call, set_current_call
from hopline_rpc.errors import HoplineError, from_rpc_error, internal, to_status, unauthenticated
from hopline_rpc.ids import IdMaker
from hopline_rpc.rules import Rules
from hopline_rpc.stats import MethodStats, RpcStats
from hopline_rpc.validation import check

log = logging.getLogger("hopline.rpc")

REQUEST_ID: Final = "hopline-request-id"
_MAX_REQUEST_ID: Final = 100

# Generic in its type stubs only, hence the quotes.
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Context = Any  # grpc.aio's context or the in-process one: the same interface, no common class
Behaviour = Callable[[Any, Context], Any]
Run = Callable[[Any, Context], Awaitable[Any]]
Refused = Callable[[CallInfo, HoplineError], None]


# Failures that people should see in a log; refusals are answers.
_OUR_FAILURES: Final = frozenset({"internal", "unavailable", "deadline_exceeded"})


class Outcome(NamedTuple):
    """How a call ended: the gRPC code's name, and the reason when it did not succeed."""

    code: str
    reason: str | None


_OK: Final = Outcome("OK", None)


@dataclass(frozen=True, slots=True)
class Method:
    """A registered method and what is kept about it."""

    path: str
    rules: Rules
    stats: MethodStats
    streaming: bool
    run: Run


class Interceptor:
    """Wraps the handlers of one server."""

    def __init__(
        self,
        service: str,
        authenticator: Authenticator | None,
        ids: IdMaker,
        refused: Refused | None = None,
    ) -> None:
        self._refused = refused
        self._authenticator = authenticator
        self._ids = ids
        self._spans = telemetry.RpcSpans(service)
        self.stats = RpcStats()
        self.live = LiveCalls()

    def wrap(self, path: str, handler: Handler, rules: Rules) -> Handler:
        """Return a handler of the same shape that does everything around a call."""
        streaming = handler.request_streaming or handler.response_streaming
        method = Method(path, rules, self.stats.method(path), bool(streaming), _runner(handler))

        async def serve(request: Any, context: Context) -> Any:
            return await self._serve(method, request, context)

        return _like(handler, serve)

    async def _serve(self, method: Method, request: Any, context: Context) -> Any:
        """Serve one call."""
        started = perf_counter()
        metadata: Mapping[str, Any] = dict(context.invocation_metadata() or ())
        edge = method.rules.traced and not isinstance(context, InProcess)
        span = self._spans.start(method.path, metadata.get(telemetry.TRACEPARENT), edge=edge)
        call = self._open(method, metadata)
        _set_deadline(call, method, context)
        error: HoplineError | None = None
        outcome = _OK
        self.live.add(call)
        try:
            await self._authenticate(method, call, metadata)
            return await method.run(request, context)
        except HoplineError as refusal:
            error = refusal
        except grpc.aio.AbortError:
            outcome = _aborted(context)
            raise
        except asyncio.CancelledError:
            error = call.ended()
            if error is None:
                outcome = _gone(call)
                raise
        except grpc.aio.AioRpcError as failure:
            error = from_rpc_error(failure)
        except Exception as unexpected:
            if isinstance(unexpected, grpc.aio.BaseError) and _is_gone(context):
                # Its cancellation came between two steps of the handler, which went on and found nobody.
                outcome = _gone(call)
                raise asyncio.CancelledError from None
            error = internal(unexpected, log)
        finally:
            self.live.discard(call)
            call.finish()
            if error is not None:
                outcome = Outcome(error.code.name, error.reason)
                if self._refused is not None:
                    self._refused(call, error)
            self._close(method, call, perf_counter() - started, span, outcome)
        await call.settle()
        wire = to_status(error)
        del error  # its traceback holds this frame: a cycle for the collector with every refusal
        return await context.abort(wire.code, wire.message, trailing_metadata=wire.trailing_metadata)

    def _open(self, method: Method, metadata: Mapping[str, Any]) -> CallInfo:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a handler runs in a task")
        given = metadata.get(REQUEST_ID)
        if isinstance(given, str) and 0 < len(given) <= _MAX_REQUEST_ID and given.isprintable():
            request_id = given
        else:
            request_id = ""
        call = CallInfo(method.path, request_id, self._ids, task, streaming=method.streaming)
        set_current_call(call)
        return call

    async def _authenticate(self, method: Method, call: CallInfo, metadata: Mapping[str, Any]) -> None:
        rules = method.rules
        if rules.public:
            return
        if self._authenticator is None:
            raise unauthenticated()
        identity = await self._authenticator.identify(metadata)
        call.principal, call.subject = identity
        if identity.principal.kind not in rules.allow:
            raise HoplineError("permission_denied", "this kind of caller may not use this method")

    def _close(
        self, method: Method, call: CallInfo, seconds: float, span: Span | None, outcome: Outcome
    ) -> None:
        """Count, trace and log a finished call."""
        reason = outcome.reason
        method.stats.record(seconds, reason)
        if span is not None:
            telemetry.end_rpc_span(span, outcome.code, reason)
        # What this service ended itself, when it drains for one, is no failure.
        worth_a_look = reason in _OUR_FAILURES and method.rules.traced and call.ending is None
        level = logging.WARNING if worth_a_look else logging.DEBUG
        if log.isEnabledFor(level):
            log.log(
                level,
                "%s %s",
                method.path,
                reason or "ok",
                extra={
                    "method": method.path,
                    "reason": reason or "ok",
                    "milliseconds": round(seconds * 1000, 3),
                    "request_id": call.request_id,
                    "caller": call.principal.id if call.principal is not None else "",
                },
            )


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Stands for a request whose bytes are no message of its type: gRPC would answer with our internals."""

    problem: str

    def error(self) -> HoplineError:
        """Return the refusal that it is answered with."""
        return HoplineError("invalid_argument", self.problem)


class StreamContext:
    """The context, over a socket, of a handler that writes its responses itself."""

    def __init__(self, context: Context, call: CallInfo) -> None:
        self._context = context
        self._call = call

    async def write(self, message: Any) -> None:
        """Send a response."""
        await self._call.write_apart(self._context, message)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


class InProcess:
    """Marks the contexts of calls that never left the process."""


def _set_deadline(call: CallInfo, method: Method, context: Context) -> None:
    """Hold the handler to the caller's deadline, or to the method's own where the caller set none."""
    seconds = context.time_remaining()
    if seconds is None:
        if method.streaming:
            return
        seconds = method.rules.deadline
    call.deadline = asyncio.get_running_loop().time() + seconds


def _is_gone(context: Context) -> bool:
    """Tell whether the caller of the call being served has left."""
    task = asyncio.current_task()
    return bool(context.done()) or (task is not None and task.cancelling() > 0)


def _gone(call: CallInfo) -> Outcome:
    """Say why gRPC cancelled a handler: the caller's time was over, or the caller is gone."""
    if call.deadline is not None and asyncio.get_running_loop().time() >= call.deadline:
        return Outcome("DEADLINE_EXCEEDED", "deadline_exceeded")
    return Outcome("CANCELLED", "cancelled")


def _aborted(context: Context) -> Outcome:
    """Describe what a handler aborted with by itself; only its code is known."""
    code = context.code() or grpc.StatusCode.UNKNOWN
    return Outcome(code.name, code.name.lower())


# --- the four shapes of a call -------------------------------------------------------------------


def _runner(handler: Handler) -> Run:
    """Return what validates and runs a handler, whatever its shape."""
    if handler.response_streaming:
        behaviour: Any = handler.stream_stream if handler.request_streaming else handler.unary_stream
        return _streaming_runner(behaviour, many=bool(handler.request_streaming))
    behaviour = handler.stream_unary if handler.request_streaming else handler.unary_unary
    return _unary_runner(behaviour, many=bool(handler.request_streaming))


def _unary_runner(behaviour: Behaviour, *, many: bool) -> Run:
    async def run_one(request: Message | Unreadable, context: Context) -> Any:
        return await behaviour(_readable(request), context)

    async def run_many(requests: AsyncIterator[Message], context: Context) -> Any:
        async with aclosing(_checked(requests)) as checked:
            return await behaviour(checked, context)

    return run_many if many else run_one


def _streaming_runner(behaviour: Behaviour, *, many: bool) -> Run:
    generates = inspect.isasyncgenfunction(behaviour)

    async def respond(request: Any, context: Context) -> None:
        # Inside the process no message is ever under way: a status can follow at any moment.
        call = None if isinstance(context, InProcess) else current_call()
        if not generates:
            await behaviour(request, context if call is None else StreamContext(context, call))
            return
        # Closed here and now, not whenever it is collected: its `finally` belongs to this call.
        async with aclosing(behaviour(request, context)) as responses:
            if call is None:
                async for response in responses:
                    await context.write(response)
                return
            call.responses = responses
            async for response in responses:
                await call.write(context, response)

    async def run_one(request: Message | Unreadable, context: Context) -> None:
        await respond(_readable(request), context)

    async def run_many(requests: AsyncIterator[Message], context: Context) -> None:
        async with aclosing(_checked(requests)) as checked:
            await respond(checked, context)

    return run_many if many else run_one


async def _checked(requests: AsyncIterator[Message | Unreadable]) -> Any:
    async for request in requests:
        yield _readable(request)


def _reader(read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Return a deserializer that leaves it to the handler's side to say what is wrong with the bytes."""

    def reader(data: bytes) -> Any:
        try:
            return read(data)
        except DecodeError as error:
            return Unreadable(_NOT_UTF8 if "UTF-8" in str(error) else _NOT_A_MESSAGE)

    return reader


_NOT_UTF8: Final = "a text in the request is not valid UTF-8 (a lone surrogate, perhaps)"
_NOT_A_MESSAGE: Final = "the request is no message of the type that this method takes"


def _readable(request: Message | Unreadable) -> Message:
    """Return a request that keeps to the limits of the contract; anything else is refused."""
    if isinstance(request, Unreadable):
        raise request.error()
    check(request)
    return request


def _like(handler: Handler, serve: Behaviour) -> Handler:
    """Build a handler with another behaviour and the same shape and serializers."""
    make: Any = {
        (False, False): grpc.unary_unary_rpc_method_handler,
        (False, True): grpc.unary_stream_rpc_method_handler,
        (True, False): grpc.stream_unary_rpc_method_handler,
        (True, True): grpc.stream_stream_rpc_method_handler,
    }[bool(handler.request_streaming), bool(handler.response_streaming)]
    read = handler.request_deserializer
    wrapped: Handler = make(serve, read and _reader(read), handler.response_serializer)
    return wrapped
