"""Puts the console together: what it is made of, in the order in which it is opened and closed.

Pages and templates are imported by the first request: a mesh whose console nobody looks at does not
carry them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from hopline_directory import Guard
from hopline_rpc.metrics import Family
from hopline_rpc.service import Wiring
from hopline_web.listener import Listener

from hopline_console.sealing import Seal, keys_of
from hopline_console.settings import ConsoleSettings

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from hopline_console.context import ConsoleContext

DEFAULT_PORT: Final = 7404
_SERVICES: Final = ("registry", "relay", "quota")


class Console:
    """A running console. It keeps nothing: who is signed in is sealed in the browser's cookie."""

    name: Final = "console"

    def __init__(self, settings: ConsoleSettings, wiring: Wiring) -> None:
        self._settings = settings
        self._wiring = wiring
        self._guard = Guard(wiring.channel("registry"), settings.mesh_id, wiring.clock)
        self._seal = Seal(keys_of(settings.console_keys_file, wiring.data_dir), wiring.clock)
        self._listener: Listener | None = None
        self._context: ConsoleContext | None = None

    async def open(self) -> None:
        """Begin to follow the registry."""
        # Not waited for: until the view is complete the console is not ready, and lets nobody in.
        await self._guard.follower.start()

    async def start(self, bind: str = "") -> str:
        """Listen on `host:port`, by default the one of the settings, and return the URL."""
        bind = bind or self._settings.bind or f"127.0.0.1:{DEFAULT_PORT}"
        listener = Listener(_Late(lambda: self._build(bind)), self._settings)
        url = await listener.start(bind)
        self._listener = listener
        return url

    def _build(self, bind: str) -> ASGIApp:
        from hopline_console.context import ConsoleContext
        from hopline_console.web import build_app

        channels = {name: self._wiring.channel(name) for name in _SERVICES}
        self._context = ConsoleContext(self._settings, self._wiring, self._guard, self._seal, dict(channels))
        return build_app(self._context, self._settings.hosts(bind))

    async def ready(self) -> bool:
        """Tell whether it knows whom to let in."""
        return self._guard.follower.fresh

    async def missing(self) -> list[str]:
        """Return what keeps pages from being served, in words."""
        return [] if self._guard.follower.fresh else ["the registry cannot be followed"]

    async def measure(self) -> Sequence[Family]:
        """Return what there is to measure."""
        return [] if self._context is None else self._context.measure()

    async def drain(self) -> None:
        """End the live pages, let what runs finish, and take nothing new."""
        if self._context is not None:
            self._context.streams.end_all()
        if self._listener is not None:
            await self._listener.stop()
            self._listener = None

    async def close(self) -> None:
        """Stop serving and following."""
        await self.drain()
        await self._guard.close()


class _Late:
    """An application that is built by the first request."""

    def __init__(self, build: _Build) -> None:
        self._build = build
        self._app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _answer_lifespan(receive, send)
            return
        if self._app is None:
            self._app = self._build()
        await self._app(scope, receive, send)


async def _answer_lifespan(receive: Receive, send: Send) -> None:
    """Nothing has to be opened or closed with the server."""
    while True:
        event = await receive()
        await send({"type": f"{event['type']}.complete"})
        if event["type"] == "lifespan.shutdown":
            return


if TYPE_CHECKING:
    from collections.abc import Callable

    _Build = Callable[[], ASGIApp]


class ConsoleService:
    """How a runner opens the console."""

    name: Final = "console"
    default_port: Final = DEFAULT_PORT

    async def open(self, wiring: Wiring) -> Console:
        """Build the console; `start` opens its port."""
        console = Console(ConsoleSettings.load(wiring.settings), wiring)
        await console.open()
        return console


SERVICE: Final = ConsoleService()
