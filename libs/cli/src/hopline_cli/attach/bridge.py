"""A session's socket: what comes in there goes to the gateway as this agent in this session.

Whatever the command says of itself is left behind: only headers that describe the message go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final

import aiohttp
from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage
from hopline_rpc.errors import HoplineError

_MAX_BODY: Final = 4 * 1024 * 1024
_CHUNK: Final = 64 * 1024
_PASSED: Final = frozenset({"accept", "content-type", "mcp-protocol-version", "mcp-method", "mcp-name"})
_PARAMETERS: Final = "mcp-param-"
_BACK: Final = ("Content-Type", "Cache-Control", "WWW-Authenticate", "Retry-After", "X-Accel-Buffering")
_TRACE: Final = 36  # `00-` and the trace id of a traceparent, and the dash behind it
_CONNECT_SECONDS: Final = 5.0
# No answer takes longer between two pieces: waits are at most 50 s, streams show a sign of life each 15 s.
_READ_SECONDS: Final = 120.0
# A mesh that takes no connection is being started again: it gets 15 s.
_PAUSE_SECONDS: Final = 0.2
_TRIES: Final = 75


def _is_ours(record: logging.LogRecord) -> bool:
    """Tell whether a record is about us, not about a command that speaks no HTTP or has hung up."""
    return not (record.exc_info and isinstance(record.exc_info[1], (BadHttpMessage, ConnectionError)))


log = logging.getLogger("hopline.attach.socket")
log.addFilter(_is_ours)


class Upstream:
    """The gateway as this agent: where it is and with which token, asked anew for each message."""

    def __init__(
        self,
        url: Callable[[], Awaitable[str]],
        token: Callable[[], Awaitable[str]],
        tls: ssl.SSLContext | None = None,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._url = url
        self._token = token
        self._pause = pause
        timeout = aiohttp.ClientTimeout(total=None, connect=_CONNECT_SECONDS, sock_read=_READ_SECONDS)
        connector = aiohttp.TCPConnector(ssl=tls if tls is not None else True, limit=0)
        self._http = aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    @contextlib.asynccontextmanager
    async def post(self, body: bytes, headers: dict[str, str]) -> AsyncIterator[aiohttp.ClientResponse]:
        """Post to `/mcp`, and yield the answer while it streams."""
        answer = await self._answer(body, headers)
        async with answer:
            yield answer

    async def _answer(self, body: bytes, headers: dict[str, str]) -> aiohttp.ClientResponse:
        """Post until somebody takes the connection: before that nothing was sent."""
        tries = 0
        while True:
            tries += 1
            try:
                headers["Authorization"] = f"Bearer {await self._token()}"
                url = (await self._url()).rstrip("/") + "/mcp"
                return await self._http.post(url, data=body, headers=headers, allow_redirects=False)
            except (aiohttp.ClientConnectorError, HoplineError) as error:
                if tries == _TRIES or getattr(error, "reason", "unavailable") != "unavailable":
                    raise
            await self._pause(_PAUSE_SECONDS)


class Bridge:
    """One session's socket, open while its turn runs."""

    def __init__(self, upstream: Upstream, path: Path, session: str, traceparent: str) -> None:
        self.path = path
        self._upstream = upstream
        self._session = session
        self._traceparent = traceparent
        self._runner: web.AppRunner | None = None
        self._open = False

    async def start(self) -> None:
        """Open the socket, for its owner alone."""
        app = web.Application(client_max_size=_MAX_BODY)
        app.router.add_post("/mcp", self._post)
        self._runner = web.AppRunner(
            app, handler_cancellation=True, access_log=None, shutdown_timeout=0, logger=log
        )
        await self._runner.setup()
        mask = os.umask(0o177)
        try:
            await web.UnixSite(self._runner, str(self.path)).start()
        finally:
            os.umask(mask)
        self._open = True

    async def close(self) -> None:
        """Refuse what comes from now on, drop what runs, remove the socket."""
        self._open = False
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        self.path.unlink(missing_ok=True)

    async def _post(self, request: web.Request) -> web.StreamResponse:
        if not self._open:
            return _refusal(403, HoplineError("permission_denied", "the session's turn is over"))
        body = self._body(await request.read())
        try:
            async with self._upstream.post(body, self._headers(request)) as answer:
                return await _stream(request, answer)
        except HoplineError as error:
            return _refusal(503, error)
        except (aiohttp.ClientError, TimeoutError):
            return _refusal(503, HoplineError("unavailable", "the mesh cannot be reached just now"))

    def _headers(self, request: web.Request) -> dict[str, str]:
        headers = {
            name: value
            for name, value in request.headers.items()
            if name.lower() in _PASSED or name.lower().startswith(_PARAMETERS)
        }
        headers["Hopline-Session"] = self._session
        headers["User-Agent"] = "hopline-attach"
        if traceparent := self._trace(request.headers.get("traceparent", "")):
            headers["traceparent"] = traceparent
        return headers

    def _body(self, body: bytes) -> bytes:
        """Hold what messages say of their trace to what the header may; the rest is passed on as it is."""
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            return body  # the gateway says what is wrong with it
        moved = False
        for message in found if isinstance(found, list) else [found]:
            params = message.get("params") if isinstance(message, dict) else None
            meta = params.get("_meta") if isinstance(params, dict) else None
            if not isinstance(meta, dict) or "traceparent" not in meta:
                continue
            claimed = meta["traceparent"]
            kept = self._trace(claimed if isinstance(claimed, str) else "")
            moved = moved or kept != claimed
            meta["traceparent"] = kept
        return json.dumps(found).encode() if moved else body

    def _trace(self, claimed: str) -> str:
        """Let the command go on with a span of its own, but not move to another trace."""
        same = len(claimed) == len(self._traceparent) and claimed[:_TRACE] == self._traceparent[:_TRACE]
        return claimed if same else self._traceparent


async def _stream(request: web.Request, answer: aiohttp.ClientResponse) -> web.StreamResponse:
    """Pass an answer on piece by piece, so that progress arrives when it is made."""
    headers = {name: answer.headers[name] for name in _BACK if name in answer.headers}
    response = web.StreamResponse(status=answer.status, headers=headers)
    if answer.content_length is not None:
        response.content_length = answer.content_length
    await response.prepare(request)
    try:
        async for chunk in answer.content.iter_any():
            await response.write(chunk)
        await response.write_eof()
    except (aiohttp.ClientError, TimeoutError):
        # The answer has begun: all that can still be said is that it broke off.
        if request.transport is not None:
            request.transport.abort()
    return response


def _refusal(status: int, error: HoplineError) -> web.Response:
    return web.json_response({"error": error.to_dict()}, status=status)
