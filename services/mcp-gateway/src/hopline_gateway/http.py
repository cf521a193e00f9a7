"""The HTTP side: who is let in, and what stands at which path.

From the outside in: Host and Origin; the credential, before anything is routed; then the body, within its
limits, and the path's own handler: `mcp_endpoint.py` for MCP, `sessions_api.py` for sessions.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Final

from hopline_rpc.auth import AUTHORIZATION, WORKSPACE, Authenticator
from hopline_rpc.errors import HoplineError, internal
from hopline_rpc.principals import Principal
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from hopline_gateway.mcp_endpoint import McpEndpoint
from hopline_gateway.mesh import Caller
from hopline_gateway.refusing import refuse
from hopline_gateway.server import TRACEPARENT
from hopline_gateway.toolkit import CALLER
from hopline_gateway.webhooks import is_delivery

log = logging.getLogger("hopline.gateway")

PUBLIC: Final = frozenset({"/endpoints", "/healthz", "/readyz"})
SESSION: Final = "hopline-session"
_MAX_SESSION: Final = 64
# Agents' own endpoints, by their shape: there plugins come to agents of theirs.
_AGENTS: Final = re.compile(r"(/[^/]+)?/v1/(mcp|sessions(/[^/]+)?)")

Endpoints = Callable[[], Mapping[str, Any]]
Missing = Callable[[], Awaitable[Sequence[str]]]


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
                await refuse(error, refused.status_code)(scope, receive, send)
                return
        await self._app(scope, receive, send)


class Credentials:
    """Lets in who has a credential, before any path is looked at, and notes the caller in the scope."""

    def __init__(
        self,
        app: ASGIApp,
        authenticator: Authenticator,
        without: Callable[[Scope], bool],
    ) -> None:
        self._app = app
        self._authenticator = authenticator
        # What comes without a credential, by the shape of its path: its own signature is looked at later.
        self._without = without

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Authenticate one request."""
        if scope["type"] != "http" or scope["path"] in PUBLIC or self._without(scope):
            await self._app(scope, receive, send)
            return
        try:
            headers = Headers(scope=scope)
            principal = await self._principal(headers, scope["path"])
            scope[CALLER] = Caller(principal, _session(headers))
            scope[TRACEPARENT] = headers.get("traceparent", "")
        except HoplineError as error:
            await refuse(error)(scope, receive, send)
        except Exception as error:
            await refuse(internal(error, log))(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _principal(self, headers: Headers, path: str) -> Principal:
        metadata = {name: value for name in (AUTHORIZATION, WORKSPACE) if (value := headers.get(name))}
        principal = (await self._authenticator.identify(metadata)).principal
        if principal.kind == "plugin" and _AGENTS.fullmatch(path):
            return principal
        if principal.kind not in {"agent", "user"}:
            raise HoplineError("permission_denied", "MCP is for agents and people")
        return principal


def _session(headers: Headers) -> str:
    """Return the session that a request is bound to; the relay decides whether it is the caller's."""
    session = headers.get(SESSION, "")
    if len(session) > _MAX_SESSION or not session.isascii() or not session.isprintable():
        raise HoplineError("invalid_argument", "the header Hopline-Session is no session's id")
    return session


def build_app(
    *,
    endpoints_of_mcp: Sequence[McpEndpoint],
    routes: Sequence[BaseRoute],
    authenticator: Authenticator,
    hosts: Sequence[str],
    origins: Sequence[str],
    endpoints: Endpoints,
    missing: Missing,
    single: bool,
) -> Starlette:
    """Put the application together: `routes` beside what says how the mesh is.

    `single`: paths name no agent.
    """

    async def addresses(request: Request) -> Response:
        return JSONResponse(dict(endpoints()))

    async def healthz(request: Request) -> Response:
        return PlainTextResponse("ok")

    async def readyz(request: Request) -> Response:
        found = await missing()
        if found:
            return PlainTextResponse(f"not ready: {'; '.join(found)}", 503)
        return PlainTextResponse("ready")

    async def not_found(request: Request, error: Exception) -> Response:
        return refuse(HoplineError("not_found", "there is nothing here"))

    async def wrong_method(request: Request, error: Exception) -> Response:
        text = f"this path does not take {request.method}"
        allowed = error.headers if isinstance(error, HTTPException) else None
        return JSONResponse({"error": HoplineError("failed_precondition", text).to_dict()}, 405, allowed)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for endpoint in endpoints_of_mcp:
                await stack.enter_async_context(endpoint.run())
            yield

    app = Starlette(
        routes=[
            *routes,
            Route("/endpoints", addresses, methods=["GET"]),
            Route("/healthz", healthz, methods=["GET"]),
            Route("/readyz", readyz, methods=["GET"]),
        ],
        middleware=[
            Middleware(HostCheck, hosts, origins),
            Middleware(Credentials, authenticator, partial(is_delivery, single=single)),
        ],
        exception_handlers={404: not_found, 405: wrong_method},
        lifespan=lifespan,
    )
    # A path with a slash too many is another path, not one to be sent on from with a credential.
    app.router.redirect_slashes = False
    return app
