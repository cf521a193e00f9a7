"""The HTTP server: uvicorn on one port, bounded against clients that dawdle."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import socket
from collections.abc import Iterator
from typing import Any, Final

import uvicorn
from hopline_rpc.certificates import server_context
from hopline_rpc.errors import HoplineError
from hopline_rpc.serving import PortInUseError
from hopline_rpc.tls import TlsSettings, host_of, require_safe
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from hopline_web.settings import WebSettings

_KEEP_ALIVE_SECONDS: Final = 60
# Uvicorn counts on ten ticks a second.
_TICK_SECONDS: Final = 0.1


class Listener:
    """Serves one application until it is stopped."""

    def __init__(self, app: ASGIApp, settings: WebSettings) -> None:
        self._app = app
        self._settings = settings
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self, bind: str) -> str:
        """Open `host:port` and return the URL, with the real number for port 0."""
        settings = self._settings
        tls = settings.tls
        require_safe(bind, tls, insecure=settings.insecure, what="the address")
        opened = open_socket(bind)
        self._server = _Server(_config(self._app, settings, tls))
        self._task = asyncio.create_task(self._server.serve(sockets=[opened]), name="http")
        up = asyncio.create_task(self._server.up.wait())
        await asyncio.wait({self._task, up}, return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            up.cancel()
            await self._task
        return f"{'https' if tls else 'http'}://{bind.rpartition(':')[0]}:{opened.getsockname()[1]}"

    async def stop(self) -> None:
        """Take no new connections, give running requests their time, then end them."""
        if self._server is None or self._task is None:
            return
        self._server.should_exit = True
        self._server.leaving.set()
        await self._task
        self._server = self._task = None


def open_socket(bind: str) -> socket.socket:
    """Bind `host:port`, or say in one line why not."""
    host, port = host_of(bind), bind.rpartition(":")[2]
    if not host or not port.isdigit() or int(port) > 65535:
        raise HoplineError("invalid_argument", f"cannot listen on {bind}: not host:port")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Only with the protocol named does asyncio switch off Nagle's algorithm, which costs 40 ms an answer.
    opened = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((host, int(port)))
        # Claimed from now on: uvicorn listens only once the application has started.
        opened.listen(2048)
    except OSError as error:
        opened.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUseError(bind) from None
        raise HoplineError("failed_precondition", f"cannot listen on {bind}: {error.strerror}") from None
    return opened


def _config(app: ASGIApp, settings: WebSettings, tls: TlsSettings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=_protocol(settings.head_seconds),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=math.ceil(settings.drain_seconds),
        limit_concurrency=settings.max_connections,
        ssl_context_factory=(lambda *_: server_context(tls)) if tls else None,
    )


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()
        self.leaving = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to whoever runs the process."""
        yield

    async def main_loop(self) -> None:
        """Tick as uvicorn does (it keeps the Date header), but leave at once when told to."""
        ticks = 0
        while not await self.on_tick(ticks):
            ticks += 1
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.leaving.wait(), _TICK_SECONDS)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        try:
            await super().startup(sockets)
        except SystemExit:
            # Meant for a process that is uvicorn's own; ours has other services in it.
            raise RuntimeError("the HTTP application did not start") from None
        self.up.set()


def _protocol(seconds: float) -> type[HttpToolsProtocol]:
    """Return uvicorn's protocol with a limit on how long a request's head may take."""

    class Bounded(HttpToolsProtocol):
        """Closes connections whose next request does not get to the end of its head in time."""

        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            """Begin to count with the connection."""
            super().connection_made(transport)
            self._expect_head()

        def on_message_begin(self) -> None:
            """Begin to count with each further request's first byte."""
            super().on_message_begin()
            self._expect_head()

        def on_headers_complete(self) -> None:
            """Stop counting."""
            self._stop_counting()
            super().on_headers_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            """Stop counting."""
            self._stop_counting()
            super().connection_lost(exc)

        def _expect_head(self) -> None:
            self._stop_counting()
            self._timer = self.loop.call_later(seconds, self.transport.close)

        def _stop_counting(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    return Bounded
