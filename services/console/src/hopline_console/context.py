"""What every page is made with: settings, who may come in, the way to the services, and the templates."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

import grpc.aio
from hopline.registry.v1 import identity_pb2, identity_pb2_grpc
from hopline_directory import Guard
from hopline_rpc.errors import HoplineError
from hopline_rpc.metrics import Family, gauge
from hopline_rpc.principals import Principal
from hopline_rpc.service import Wiring
from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hopline_console.attempts import Attempts, client_of
from hopline_console.forms.once import Once
from hopline_console.mesh import CALL_SECONDS, Mesh
from hopline_console.oidc import Pending, provider_of
from hopline_console.page import Page, serve
from hopline_console.rendering import environment
from hopline_console.sealing import Seal, Session
from hopline_console.settings import ConsoleSettings
from hopline_console.streams import Streams

Handler = Callable[[Page], Awaitable[Response]]
SESSION_COOKIE: Final = "hopline_console"
FLASH_COOKIE: Final = "hopline_flash"
_SPANS: Final = "spans.db"


class ConsoleContext:
    """One for each running console."""

    def __init__(
        self,
        settings: ConsoleSettings,
        wiring: Wiring,
        guard: Guard,
        seal: Seal,
        channels: dict[str, grpc.aio.Channel],
    ) -> None:
        self.settings = settings
        self.clock = wiring.clock
        self.ids = wiring.ids
        self.seal = seal
        self.guard = guard
        self.templates: Environment = environment()
        self.once = Once()
        self.streams = Streams(settings.console_streams, wiring.clock, wiring.ids)
        guard.protect(self.streams.live)
        self.attempts = Attempts(settings.console_signins_per_address, settings.console_signins, wiring.clock)
        self.provider = provider_of(settings, wiring.clock)
        self._channels = channels
        self._data_dir = wiring.data_dir

    @property
    def spans(self) -> Path | None:
        """The local store of spans, where this process has one."""
        file = None if self._data_dir is None else self._data_dir / _SPANS
        return file if file is not None and file.exists() else None

    def secure(self, request: Request) -> bool:
        """Tell whether cookies go over TLS alone."""
        return request.url.scheme == "https" or self.settings.console_url.startswith("https:")

    async def person(self, token: str, workspace: str) -> Principal:
        """Return who a token stands for; `permission_denied` for whoever is no person."""
        found = await self.guard.authenticator.principal(token, workspace)
        if found.kind != "user":
            text = f"the console is for people; this is the token of {_ARTICLES[found.kind]} {found.kind}"
            raise HoplineError("permission_denied", text)
        return found

    async def sign_in_by(self, id_token: str, pending: Pending) -> identity_pb2.SignInResponse:
        """Have the registry look at an identity provider's word, and make a token of the person it means."""
        registry = identity_pb2_grpc.IdentityServiceStub(self._channels["registry"])
        request = identity_pb2.SignInRequest(
            id_token=id_token, nonce=pending.nonce, workspace=pending.workspace
        )
        return await registry.SignIn(request, timeout=CALL_SECONDS)

    def client(self, request: Request) -> str:
        """Return the address that a request comes from."""
        peer = request.client.host if request.client else ""
        return client_of(peer, request.headers.getlist("x-forwarded-for"), self.settings.proxies)

    def session_of(self, request: Request) -> Session | None:
        """Return the session that a request comes with, sealed by us and not yet over."""
        sealed = request.cookies.get(SESSION_COOKIE)
        return self.seal.open_session(sealed) if sealed else None

    def mesh(self, principal: Principal) -> Mesh:
        """Return the services as this person calls them."""
        return Mesh(self._channels, principal.assertion)

    def get(self, path: str, handler: Handler) -> Route:
        """Return the route of a page for people who are signed in."""
        return Route(path, serve(self, handler), methods=["GET"])

    def post(self, path: str, handler: Handler) -> Route:
        """Return the route of a form: its CSRF token has been checked when the handler runs."""
        return Route(path, serve(self, handler), methods=["POST"])

    def measure(self) -> Sequence[Family]:
        """Return what there is to measure."""
        text = "Pages that are kept up to date just now."
        return [gauge("hopline.console.live", "{page}", text, float(self.streams.count))]


_ARTICLES: Final = {"agent": "an", "user": "a", "plugin": "a", "service": "a"}
