"""Signing in with an identity provider: there, and back with its word."""

from __future__ import annotations

from typing import Final

from hopline_rpc.errors import HoplineError
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from hopline_console.context import ConsoleContext
from hopline_console.oidc import PENDING_SECONDS, Pending, Provider
from hopline_console.page import own_path
from hopline_console.sealing import Session
from hopline_console.signing import enter, form

PENDING_COOKIE: Final = "hopline_signin"
# Also what has to be registered with the provider, behind the console's URL.
BACK: Final = "/signin/oidc"
_MOST: Final = 200
_MAX_ANSWER: Final = 4096


def routes(context: ConsoleContext) -> list[Route]:
    """Return the routes; none without a provider."""
    provider = context.provider
    if provider is None:
        return []

    async def leave(request: Request) -> Response:
        next_page = own_path(request.query_params.get("next", "/"))
        workspace = request.query_params.get("workspace", "").strip()[:_MOST]
        try:
            url, pending = await provider.begin(_back(context, request), workspace, next_page)
        except HoplineError as error:
            return form(context, error, next_page=next_page, workspace=workspace)
        # A page rather than a redirect: the policy lets no form end at another site, not even by one.
        name = context.settings.oidc_name
        text = context.templates.get_template("signing/leaving.html").render(url=url, provider=name)
        response = HTMLResponse(text)
        response.set_cookie(
            PENDING_COOKIE,
            context.seal.pending(pending),
            max_age=int(PENDING_SECONDS),
            path=BACK,
            httponly=True,
            samesite="lax",  # it has to come along when the provider sends the browser back
            secure=context.secure(request),
        )
        return response

    async def come_back(request: Request) -> Response:
        sealed = request.cookies.get(PENDING_COOKIE)
        pending = context.seal.open_pending(sealed) if sealed else None
        client = context.client(request)
        try:
            context.attempts.take(client)
            response = await _signed_in(context, provider, request, pending)
            context.attempts.succeeded(client)
        except HoplineError as error:
            if error.reason == "unavailable":
                context.attempts.succeeded(client)
            next_page = pending.next_page if pending is not None else "/"
            response = form(context, error, next_page=next_page)
        response.delete_cookie(PENDING_COOKIE, path=BACK)
        return response

    return [Route("/signin/oidc/start", leave, methods=["GET"]), Route(BACK, come_back, methods=["GET"])]


async def _signed_in(
    context: ConsoleContext, provider: Provider, request: Request, pending: Pending | None
) -> Response:
    answer = {name: value[:_MAX_ANSWER] for name, value in request.query_params.items()}
    id_token = await provider.finish(answer, pending, _back(context, request))
    if pending is None:
        raise RuntimeError("nothing is finished that has not begun")
    try:
        made = await context.sign_in_by(id_token, pending)
    except HoplineError as error:
        if error.reason == "unauthenticated":
            text = "the mesh does not take the identity provider's word; begin again, or ask who runs it"
            raise HoplineError("unauthenticated", text) from None
        raise
    ends = context.clock.now() + context.settings.console_hours * 3600
    until = min(ends, float(made.info.expires_at.seconds))
    session = Session.begin(made.token, pending.workspace, until, own_token=True)
    return enter(context, request, session, pending.next_page)


def _back(context: ConsoleContext, request: Request) -> str:
    """Return where the provider sends the browser: to this console as people call it."""
    # The Host header is one of ours: others were refused at the door.
    own = context.settings.console_url or f"{request.url.scheme}://{request.headers['host']}"
    return own + BACK
