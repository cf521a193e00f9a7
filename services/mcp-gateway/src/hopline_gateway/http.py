"""The HTTP side: who is let in, and how a request gets to the MCP server and back.

From the outside in: Host and Origin; the credential, before anything is routed; the body within its
limits; then one of two session managers over the same server. Answers are plain JSON, except where a
tool waits and the client asked for progress: those come as an event stream, which costs twice as much.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

from hopline_rpc.auth import AUTHORIZATION, WORKSPACE, Authenticator
from hopline_rpc.errors import HoplineError, internal
from hopline_rpc.principals import Principal
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from mcp.types import ErrorData, JSONRPCError
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hopline_gateway.body import BadBody, Body, read_body, replay
from hopline_gateway.direct import DirectCalls, recognised
from hopline_gateway.limits import LIMITS, headers
from hopline_gateway.mesh import Caller
from hopline_gateway.server import CALLER, HAD_SURROGATES, TRACEPARENT, PlatformServer
from hopline_gateway.tools import TOOLS

log = logging.getLogger("hopline.gateway")

PUBLIC: Final = frozenset({"/endpoints", "/healthz", "/readyz"})
SESSION: Final = "hopline-session"
_MAX_SESSION: Final = 64
_WAITING: Final = frozenset(name for name, tool in TOOLS.items() if tool.waits)
_HEADERS: Final[Mapping[int, dict[str, str]]] = {
    401: {"WWW-Authenticate": "Bearer"},
    503: {"Retry-After": "1"},
}
_STATUS: Final[Mapping[str, int]] = {"unauthenticated": 401, "permission_denied": 403, "unavailable": 503}

Endpoints = Callable[[], Mapping[str, Any]]
Ready = Callable[[], Awaitable[bool]]


def refuse(error: HoplineError) -> Response:
    """Return an error outside MCP as JSON, with the status that goes with its code."""
    status = _STATUS.get(error.reason, 500 if error.reason == "internal" else 400)
    return JSONResponse({"error": error.to_dict()}, status, {**_HEADERS.get(status, {}), **headers(error)})


class HostCheck:
    """Refuses requests that a web page aimed at this machine by a name or from an origin of its own."""

    def __init__(self, app: ASGIApp, hosts: Sequence[str], origins: Sequence[str]) -> None:
        self._app = app
        settings = TransportSecuritySettings(allowed_hosts=list(hosts), allowed_origins=list(origins))
        self._check = TransportSecurityMiddleware(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check one request."""
        if scope["type"] == "http":
            refused = await self._check.validate_request(Request(scope))
            if refused is not None:
                header = "Host" if refused.status_code == 421 else "Origin"
                text = f"the header {header} names another site than this mesh; its settings may allow more"
                error = HoplineError("permission_denied", text)
                await JSONResponse({"error": error.to_dict()}, refused.status_code)(scope, receive, send)
                return
        await self._app(scope, receive, send)


