"""The settings of whoever listens for HTTP, besides those every service has."""

from __future__ import annotations

from collections.abc import Sequence

from hopline_rpc.settings import ServiceSettings
from hopline_rpc.tls import host_of
from pydantic import Field

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class WebSettings(ServiceSettings):
    """Read from `HOPLINE_*`."""

    # Connections at once; one more is answered with 503.
    max_connections: int = Field(default=10_000, ge=1)
    # How long a client may take over a request's head, and over its body.
    head_seconds: float = Field(default=10.0, gt=0)
    body_seconds: float = Field(default=30.0, gt=0)
    # How long running requests may go on after the end was asked for.
    drain_seconds: float = Field(default=5.0, ge=0)


def own_names(bind: str) -> list[str]:
    """Return the names by which a port at `bind` may be asked for, on any port."""
    own = host_of(bind)
    return any_port([*LOOPBACK, f"[{own}]" if ":" in own else own])


def any_port(names: Sequence[str]) -> list[str]:
    """Return names as they are, and with whatever port."""
    return [form for name in names for form in (name, f"{name}:*")]


def listed(text: str) -> list[str]:
    """Return the parts of a setting that is separated by commas."""
    return [part for each in text.split(",") if (part := each.strip())]
