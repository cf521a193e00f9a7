"""Calling a plugin at the gRPC endpoint of its manifest: events, tools and hooks all go through here.

For each plugin one channel, dialled when it is first needed and kept: the name is resolved once, the address
checked (loopback and private ones only where the relay's settings allow them) and called just there, with TLS
unless it is this machine. Every call carries the bearer secret of the installation, which only the registry
hands out. A lane is a kind of call (`events`, `tools`, a hook); each has its own bound of calls at once, so
that slow tools hold no hook up, and waiting for a place counts within the call's own time::

    await calls.call(plugin, HookServiceStub, "InterAgentMessage", request, seconds=2.0, lane="hooks")

What goes wrong is a `CallFailed`, whose `kind` tells it apart; it never holds a word of gRPC's own.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Protocol

import grpc
import grpc.aio
from hopline_rpc import telemetry
from hopline_rpc.auth import AUTHORIZATION
from hopline_rpc.calls import detach
from hopline_rpc.certificates import channel_credentials
from hopline_rpc.clock import Clock
from hopline_rpc.errors import HoplineError
from hopline_rpc.tls import TlsSettings

from hopline_relay.domain.notices import may_call

log = logging.getLogger("hopline.relay.plugins")

# Bounds of calls at once, by lane.
LANES: Final[Mapping[str, int]] = {"events": 1, "tools": 32, "hooks": 64}
MAX_BYTES: Final = 1024 * 1024
_MOST_CHANNELS: Final = 256
_RESOLVE_SECONDS: Final = 5.0
_MAX_WORDS: Final = 500
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_BYTES),
    ("grpc.max_send_message_length", MAX_BYTES),
    ("grpc.max_metadata_size", 16 * 1024),
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    # Else a fresh channel would wait as long as the one before it.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
)

Kind = Literal["unreachable", "late", "unimplemented", "invalid", "failed"]


class CallFailed(Exception):  # noqa: N818 - the call has failed, which is data for whoever made it
    """A plugin did not answer, or answered with an error.

    `unreachable`: nothing listens, or it may not be called; `late`: its time was over; `unimplemented`;
    `invalid`: it refuses the request; `failed`: everything else, a wrong secret included. `words` are for the
    log, and may be shown to a model. `sent`: the plugin may have seen the call, and it may have had effects.
    """

    def __init__(self, kind: Kind, words: str, *, sent: bool) -> None:
        super().__init__(words)
        self.kind: Kind = kind
        self.words = words
        self.sent = sent


class Callee(Protocol):
    """What is known of a plugin that is called; the directory's record is one."""

    @property
    def id(self) -> str:
        """Its id."""
        ...

    @property
    def workspace_id(self) -> str:
        """Its workspace."""
        ...

    @property
    def endpoint(self) -> str:
        """`host:port`."""
        ...


Secret = Callable[[Callee], Awaitable[str]]
"""Returns the secret of an installation, asked of the registry."""


class _Line(NamedTuple):
    """An open channel, for the endpoint it was dialled for."""

    endpoint: str
    channel: grpc.aio.Channel
    secret: str


@dataclass(slots=True)
class _Plugin:
    """What is kept of a plugin between calls."""

    line: _Line | None = None
    dialling: asyncio.Lock = field(default_factory=asyncio.Lock)
    lanes: dict[str, asyncio.Semaphore] = field(default_factory=dict)
    calls: int = 0

    def lane(self, name: str) -> asyncio.Semaphore:
        """Return the places of a lane."""
        if name not in self.lanes:
            self.lanes[name] = asyncio.Semaphore(LANES[name])
        return self.lanes[name]


