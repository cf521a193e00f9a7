"""Signing in with a person's token, and out."""

from __future__ import annotations

import math
from typing import Final

from hopline.registry.v1 import identity_pb2
from hopline_rpc.errors import HoplineError, unauthenticated
from hopline_rpc.principals import looks_like_token
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from hopline_console.context import SESSION_COOKIE, ConsoleContext
from hopline_console.page import Page, own_path, wait
from hopline_console.sealing import Session

_MOST: Final = 200
_WRONG: Final = "no person has this token, or not in this workspace"
# Has the shape of a token and is nobody's. What has no such shape is asked for as this: the answer, and the
# time it takes, tell nothing about what was typed.
_NOBODYS: Final = f"hpl_u_{'A' * 43}"
_STATUS: Final = {"unavailable": 503, "overloaded": 429}


def routes(context: ConsoleContext) -> list[Route]:
    """Return the routes."""

    async def ask(request: Request) -> Response:
        next_page, ended = own_path(request.query_params.get("next", "/")), request.query_params.get("ended")
        if context.session_of(request) is not None and not ended:
            return RedirectResponse(next_page, 303)
        return form(context, next_page=next_page, ended=bool(ended))

    async def sign_in(request: Request) -> Response:
        sent = await request.form(max_files=0, max_fields=10, max_part_size=4096)
        token, workspace = (str(sent.get(name, "")).strip() for name in ("token", "workspace"))
        next_page, client = own_path(str(sent.get("next", "/"))), context.client(request)
        try:
            context.attempts.take(client)
            await context.person(token if looks_like_token(token) else _NOBODYS, workspace[:_MOST])
        except HoplineError as error:
            if error.reason == "unavailable":
                context.attempts.succeeded(client)  # nothing was tried
            return form(context, error, next_page=next_page, workspace=workspace)
        context.attempts.succeeded(client)
        until = context.clock.now() + context.settings.console_hours * 3600
        return enter(context, request, Session.begin(token, workspace, until), next_page)

    async def sign_out(page: Page) -> Response:
        if page.session.own_token:
            await _end(page)
        response = RedirectResponse("/signin", 303)
        response.delete_cookie(SESSION_COOKIE)
        return response

    return [
        Route("/signin", ask, methods=["GET"]),
        Route("/signin", sign_in, methods=["POST"]),
        context.post("/signout", sign_out),
    ]


async def _end(page: Page) -> None:
    """End the token that was made for a session."""
    request = identity_pb2.RevokeTokenRequest(token_id=page.principal.token_id)
    try:
        await page.mesh.identities.RevokeToken(request)
    except HoplineError as error:
        if error.reason != "unauthenticated":  # ended while it was asked to: so does whatever it does
            raise


def form(
    context: ConsoleContext,
    error: HoplineError | None = None,
    *,
    next_page: str = "/",
    workspace: str = "",
    ended: bool = False,
) -> Response:
    """Answer with the page to sign in at, and why that did not work the last time."""
    problem, status = "", 200
    if error is not None:
        problem = _WRONG if _is_hidden(error) else error.message
        status = _STATUS.get(error.reason, 401)
    text = context.templates.get_template("signing/signin.html").render(
        next=next_page,
        workspace=workspace,
        problem=problem,
        ended=ended,
        provider=context.settings.oidc_name if context.provider is not None else "",
    )
    return HTMLResponse(text, status, wait(error) if error is not None else None)


def _is_hidden(error: HoplineError) -> bool:
    """Tell whether it is about the token or the workspace: one answer for all that is wrong with them."""
    return error.reason == "not_found" or error.message == unauthenticated().message


def enter(context: ConsoleContext, request: Request, session: Session, next_page: str) -> Response:
    """Let a person in."""
    response = RedirectResponse(next_page, 303)
    response.set_cookie(
        SESSION_COOKIE,
        context.seal.session(session),
        max_age=math.ceil(session.until - context.clock.now()),
        httponly=True,
        # Pages are shared by their address: who follows one from elsewhere is signed in there. What changes
        # anything is a form, which needs its own secret and comes from a page of ours.
        samesite="lax",
        secure=context.secure(request),
    )
    return response
