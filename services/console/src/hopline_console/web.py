"""The HTTP side: who is let in, what every answer carries, and what stands at which path."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from hopline_rpc.errors import HoplineError
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hopline_console.context import ConsoleContext
from hopline_console.page import Page, plain_error
from hopline_console.pages import FAMILIES
from hopline_console.signing import routes as signing_routes
from hopline_console.signing_oidc import routes as oidc_routes

STATIC: Final = Path(__file__).parent / "static"
MAX_BODY: Final = 1024 * 1024
_CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS: Final = {
    "content-security-policy": _CSP,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "x-frame-options": "DENY",
}


def build_app(context: ConsoleContext, hosts: Sequence[str]) -> Starlette:
    """Put the application together."""

    async def front(request: Request) -> Response:
        return RedirectResponse("/floor", 303)

    async def healthz(request: Request) -> Response:
        return PlainTextResponse("ok")

    async def readyz(request: Request) -> Response:
        if context.guard.follower.fresh:
            return PlainTextResponse("ready")
        return PlainTextResponse("not ready: the registry cannot be followed", 503)

    async def nothing(page: Page) -> Response:
        raise HoplineError("not_found", "there is nothing here")

    async def not_found(request: Request, error: Exception) -> Response:
        return await context.get("/", nothing).endpoint(request)  # type: ignore[no-any-return]

    async def wrong_method(request: Request, error: Exception) -> Response:
        text = f"this page does not take {request.method}"
        response = plain_error(context, HoplineError("failed_precondition", text))
        response.status_code = 405
        return response

    async def wrong_form(request: Request, error: Exception) -> Response:
        text = "this form is too large, has too many fields, or cannot be read"
        return plain_error(context, HoplineError("invalid_argument", text))

    app = Starlette(
        routes=[
            Route("/", front, methods=["GET"]),
            Route("/healthz", healthz, methods=["GET"]),
            Route("/readyz", readyz, methods=["GET"]),
            Route("/live", _live(context), methods=["GET"]),
            *signing_routes(context),
            *oidc_routes(context),
            *(route for family in FAMILIES for route in family.routes(context)),
            Mount("/static", StaticFiles(directory=STATIC), name="static"),
        ],
        middleware=[
            Middleware(Door, context, hosts),
            Middleware(Bounded, context.settings.body_seconds),
        ],
        exception_handlers={404: not_found, 405: wrong_method, 400: wrong_form},
    )
    app.router.redirect_slashes = False
    return app


def _live(context: ConsoleContext) -> Callable[[Request], Awaitable[Response]]:
    async def live(request: Request) -> Response:
        session = context.session_of(request)
        if session is None:
            return PlainTextResponse("sign in", 401)
        try:
            principal = await context.person(session.token, session.workspace)
            context.streams.take(principal)
        except HoplineError as error:
            gone = error.reason in {"unauthenticated", "permission_denied", "not_found"}
            wait = {"retry-after": f"{error.retry_after:.0f}"} if error.retry_after else None
            return PlainTextResponse(error.message, 401 if gone else 503, wait)

        async def hints() -> AsyncIterator[str]:
            async for hint in context.streams.hints(principal, context.mesh(principal)):
                yield hint

        return StreamingResponse(
            hints(),
            media_type="text/event-stream",
            headers={"cache-control": "no-store"},
            background=BackgroundTask(context.streams.leave, principal),
        )

    return live


class Door:
    """Refuses what another site aimed here, and puts the protecting headers on every answer."""

    def __init__(self, app: ASGIApp, context: ConsoleContext, hosts: Sequence[str]) -> None:
        self._app = app
        self._context = context
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        page = not scope["path"].startswith("/static/")

        async def protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                if page:
                    headers.setdefault("cache-control", "no-store")
                if scope["scheme"] == "https":
                    headers["strict-transport-security"] = "max-age=31536000"
            await send(message)

        refused = self._refused(Headers(scope=scope), scope)
        if refused is None:
            await self._app(scope, receive, protected)
        else:
            await refused(scope, receive, protected)

    def _refused(self, headers: Headers, scope: Scope) -> Response | None:
        host = headers.get("host", "")
        if host not in self._hosts and f"{_name(host)}:*" not in self._hosts:
            text = "the header Host names another site; HOPLINE_CONSOLE_HOSTS may allow more"
            return PlainTextResponse(text, 421)
        if scope["method"] in {"GET", "HEAD"}:
            return None
        origin, site = headers.get("origin"), headers.get("sec-fetch-site")
        public = self._context.settings.console_url
        if origin is None:
            foreign = False
        elif urlsplit(public).netloc == host:  # behind TLS: the same name in the clear is somebody else
            foreign = origin != public
        else:
            foreign = urlsplit(origin).netloc != host
        if foreign or site not in {None, "same-origin", "none"}:
            return PlainTextResponse("this form was sent by another site; nothing was done", 403)
        return None


def _name(host: str) -> str:
    """Return a host without its port."""
    return host.rpartition(":")[0] if ":" in host.rpartition("]")[2] else host


class Bounded:
    """Takes no body that is too large, or too slow to come."""

    def __init__(self, app: ASGIApp, seconds: float) -> None:
        self._app = app
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["method"] in {"GET", "HEAD"}:
            await self._app(scope, receive, send)
            return
        length = Headers(scope=scope).get("content-length", "0")
        if not length.isdigit() or int(length) > MAX_BODY:
            await PlainTextResponse(f"at most {MAX_BODY} bytes", 413)(scope, receive, send)
            return
        try:
            async with asyncio.timeout(self._seconds):
                body = await _whole(receive)
        except TimeoutError:
            await PlainTextResponse("the form did not come in time", 408)(scope, receive, send)
            return
        if body is None:
            await PlainTextResponse(f"at most {MAX_BODY} bytes", 413)(scope, receive, send)
            return
        given = False

        async def again() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, again, send)


async def _whole(receive: Receive) -> bytes | None:
    """Read a body; None for one that is too large, or whose sender has gone."""
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MAX_BODY:
            return None
        if not message.get("more_body", False):
            return b"".join(parts)
