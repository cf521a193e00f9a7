"""Channels to other services, with what every call needs: trace, deadline, credential, our errors.

`dial` opens a channel over a socket, `ClientChannel` wraps any channel, also an in-process one, so that
a service's code is the same whichever it was given.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from typing import Any, Final, TypeVar, cast

import grpc
import grpc.aio

from hopline_rpc import telemetry
from hopline_rpc.auth import AUTHORIZATION
from hopline_rpc.calls import current_call, remaining
from hopline_rpc.errors import from_rpc_error, too_late
from hopline_rpc.interceptors import REQUEST_ID
from hopline_rpc.tls import TlsSettings, balancing, require_safe

ChannelLike = grpc.aio.Channel
Pairs = tuple[tuple[str, str | bytes], ...]
Credentials = Callable[[], Awaitable[Pairs] | Pairs]
Start = Callable[[Pairs, float | None], Any]
M = TypeVar("M")

MAX_MESSAGE: Final = 8 * 1024 * 1024
# The next hop gets a little less, so that its answer is still of use to ours.
DEADLINE_MARGIN: Final = 0.05
# The server allows a ping every 10 s (`serving.SERVER_OPTIONS`); these must not be more eager.
CHANNEL_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_send_message_length", MAX_MESSAGE),
    ("grpc.max_metadata_size", 32 * 1024),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)


def dial(
    target: str,
    *,
    tls: TlsSettings | None = None,
    insecure: bool = False,
    credentials: Credentials | None = None,
) -> ClientChannel:
    """Open a channel to `host:port` or `unix:/path`; refuses plain text over a network.

    Of `dns:///host:port` and `ipv4:a:1,b:2` the calls go to all addresses in turn.
    """
    require_safe(target, tls, insecure=insecure, what="the address")
    channel: grpc.aio.Channel
    options = (*CHANNEL_OPTIONS, *balancing(target))
    if tls:
        # Imported by those who use it: most channels are loopback ones without TLS.
        from hopline_rpc.certificates import RenewingChannel

        channel = RenewingChannel(target, tls, options)
    else:
        channel = grpc.aio.insecure_channel(target, options)
    return ClientChannel(channel, credentials)


def bearer(credential: str | Callable[[], str]) -> Credentials:
    """Return credentials for a token, or for whatever a function returns at the moment of the call."""
    if isinstance(credential, str):
        fixed: Pairs = ((AUTHORIZATION, f"Bearer {credential}"),)
        return lambda: fixed
    return lambda: ((AUTHORIZATION, f"Bearer {credential()}"),)


class ClientChannel(grpc.aio.Channel):
    """A channel whose calls carry trace, request id, deadline and credential, and fail with `HoplineError`.

    Metadata given with a call wins over what the channel would add.
    """

    def __init__(self, channel: ChannelLike, credentials: Credentials | None = None) -> None:
        self._channel = channel
        self._credentials = credentials

    def unary_unary(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: bool | None = False,
    ) -> grpc.aio.UnaryUnaryMultiCallable[Any, Any]:
        """Return the callable of a method."""
        return self._method(self._channel.unary_unary, method, request_serializer, response_deserializer)

    def unary_stream(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: bool | None = False,
    ) -> grpc.aio.UnaryStreamMultiCallable[Any, Any]:
        """Return the callable of a method."""
        return self._method(self._channel.unary_stream, method, request_serializer, response_deserializer)

    def stream_unary(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: bool | None = False,
    ) -> grpc.aio.StreamUnaryMultiCallable[Any, Any]:
        """Return the callable of a method."""
        return self._method(self._channel.stream_unary, method, request_serializer, response_deserializer)

    def stream_stream(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: bool | None = False,
    ) -> grpc.aio.StreamStreamMultiCallable[Any, Any]:
        """Return the callable of a method."""
        return self._method(self._channel.stream_stream, method, request_serializer, response_deserializer)

    def _method(self, make: Callable[..., M], method: str, serializer: Any, deserializer: Any) -> M:
        inner: Any = make(method, serializer, deserializer, _registered_method=True)

        def call(
            request: Any = None,
            timeout: float | None = None,
            metadata: Any = None,
            credentials: grpc.CallCredentials | None = None,
            wait_for_ready: bool | None = None,
            compression: grpc.Compression | None = None,
            *,
            request_iterator: Any = None,
        ) -> ClientCall:
            given = request_iterator if request is None else request

            def start(pairs: Pairs, seconds: float | None) -> Any:
                return inner(given, timeout=seconds, metadata=pairs, wait_for_ready=wait_for_ready)

            return ClientCall(start, self._credentials, tuple(metadata or ()), timeout)

        return cast(M, call)

    async def close(self, grace: float | None = None) -> None:
        """Close the channel."""
        await self._channel.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """Return the connectivity."""
        return self._channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Wait for another connectivity."""
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """Wait until connected."""
        await self._channel.channel_ready()

    async def __aenter__(self) -> ClientChannel:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class ClientCall:
    """A call of any shape, with the interface of gRPC's own.

    It starts at once, as gRPC's do, unless its credentials have to be waited for: then with the first
    await, read or write.
    """

    def __init__(
        self, start: Start, credentials: Credentials | None, metadata: Pairs, timeout: float | None
    ) -> None:
        self._start = start
        self._metadata = metadata
        self._timeout = timeout
        self._call: Any = None
        self._cancelled = False
        self._callbacks: list[Callable[[Any], None]] = []
        self._starting: asyncio.Future[None] | None = None
        self._credentials: Awaitable[Pairs] | None = None
        found: Awaitable[Pairs] | Pairs = ()
        if credentials is not None and not any(key == AUTHORIZATION for key, _ in metadata):
            found = credentials()
        if isinstance(found, tuple):
            self._begin(found)
        else:
            self._credentials = found

    def __await__(self) -> Generator[Any, None, Any]:
        return self._response().__await__()

    async def _response(self) -> Any:
        call = self._call or await self._started()
        return await self._step(call)

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._iterate()

    async def _iterate(self) -> AsyncIterator[Any]:
        call = self._call or await self._started()
        responses = aiter(call)
        while (response := await self._step(anext(responses, grpc.aio.EOF))) is not grpc.aio.EOF:
            yield response

    async def read(self) -> Any:
        """Return the next response, `grpc.aio.EOF` after the last."""
        call = self._call or await self._started()
        return await self._step(call.read())

    async def write(self, request: Any) -> None:
        """Send a request."""
        call = self._call or await self._started()
        await self._step(call.write(request))

    async def _step(self, step: Awaitable[Any]) -> Any:
        """Await a step of the call, with our errors; who is cancelled meanwhile takes the call along.

        gRPC sees to that in most places, but not in the moment between two of its own awaits.
        """
        try:
            return await step
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error
        except asyncio.CancelledError:
            self.cancel()
            raise

    async def done_writing(self) -> None:
        """Say that no request follows."""
        await (await self._started()).done_writing()

    async def _started(self) -> Any:
        """Return the call underneath, starting it first where needed."""
        while self._call is None:
            if self._cancelled:
                raise asyncio.CancelledError
            if self._starting is not None:
                await asyncio.shield(self._starting)  # another task of this stream is starting it
                continue
            self._starting = asyncio.get_running_loop().create_future()
            try:
                found = await self._credentials if self._credentials is not None else ()
                if not self._cancelled:
                    self._begin(found)
            finally:
                self._starting.set_result(None)
                self._starting = None
        return self._call

    def _begin(self, credentials: Pairs) -> None:
        seconds = _seconds(self._timeout)
        call = self._start(_with_context(self._metadata, credentials), seconds)
        for callback in self._callbacks:
            call.add_done_callback(functools.partial(_call_back, callback, self))
        self._call = call

    def cancel(self) -> bool:
        """End the call."""
        if self._call is not None:
            return bool(self._call.cancel())
        self._cancelled = True
        if isinstance(self._credentials, Coroutine):
            self._credentials.close()  # nobody will await it
        return True

    def cancelled(self) -> bool:
        """Tell whether the call was cancelled."""
        return self._cancelled or (self._call is not None and self._call.cancelled())

    def done(self) -> bool:
        """Tell whether the call has its outcome."""
        return self._cancelled or (self._call is not None and self._call.done())

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call back when the call has its outcome."""
        if self._call is None:
            self._callbacks.append(callback)
        else:
            self._call.add_done_callback(functools.partial(_call_back, callback, self))

    def time_remaining(self) -> float | None:
        """Return the seconds left; None without a deadline."""
        return self._timeout if self._call is None else self._call.time_remaining()

    async def initial_metadata(self) -> Any:
        """Wait for the initial metadata."""
        return await (await self._started()).initial_metadata()

    async def trailing_metadata(self) -> Any:
        """Wait for the trailing metadata."""
        return await (await self._started()).trailing_metadata()

    async def code(self) -> grpc.StatusCode:
        """Wait for the outcome's code."""
        found: grpc.StatusCode = await (await self._started()).code()
        return found

    async def details(self) -> str:
        """Wait for the outcome's text."""
        return str(await (await self._started()).details())

    async def wait_for_connection(self) -> None:
        """Wait until the server has answered."""
        call = self._call or await self._started()
        await self._step(call.wait_for_connection())


def _with_context(given: Pairs, credentials: Pairs) -> Pairs:
    """Return the metadata of a call: what was given with it, its credential, its trace, its request id."""
    pairs = given + credentials
    keys = [key for key, _ in given]
    traceparent = telemetry.current_traceparent()
    if traceparent and telemetry.TRACEPARENT not in keys:
        pairs += ((telemetry.TRACEPARENT, traceparent),)
    call = current_call()
    if call is not None and REQUEST_ID not in keys:
        pairs += ((REQUEST_ID, call.request_id),)
    return pairs


def _call_back(callback: Callable[[Any], None], outer: Any, inner: Any) -> None:
    callback(outer)


def _seconds(timeout: float | None) -> float | None:
    """Return how long a call may take: what its caller allows, within what our own caller left us."""
    left = remaining()
    if left is None:
        return timeout
    left -= DEADLINE_MARGIN
    if left <= 0:
        raise too_late()
    return left if timeout is None else min(timeout, left)
