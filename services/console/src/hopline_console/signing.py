"""Signing in with a person's token, and out."""

from __future__ import annotations

from hopline_rpc.errors import HoplineError
from hopline_rpc.principals import looks_like_token
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from hopline_console.context import SESSION_COOKIE, ConsoleContext
from hopline_console.page import Page, own_path
from hopline_console.sealing import Session

_MOST: int = 200
_WRONG = "no person has this token, or not in this workspace"


def routes(context: ConsoleContext) -> list[Route]:
    """Return the routes."""

    def form(status: int = 200, **values: str) -> Response:
        text = context.templates.get_template("signing/signin.html").render(
            next=values.get("next", "/"),
            workspace=values.get("workspace", ""),
            problem=values.get("problem", ""),
            ended=values.get("ended", ""),
        )
        return HTMLResponse(text, status)

    async def ask(request: Request) -> Response:
        if context.session_of(request) is not None and not request.query_params.get("ended"):
            return RedirectResponse(own_path(request.query_params.get("next", "/")), 303)
        return form(
            next=own_path(request.query_params.get("next", "/")), ended=request.query_params.get("ended", "")
        )

    async def sign_in(request: Request) -> Response:
        sent = await request.form(max_files=0, max_fields=10, max_part_size=4096)
        token, workspace = (str(sent.get(name, "")).strip() for name in ("token", "workspace"))
        next_page = own_path(str(sent.get("next", "/")))
        try:
            if not looks_like_token(token) or len(workspace) > _MOST:
                raise HoplineError("unauthenticated", _WRONG)
            await context.person(token, workspace)
        except HoplineError as error:
            hidden = error.reason in {"unauthenticated", "not_found"}
            problem = _WRONG if hidden else error.message
            status = 503 if error.reason == "unavailable" else 401
            return form(status, next=next_page, workspace=workspace, problem=problem)
        hours = context.settings.console_hours
        session = Session.begin(token, workspace, context.clock.now() + hours * 3600)
        response = RedirectResponse(next_page, 303)
        response.set_cookie(
            SESSION_COOKIE,
            context.seal.session(session),
            max_age=int(hours * 3600),
            httponly=True,
            samesite="strict",
            secure=context.secure(request),
        )
        return response

    async def sign_out(page: Page) -> Response:
        response = RedirectResponse("/signin", 303)
        response.delete_cookie(SESSION_COOKIE)
        return response

    return [
        Route("/signin", ask, methods=["GET"]),
        Route("/signin", sign_in, methods=["POST"]),
        context.post("/signout", sign_out),
    ]
