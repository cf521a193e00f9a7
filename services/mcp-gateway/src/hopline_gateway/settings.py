"""The gateway's settings, besides those every service has."""

from __future__ import annotations

from urllib.parse import urlsplit

from hopline_rpc.settings import PublicUrl, SingleAgent
from hopline_web.settings import LOOPBACK, WebSettings, any_port, listed, own_names


class GatewaySettings(WebSettings):
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

    def hosts(self, bind: str) -> list[str]:
        """Return the accepted values of the Host header for a gateway that listens on `bind`."""
        public = [urlsplit(self.public_url).netloc] if self.public_url else []
        return [*own_names(bind), *public, *listed(self.allowed_hosts)]

    def origins(self) -> list[str]:
        """Return the accepted values of the Origin header; requests without one come from no web page."""
        own = [f"{scheme}://{name}" for scheme in ("http", "https") for name in LOOPBACK]
        public = [self.public_url] if self.public_url else []
        return [*any_port(own), *public, *listed(self.allowed_origins)]
