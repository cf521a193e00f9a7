"""One request of a person who is signed in, and how it is answered: a page, a redirect, an error in words."""

from __future__ import annotations

import functools
import logging
import math
import secrets
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from hopline.registry.v1 import visibility_pb2
from hopline_rpc.errors import HoplineError, internal
from hopline_rpc.principals import Principal
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from hopline_console.sealing import Flash, Session

if TYPE_CHECKING:
    from hopline_console.context import ConsoleContext, Handler
    from hopline_console.mesh import Mesh

log = logging.getLogger("hopline.console")

# No list on a page is longer.
PAGE_SIZE: Final = 50
CSRF: Final = "csrf"
_MOST_FIELDS: Final = 200
_MOST_BYTES: Final = 256 * 1024
STATUS: Final = {
    "invalid_argument": 400,
    "unauthenticated": 401,
    "permission_denied": 403,
    "not_found": 404,
    "unavailable": 503,
    "deadline_exceeded": 504,
    "overloaded": 429,
    "quota_exceeded": 429,
    "internal": 500,
}


class Page:
    """What a handler is given: the request, the person, the services; and what it answers with."""

    def __init__(
        self, context: ConsoleContext, request: Request, principal: Principal, session: Session
    ) -> None:
        self.context = context
        self.request = request
        self.principal = principal
        self.session = session
        self._form: FormData | None = None
        self._me: visibility_pb2.GetSelfResponse | None = None

    @functools.cached_property
    def mesh(self) -> Mesh:
        """The services, called as this person."""
        return self.context.mesh(self.principal)

    def query(self, name: str, usual: str = "") -> str:
        """Return a value of the address, without blanks around it."""
        return self.request.query_params.get(name, usual).strip()

    def path(self, name: str) -> str:
        """Return a part of the path."""
        return str(self.request.path_params[name])

    async def me(self) -> visibility_pb2.GetSelfResponse:
        """Return who this is: person, workspace, role, limits."""
        if self._me is None:
            self._me = await self.mesh.visibility.GetSelf(visibility_pb2.GetSelfRequest())
        return self._me

    async def form(self) -> FormData:
        """Return what was sent with a form."""
        if self._form is None:
            self._form = await self.request.form(
                max_files=1, max_fields=_MOST_FIELDS, max_part_size=_MOST_BYTES
            )
        return self._form

    async def field(self, name: str, usual: str = "") -> str:
        """Return one text of the form."""
        found = (await self.form()).get(name, usual)
        return found if isinstance(found, str) else usual

    def here(self, **changes: Any) -> str:
        """Return the address of this page with other values; one that is empty is left out."""
        values = {**dict(self.request.query_params), **changes}
        text = urlencode({name: value for name, value in values.items() if value not in ("", None)})
        return f"{self.request.url.path}?{text}" if text else self.request.url.path

    async def render(self, template: str, status: int = 200, **values: Any) -> Response:
        """Answer with a page."""
        flash, response = self._flash(), None
        text = self.context.templates.get_template(template).render(
            page=self, me=await self.me(), flash=flash, form_secret=self.session.csrf, **values
        )
        response = HTMLResponse(text, status)
        if flash is not None:
            from hopline_console.context import FLASH_COOKIE

            response.delete_cookie(FLASH_COOKIE)
        return response

    def _flash(self) -> Flash | None:
        from hopline_console.context import FLASH_COOKIE

        sealed = self.request.cookies.get(FLASH_COOKIE)
        return self.context.seal.open_flash(sealed) if sealed else None

    def go(self, to: str, said: str = "", *, good: bool = True) -> Response:
        """Answer a form: go to a page of ours and say there in one line how it went."""
        from hopline_console.context import FLASH_COOKIE

        response = RedirectResponse(to, 303)
        if said:
            response.set_cookie(
                FLASH_COOKIE,
                self.context.seal.flash(Flash(said, good)),
                max_age=60,
                httponly=True,
                samesite="strict",
                secure=self.context.secure(self.request),
            )
        return response

    async def fail(self, error: HoplineError) -> Response:
        """Answer with the page of an error. All that is hidden has one page, in the same words."""
        hidden = error.reason == "not_found"
        status = STATUS.get(error.reason, 409)
        response = await self.render("error.html", status, error=None if hidden else error)
        response.headers.update(wait(error))
        return response


def serve(context: ConsoleContext, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    """Return what answers requests for a page: only people who are signed in, forms only with their token."""

    async def answer(request: Request) -> Response:
        session = context.session_of(request)
        if session is None:
            return to_signin(request)
        try:
            principal = await context.person(session.token, session.workspace)
        except HoplineError as error:
            if error.reason in {"unauthenticated", "permission_denied", "not_found"}:
                return to_signin(request, ended=True)
            return plain_error(context, error)
        page = Page(context, request, principal, session)
        try:
            if request.method == "POST":
                await _check_form(page)
            return await handler(page)
        except HoplineError as error:
            return await _told(page, error)
        except HTTPException:
            raise
        except Exception as error:
            return await _told(page, internal(error, log))

    return answer


async def _check_form(page: Page) -> None:
    sent = await page.field(CSRF)
    if not secrets.compare_digest(sent.encode(), page.session.csrf.encode()):
        text = "this form was made for another sign-in; open the page again and repeat what you did"
        raise HoplineError("permission_denied", text)


async def _told(page: Page, error: HoplineError) -> Response:
    try:
        return await page.fail(error)
    except HoplineError:
        return plain_error(page.context, error)  # not even the frame of a page is to be had


def plain_error(context: ConsoleContext, error: HoplineError) -> Response:
    """Answer with an error where nobody is signed in, or the registry is away."""
    text = context.templates.get_template("plain_error.html").render(error=error)
    return HTMLResponse(text, STATUS.get(error.reason, 409), wait(error))


def wait(error: HoplineError) -> dict[str, str]:
    """Return the header that says when to try again, where that is known."""
    return {} if error.retry_after is None else {"retry-after": str(math.ceil(error.retry_after))}


def to_signin(request: Request, *, ended: bool = False) -> Response:
    """Send to the sign-in page, and from there back to where a page was asked for."""
    values = {"ended": "1"} if ended else {}
    if request.method == "GET" and request.url.path != "/":
        values["next"] = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    response = RedirectResponse(f"/signin?{urlencode(values)}" if values else "/signin", 303)
    if ended:
        from hopline_console.context import SESSION_COOKIE

        response.delete_cookie(SESSION_COOKIE)
    return response


def own_path(text: str) -> str:
    """Return a path of this site to go on to; anything else, another site above all, is the front page."""
    plain = text.startswith("/") and not text.startswith("//") and "\\" not in text and text.isprintable()
    return text if plain else "/"