class PluginCalls:
    """Calls plugins; one for each process."""

    def __init__(
        self,
        secret: Secret,
        clock: Clock,
        *,
        loopback: bool,
        private: bool,
        tls: TlsSettings | None = None,
    ) -> None:
        self._secret = secret
        self._clock = clock
        self._loopback = loopback
        self._private = private
        self._tls = tls
        self._plugins: OrderedDict[str, _Plugin] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    async def call(
        self,
        plugin: Callee,
        stub: Callable[[grpc.aio.Channel], Any],
        method: str,
        request: Any,
        *,
        seconds: float,
        lane: str,
    ) -> Any:
        """Make a call and return the answer; raises `CallFailed`. Cancelling this cancels it there."""
        kept = self._kept(plugin)
        ends_at = self._clock.monotonic() + seconds
        kept.calls += 1
        try:
            try:
                async with asyncio.timeout(seconds):
                    await kept.lane(lane).acquire()
            except TimeoutError:
                text = f"it runs {LANES[lane]} calls at once, and none has ended in time"
                raise CallFailed("late", text, sent=False) from None
            try:
                return await self._made(plugin, kept, stub, method, request, ends_at)
            finally:
                kept.lane(lane).release()
        finally:
            kept.calls -= 1

    def forget(self, plugin_id: str) -> None:
        """Dial anew at the next call: the plugin has changed, or is no more."""
        kept = self._plugins.get(plugin_id)
        if kept is not None:
            self._hang_up(kept)
            if not kept.calls:
                del self._plugins[plugin_id]

    async def close(self) -> None:
        """Close every channel; calls that run fail."""
        for kept in self._plugins.values():
            self._hang_up(kept)
        self._plugins.clear()
        while self._closing:
            await asyncio.wait(set(self._closing))

    # --- calling ----------------------------------------------------------------------------------

    async def _made(
        self,
        plugin: Callee,
        kept: _Plugin,
        stub: Callable[[grpc.aio.Channel], Any],
        method: str,
        request: Any,
        ends_at: float,
    ) -> Any:
        """Make a call; where it did not get as far as the plugin, once more on a fresh channel.

        Its address or its secret may be another one by now, and a channel that has lost its plugin waits a
        while before it looks whether that is back.
        """
        for last in (False, True):
            line = await self._line(plugin, kept, ends_at - self._clock.monotonic())
            left = ends_at - self._clock.monotonic()
            if left <= 0:
                raise CallFailed("late", "it could not be reached in time", sent=False)
            try:
                return await getattr(stub(line.channel), method)(
                    request, timeout=left, metadata=_metadata(line.secret)
                )
            except grpc.aio.AioRpcError as error:
                failed = _failure(error)
                if failed.kind == "unreachable" or not failed.sent:
                    self._drop(kept, line)
                if failed.sent or last:
                    raise failed from None
        raise AssertionError  # the second round returns or raises

    async def _line(self, plugin: Callee, kept: _Plugin, seconds: float) -> _Line:
        """Return an open channel to the plugin's endpoint of now."""
        async with kept.dialling:
            line = kept.line
            if line is not None and line.endpoint == plugin.endpoint:
                return line
            self._hang_up(kept)
            try:
                async with asyncio.timeout(min(seconds, _RESOLVE_SECONDS)):
                    secret = await self._secret(plugin)
                    address = await self._resolve(plugin.endpoint)
            except TimeoutError:
                raise CallFailed("late", "its address could not be found in time", sent=False) from None
            except HoplineError as error:
                raise CallFailed(
                    "unreachable", f"its secret is not at hand: {error.reason}", sent=False
                ) from None
            except (OSError, ValueError):
                raise CallFailed("unreachable", "its address is not known", sent=False) from None
            if address is None:
                raise CallFailed("unreachable", "its address may not be called", sent=False)
            kept.line = line = _Line(plugin.endpoint, self._dialled(plugin.endpoint, *address), secret)
            return line

    async def _resolve(self, endpoint: str) -> tuple[str, int] | None:
        """Return the address to call: the first one, if all that the name stands for may be called."""
        host, port = parts(endpoint)
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = [str(sockaddr[0]) for *_, sockaddr in found]
        allowed = all(may_call(each, loopback=self._loopback, private=self._private) for each in addresses)
        return (addresses[0], port) if addresses and allowed else None

    def _dialled(self, endpoint: str, address: str, port: int) -> grpc.aio.Channel:
        """Open a channel to the very address that was checked."""
        target = f"ipv6:[{address}]:{port}" if ":" in address else f"ipv4:{address}:{port}"
        if _is_loopback(address):
            return grpc.aio.insecure_channel(target, _OPTIONS)
        host, _ = parts(endpoint)
        named = (("grpc.ssl_target_name_override", host), ("grpc.default_authority", host))
        credentials = channel_credentials(self._tls) if self._tls else grpc.ssl_channel_credentials()
        return grpc.aio.secure_channel(target, credentials, (*_OPTIONS, *named))

    # --- keeping ----------------------------------------------------------------------------------

    def _kept(self, plugin: Callee) -> _Plugin:
        kept = self._plugins.get(plugin.id)
        if kept is None:
            kept = self._plugins[plugin.id] = _Plugin()
        self._plugins.move_to_end(plugin.id)
        if len(self._plugins) > _MOST_CHANNELS:
            idle = next(
                (key for key, each in self._plugins.items() if not each.calls and each is not kept), None
            )
            if idle is not None:
                self._hang_up(self._plugins.pop(idle))
        return kept

    def _drop(self, kept: _Plugin, line: _Line) -> None:
        if kept.line is line:
            self._hang_up(kept)

    def _hang_up(self, kept: _Plugin) -> None:
        """Let go of a channel; calls that run on it end by themselves."""
        if kept.line is None:
            return
        channel, kept.line = kept.line.channel, None
        task = detach(channel.close(grace=60.0), name="close a plugin's channel")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


def parts(endpoint: str) -> tuple[str, int]:
    """Return host and port of `host:port` or `[v6]:port`; raises ValueError."""
    host, colon, port = endpoint.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
        raise ValueError(f"{endpoint!r} is no host:port")
    return host, int(port)


def _is_loopback(address: str) -> bool:
    return address == "::1" or address.startswith("127.")


def _metadata(secret: str) -> tuple[tuple[str, str], ...]:
    traceparent = telemetry.current_traceparent()
    found: tuple[tuple[str, str], ...] = ((AUTHORIZATION, f"Bearer {secret}"),)
    return (*found, (telemetry.TRACEPARENT, traceparent)) if traceparent else found


_UNREACHABLE: Final = frozenset({grpc.StatusCode.UNAVAILABLE})
_INVALID: Final = frozenset(
    {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE, grpc.StatusCode.FAILED_PRECONDITION}
)


def _failure(error: grpc.aio.AioRpcError) -> CallFailed:
    """Tell apart what gRPC says of a call that has failed."""
    code = error.code()
    if code in _UNREACHABLE:
        # Only where there was no connection at all is it certain that the request was not on its way.
        sent = "failed to connect" not in (error.details() or "").lower()
        return CallFailed("unreachable", "it cannot be reached", sent=sent)
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return CallFailed("late", "it did not answer in time", sent=True)
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return CallFailed("unimplemented", "it does not implement this", sent=True)
    if code is grpc.StatusCode.UNAUTHENTICATED:
        return CallFailed("failed", "it does not accept the secret of this installation", sent=False)
    kind: Kind = "invalid" if code in _INVALID else "failed"
    return CallFailed(kind, f"it answered {code.name}{_said(error.details())}", sent=True)


def _said(details: str | None) -> str:
    text = (details or "").replace("\0", "\N{REPLACEMENT CHARACTER}").strip()
    return f": {text[:_MAX_WORDS]}" if text else ""
