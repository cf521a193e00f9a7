"""The gateway's settings, besides those every service has."""

from __future__ import annotations

from urllib.parse import urlsplit

from hopline_rpc.settings import PublicUrl, ServiceSettings, SingleAgent
from hopline_rpc.tls import host_of
from pydantic import Field

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class GatewaySettings(ServiceSettings):
    """Read from `HOPLINE_*`."""

    # The URL by which people and agents reach this gateway, where a proxy stands in front of it.
    public_url: PublicUrl = ""
    # Further values of the Host and Origin headers to accept, separated by commas; `name:*` is any port.
    allowed_hosts: str = ""
    allowed_origins: str = ""
    # Where the other services are; `GET /endpoints` says so too.
    registry: str = "127.0.0.1:7401"
    relay: str = "127.0.0.1:7402"
    quota: str = "127.0.0.1:7403"
    console: str = ""
    # The slug of the only agent that is served at `/v1/…`; without it every agent is at `/<slug>/v1/…`.
    single: SingleAgent = ""
    # Connections at once; one more is answered with 503.
    max_connections: int = Field(default=10_000, ge=1)
    # How long a client may take over a request's head, and over its body.
    head_seconds: float = Field(default=10.0, gt=0)
    body_seconds: float = Field(default=30.0, gt=0)
    # How long running calls may go on after the end of the gateway was asked for.
    drain_seconds: float = Field(default=5.0, ge=0)

    def hosts(self, bind: str) -> list[str]:
        """Return the accepted values of the Host header for a gateway that listens on `bind`."""
        own = host_of(bind)
        names = [*_LOOPBACK, f"[{own}]" if ":" in own else own]
        public = [urlsplit(self.public_url).netloc] if self.public_url else []
        return [*_any_port(names), *public, *_listed(self.allowed_hosts)]

    def origins(self) -> list[str]:
        """Return the accepted values of the Origin header; requests without one come from no web page."""
        own = [f"{scheme}://{name}" for scheme in ("http", "https") for name in _LOOPBACK]
        public = [self.public_url] if self.public_url else []
        return [*_any_port(own), *public, *_listed(self.allowed_origins)]


def _any_port(names: list[str]) -> list[str]:
    return [form for name in names for form in (name, f"{name}:*")]


def _listed(text: str) -> list[str]:
    return [part for each in text.split(",") if (part := each.strip())]
