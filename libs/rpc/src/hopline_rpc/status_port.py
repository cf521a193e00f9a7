"""The port on which a process says how it is: `/metrics`, `/healthz`, `/readyz`; for whoever runs it.

A port of its own, not the gateway's: that one is often reached through a proxy on the same machine, so
that nothing tells a stranger from a neighbour. Loopback unless told otherwise, and there only under a
loopback name: a web page that has its own name point here is sent away.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from hopline_rpc.certificates import server_context
from hopline_rpc.errors import HoplineError
from hopline_rpc.serving import PortInUseError
from hopline_rpc.tls import TlsSettings, host_of, is_local, require_safe

if TYPE_CHECKING:
    import h11

log = logging.getLogger("hopline.status")

# A scraper sends one short head, and one comes at a time.
_HEAD_SECONDS: Final = 5.0
_IDLE_SECONDS: Final = 75.0
_MAX_CONNECTIONS: Final = 32
_READ: Final = 4096

Asked = Mapping[str, str]
"""The headers of a request, their names in lower case."""


class Answer(NamedTuple):
    """What a path answers with."""

    status: int
    content_type: str
    body: bytes


def as_text(status: int, text: str) -> Answer:
    """Return a line of text."""
    return Answer(status, "text/plain; charset=utf-8", f"{text}\n".encode())


def as_json(status: int, found: object) -> Answer:
    """Return something as JSON."""
    return Answer(status, "application/json", json.dumps(found, indent=1).encode() + b"\n")


Answering = Callable[[Asked], Awaitable[Answer]]


class StatusPort:
    """Serves a few paths to a few readers."""

    def __init__(self, paths: Mapping[str, Answering], tls: TlsSettings | None, *, insecure: bool) -> None:
        self._paths = paths
        self._tls = tls or None
        self._insecure = insecure
        self._only_local = True
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self, bind: str) -> str:
        """Listen on `host:port` and return the URL, with the real number for port 0."""
        require_safe(bind, self._tls, insecure=self._insecure, what="the address for metrics")
        host, port = host_of(bind), bind.rpartition(":")[2]
        if not host or not port.isdigit() or int(port) > 65535:
            raise HoplineError("invalid_argument", f"HOPLINE_METRICS: {bind} is not host:port")
        self._only_local = is_local(bind)
        try:
            self._server = await asyncio.start_server(
                self._connected,
                host,
                int(port),
                ssl=server_context(self._tls) if self._tls else None,
                limit=_READ,
                backlog=16,
            )
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise PortInUseError(bind) from None
            raise HoplineError("failed_precondition", f"cannot listen on {bind}: {error.strerror}") from None
        found: socket.socket = self._server.sockets[0]
        scheme = "https" if self._tls else "http"
        return f"{scheme}://{bind.rpartition(':')[0]}:{found.getsockname()[1]}"

    async def stop(self) -> None:
        """Close the port and what is open on it."""
        if self._server is None:
            return
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        if self._connections:
            await asyncio.wait(self._connections)
        self._server = None

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(self._connections) >= _MAX_CONNECTIONS:
            writer.close()
            return
        self._connections.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            pass  # it has gone, or takes too long
        except asyncio.CancelledError:
            if task.cancelling() == 0:
                raise
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request after the other, until it is enough."""
        import h11  # known to few processes before the first scrape

        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=16 * 1024)
        waits = _HEAD_SECONDS
        while True:
            with_body = True
            try:
                async with asyncio.timeout(waits):
                    request = await _next_request(connection, reader)
                if request is None:
                    return
                with_body = request.method != b"HEAD"
                answer = await self._answer(request)
            except h11.RemoteProtocolError as error:
                if connection.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
                    return
                answer = as_text(error.error_status_hint, "this is no request")
            writer.write(_written(connection, answer, with_body=with_body))
            await writer.drain()
            if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
                return
            connection.start_next_cycle()
            waits = _IDLE_SECONDS

    async def _answer(self, request: h11.Request) -> Answer:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in request.headers}
        if self._only_local and not is_local(headers.get("host", "")):
            return as_text(421, "the header Host names another site than this process")
        answering = self._paths.get(request.target.partition(b"?")[0].decode("latin-1"))
        if answering is None:
            return as_text(404, f"there is nothing here; there are {' '.join(self._paths)}")
        if request.method not in {b"GET", b"HEAD"}:
            return as_text(405, "only GET is for this path")
        try:
            return await answering(headers)
        except Exception:
            log.exception("%s could not be answered", request.target.decode("latin-1")[:64])
            return as_text(500, "this could not be found out; the log says why")


async def _next_request(connection: h11.Connection, reader: asyncio.StreamReader) -> h11.Request | None:
    """Read one request to its end; None when the other side has no more."""
    import h11

    request: h11.Request | None = None
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await reader.read(_READ))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.EndOfMessage):
            return request
        elif isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
            return None


def _written(connection: h11.Connection, answer: Answer, *, with_body: bool) -> bytes:
    import h11

    head = h11.Response(
        status_code=answer.status,
        headers=[
            ("content-type", answer.content_type),
            ("content-length", str(len(answer.body))),
            ("cache-control", "no-store"),
            ("x-content-type-options", "nosniff"),
        ],
    )
    sent = connection.send(head) or b""
    body = connection.send(h11.Data(answer.body)) or b"" if with_body else b""
    return sent + body + (connection.send(h11.EndOfMessage()) or b"")
