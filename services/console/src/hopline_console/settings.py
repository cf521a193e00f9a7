"""The console's settings, besides those every service has."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from hopline_rpc.settings import Issuer, PublicUrl
from hopline_web.settings import WebSettings, listed, own_names
from pydantic import Field


class ConsoleSettings(WebSettings):
    """Read from `HOPLINE_*`."""

    # The URL by which people reach the console, where a proxy stands in front of it.
    console_url: PublicUrl = ""
    # Further values of the Host header to accept, separated by commas; `name:*` is any port.
    console_hosts: str = ""
    # A file with the keys that sessions are sealed with, one a line, the newest first: for several consoles,
    # or one without a data directory. Else the data directory keeps one.
    console_keys_file: Path | None = None
    # How long one stays signed in.
    console_hours: float = Field(default=12.0, gt=0, le=24 * 30)
    # Tries to sign in within a minute: from one address, and from all together. Only failures count.
    console_signins_per_address: int = Field(default=10, ge=1)
    console_signins: int = Field(default=100, ge=1)
    # Addresses of proxies in front of the console, by commas: their X-Forwarded-For says who asks.
    console_proxies: str = ""
    # The identity provider to sign in with, the same as the registry's: its issuer, whom it knows this
    # console as, a file with the secret for that (none: a public client), its name, and what it is asked.
    oidc_issuer: Issuer = ""
    oidc_client_id: str = Field(default="", max_length=500)
    oidc_client_secret_file: Path | None = None
    oidc_name: str = Field(default="your identity provider", min_length=1, max_length=60)
    oidc_scopes: str = Field(default="openid email", pattern=r"^openid( \S+)*$")
    # Where traces are looked at, `https://traces.example.org/trace/{trace_id}`; empty: in the console, where
    # this process has the local store of spans.
    trace_url: str = ""
    # Pages of one person that are kept up to date at once.
    console_streams: int = Field(default=16, ge=1)

    @property
    def proxies(self) -> frozenset[str]:
        """The addresses whose word on who asks is taken."""
        return frozenset(listed(self.console_proxies))

    def hosts(self, bind: str) -> list[str]:
        """Return the accepted values of the Host header for a console that listens on `bind`."""
        public = [urlsplit(self.console_url).netloc] if self.console_url else []
        return [*own_names(bind), *public, *listed(self.console_hosts)]