class Credentials:
    """Lets in who has a credential, before any path is looked at, and notes the caller in the scope."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator) -> None:
        self._app = app
        self._authenticator = authenticator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Authenticate one request."""
        if scope["type"] != "http" or scope["path"] in PUBLIC:
            await self._app(scope, receive, send)
            return
        try:
            headers = Headers(scope=scope)
            principal = await self._principal(headers)
            scope[CALLER] = Caller(principal, _session(headers))
            scope[TRACEPARENT] = headers.get("traceparent", "")
        except HoplineError as error:
            await refuse(error)(scope, receive, send)
        except Exception as error:
            await refuse(internal(error, log))(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _principal(self, headers: Headers) -> Principal:
        metadata = {name: value for name in (AUTHORIZATION, WORKSPACE) if (value := headers.get(name))}
        principal = (await self._authenticator.identify(metadata)).principal
        if principal.kind not in {"agent", "user"}:
            raise HoplineError("permission_denied", "MCP is for agents and people")
        return principal


def _session(headers: Headers) -> str:
    """Return the session that a request is bound to; the relay decides whether it is the caller's."""
    session = headers.get(SESSION, "")
    if len(session) > _MAX_SESSION or not session.isascii() or not session.isprintable():
        raise HoplineError("invalid_argument", "the header Hopline-Session is no session's id")
    return session


class McpEndpoint:
    """`POST /mcp`."""

    def __init__(self, platform: PlatformServer, body_seconds: float) -> None:
        self._body_seconds = body_seconds
        self._direct = DirectCalls(platform)
        server = platform.mcp
        # Host and Origin are checked in front of all paths, the body's size before it is parsed here.
        self._json = StreamableHTTPSessionManager(server, json_response=True, stateless=True)
        self._events = StreamableHTTPSessionManager(server, json_response=False, stateless=True)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Run both session managers."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._json.run())
            await stack.enter_async_context(self._events.run())
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        try:
            _check_kinds(Headers(scope=scope))
            body = await read_body(scope, receive, self._body_seconds)
        except BadBody as bad:
            await _protocol_error(bad)(scope, receive, send)
            return
        except ClientDisconnect:
            return
        if body.had_surrogates:
            scope[HAD_SURROGATES] = True
            scope["headers"] = _with_length(scope["headers"], len(body.raw))
        if body.tool in _WAITING and body.wants_progress and _takes_events(scope):
            await self._events.handle_request(scope, replay(body.raw, receive), send)
        elif body.tool in _WAITING:
            await _until_disconnect(self._serve(body, scope, receive, send), receive)
        else:
            await self._serve(body, scope, receive, send)

    async def _serve(self, body: Body, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with JSON."""
        request = recognised(scope, body)
        if request is not None:
            response = await self._direct.serve(request)
            await response(scope, receive, send)
        else:
            await self._json.handle_request(scope, replay(body.raw, receive), _with_limits(scope, send))


def _with_limits(scope: Scope, send: Send) -> Send:
    """Return a `send` that adds the headers of the refusal that the answer carries, if it carries one."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start" and LIMITS in scope:
            added = [(name.lower().encode(), value.encode()) for name, value in scope[LIMITS].items()]
            message = {**message, "headers": [*message["headers"], *added]}
        await send(message)

    return sending


def _check_kinds(headers: Headers) -> None:
    """Refuse a body that is said to be no JSON, and a client that takes none."""
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise BadBody(415, "Content-Type must be application/json")
    accepted = {each.partition(";")[0].strip() for each in headers.get("accept", "").lower().split(",")}
    if not accepted & {"application/json", "application/*", "*/*"}:
        raise BadBody(406, "Accept must include application/json")


def _protocol_error(bad: BadBody) -> Response:
    error = JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=bad.code, message=bad.message))
    return Response(
        error.model_dump_json(by_alias=True, exclude_unset=True), bad.status, media_type="application/json"
    )


def _with_length(headers: list[tuple[bytes, bytes]], length: int) -> list[tuple[bytes, bytes]]:
    kept = [(name, value) for name, value in headers if name != b"content-length"]
    return [*kept, (b"content-length", str(length).encode())]


def _takes_events(scope: Scope) -> bool:
    accept = Headers(scope=scope).get("accept", "")
    return "text/event-stream" in accept or "*/*" in accept or "text/*" in accept


async def _until_disconnect(serving: Awaitable[None], receive: Receive) -> None:
    """Serve until the answer is sent or the client is gone; then the wait, and nothing else, ends."""
    work = asyncio.ensure_future(serving)
    gone = asyncio.ensure_future(_disconnected(receive))
    both: set[asyncio.Future[Any]] = {work, gone}
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
    finally:
        for task in both:
            task.cancel()
        await asyncio.gather(*both, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def build_app(
    *,
    endpoint: McpEndpoint,
    authenticator: Authenticator,
    hosts: Sequence[str],
    origins: Sequence[str],
    endpoints: Endpoints,
    ready: Ready,
) -> Starlette:
    """Put the application together."""

    async def addresses(request: Request) -> Response:
        return JSONResponse(dict(endpoints()))

    async def healthz(request: Request) -> Response:
        return PlainTextResponse("ok")

    async def readyz(request: Request) -> Response:
        if await ready():
            return PlainTextResponse("ready")
        return PlainTextResponse(
            "not ready: the registry cannot be followed; the gateway's log says why", 503
        )

    async def not_found(request: Request, error: Exception) -> Response:
        return JSONResponse({"error": HoplineError("not_found", "there is nothing here").to_dict()}, 404)

    async def wrong_method(request: Request, error: Exception) -> Response:
        text = f"this path does not take {request.method}"
        allowed = error.headers if isinstance(error, HTTPException) else None
        return JSONResponse({"error": HoplineError("failed_precondition", text).to_dict()}, 405, allowed)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with endpoint.run():
            yield

    app = Starlette(
        routes=[
            Route("/mcp", endpoint, methods=["POST"]),
            Route("/endpoints", addresses, methods=["GET"]),
            Route("/healthz", healthz, methods=["GET"]),
            Route("/readyz", readyz, methods=["GET"]),
        ],
        middleware=[
            Middleware(HostCheck, hosts, origins),
            Middleware(Credentials, authenticator),
        ],
        exception_handlers={404: not_found, 405: wrong_method},
        lifespan=lifespan,
    )
    # A path with a slash too many is another path, not one to be sent on from with a credential.
    app.router.redirect_slashes = False
    return app
