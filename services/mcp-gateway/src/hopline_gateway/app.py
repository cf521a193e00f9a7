"""Puts the gateway together: what it is made of, in the order in which it is opened and closed."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from hopline_directory import Guard
from hopline_rpc.metrics import Family
from hopline_rpc.service import Wiring
from hopline_web.listener import Listener
from starlette.routing import Route

from hopline_gateway import agent_server, sessions_api
from hopline_gateway.addressed import Addressed
from hopline_gateway.agent_server import AgentTools
from hopline_gateway.connections import Connections
from hopline_gateway.contributions import Contributions
from hopline_gateway.http import build_app
from hopline_gateway.mcp_endpoint import McpEndpoint
from hopline_gateway.mesh import Mesh
from hopline_gateway.offers import Offers
from hopline_gateway.peers import Peers
from hopline_gateway.server import ToolServer
from hopline_gateway.sessions_api import SessionsApi
from hopline_gateway.settings import GatewaySettings
from hopline_gateway.stats import McpStats
from hopline_gateway.waits import Waits
from hopline_gateway.webhooks import webhook_routes

DEFAULT_PORT: Final = 7400
_SERVICES: Final = ("registry", "relay", "quota", "console")


class Gateway:
    """A running gateway. It keeps nothing: a restart loses no more than the requests it was serving."""

    name: Final = "gateway"

    def __init__(self, settings: GatewaySettings, wiring: Wiring) -> None:
        self._settings = settings
        self._wiring = wiring
        self._url = ""
        registry = wiring.channel("registry")
        self._guard = Guard(registry, settings.mesh_id, wiring.clock)
        self.waits = Waits(wiring.clock, wiring.ids)
        mesh = self._mesh = Mesh(registry, wiring.channel("relay"), wiring.channel("quota"))
        follower = self._guard.follower
        self._addressed = Addressed(mesh, follower, settings.single)
        connections = Connections(follower.directory, mesh, has_public_url=bool(settings.public_url))
        offers = Offers(follower.directory, connections, Contributions(follower.directory))
        behind = {name: wiring.channel(name) for name in ("relay", "quota")}
        self._peers = Peers(behind, wiring.clock)
        self._stats = stats = McpStats()
        self._platform = ToolServer(offers, mesh, follower, self.waits, stats)
        self._agents = ToolServer(AgentTools(mesh), mesh, follower, self.waits, stats)
        self._listener: Listener | None = None

    async def open(self) -> None:
        """Begin to follow the registry."""
        # At INFO the SDK logs a line for every stateless request.
        logging.getLogger("mcp").setLevel(logging.WARNING)
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        self._guard.protect(self.waits.live)
        # Not waited for: until the view is complete the gateway is not ready, and lets nobody in.
        await self._guard.follower.start()

    async def start(self, bind: str = "") -> str:
        """Listen on `host:port`, by default the one of the settings, and return the URL."""
        bind = bind or self._settings.bind or f"127.0.0.1:{DEFAULT_PORT}"
        platform = McpEndpoint(self._platform, self._settings.body_seconds)
        agents = McpEndpoint(self._agents, self._settings.body_seconds)
        app = build_app(
            endpoints_of_mcp=[platform, agents],
            routes=[
                Route("/mcp", platform, methods=["POST"]),
                *agent_server.routes(self._addressed, agents),
                *sessions_api.routes(
                    self._addressed, SessionsApi(self._mesh, self.waits, self._settings.body_seconds)
                ),
                *webhook_routes(
                    self._mesh.webhooks,
                    self.waits,
                    self._settings.body_seconds,
                    agent=self._settings.single,
                ),
            ],
            authenticator=self._guard.authenticator,
            hosts=self._settings.hosts(bind),
            origins=self._settings.origins(),
            endpoints=self.endpoints,
            missing=self.missing,
            single=bool(self._settings.single),
        )
        listener = Listener(app, self._settings)
        self._url = await listener.start(bind)
        self._listener = listener
        return self._url

    def endpoints(self) -> Mapping[str, Any]:
        """Return where the services of this mesh listen, by name; null where there is none.

        And whether it serves one agent alone, at paths without a slug; which one is nobody's to know.

        What was set comes first, then what the data directory says, then the usual ports.
        """
        given, written = self._settings.model_fields_set, self._written()
        found: dict[str, Any] = {}
        for name in _SERVICES:
            usual = getattr(self._settings, name) or None
            found[name] = usual if name in given else written.get(name, usual)
        found["gateway"] = self._settings.public_url or self._url
        found["single"] = bool(self._settings.single)
        return found

    def _written(self) -> dict[str, Any]:
        """Read what the processes on this data directory say of their addresses."""
        if self._wiring.data_dir is None:
            return {}
        try:
            written = json.loads((self._wiring.data_dir / "endpoints.json").read_text())
        except (OSError, ValueError):
            return {}
        return {name: written[name] for name in _SERVICES if written.get(name)}

    async def ready(self) -> bool:
        """Tell whether calls get through: it knows whom to let in, and the services behind it serve."""
        return not await self.missing()

    async def missing(self) -> list[str]:
        """Return what keeps calls from getting through, in words."""
        found = [] if self._guard.follower.fresh else ["the registry cannot be followed"]
        return [*found, *await self._peers.missing()]

    async def measure(self) -> Sequence[Family]:
        """Return what there is to measure."""
        return self._stats.families(len(self.waits.live))

    async def drain(self) -> None:
        """End the waits, let what runs finish, and take nothing new."""
        self.waits.end_all()
        if self._listener is not None:
            await self._listener.stop()
            self._listener = None

    async def close(self) -> None:
        """Stop serving and following."""
        await self.drain()
        await self._guard.close()


class GatewayService:
    """How a runner opens the gateway."""

    name: Final = "gateway"
    default_port: Final = DEFAULT_PORT

    async def open(self, wiring: Wiring) -> Gateway:
        """Build the gateway; `start` opens its port."""
        gateway = Gateway(GatewaySettings.load(wiring.settings), wiring)
        await gateway.open()
        return gateway


SERVICE: Final = GatewayService()
