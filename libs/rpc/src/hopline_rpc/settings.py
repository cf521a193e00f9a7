"""The settings every service has; each service's `settings.py` extends the class.

Nothing else reads the environment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from hopline_rpc.errors import HoplineError
from hopline_rpc.tls import TlsSettings, is_loopback


def public_url_problem(value: str) -> str | None:
    """Say what is wrong with the URL by which a mesh is reached from elsewhere; None when nothing is."""
    try:
        parts = urlsplit(value)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return _NO_URL
    plain = value.isprintable() and " " not in value
    return (
        None if good and plain and not (parts.path.strip("/") or parts.query or parts.fragment) else _NO_URL
    )


_NO_URL = "must be a URL such as https://mesh.example.org, without a path"


def _public_url(value: str) -> str:
    if value and (problem := public_url_problem(value)):
        raise ValueError(problem)
    return value.rstrip("/")


PublicUrl = Annotated[str, AfterValidator(_public_url)]
"""Where a proxy in front of the mesh is reached; empty for none."""


def _issuer(value: str) -> str:
    parts = urlsplit(value)
    if value and not (
        value.isprintable()
        and " " not in value
        and parts.hostname
        and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname)))
        and not (parts.query or parts.fragment or parts.username)
    ):
        raise ValueError("must be the provider's https:// URL, as its own configuration names it")
    return value


Issuer = Annotated[str, AfterValidator(_issuer)]
"""An OpenID Connect provider, as it names itself; empty for none. Plain http only on this machine."""


def _single(value: str) -> str:
    if value and not _SLUG.match(value):
        raise ValueError("must be an agent's slug, such as weather-agent")
    return value


_SLUG = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")
SingleAgent = Annotated[str, AfterValidator(_single)]
"""The slug of the only agent whose own address is served, which then is without it; empty for all."""


class ServiceSettings(BaseSettings):
    """Settings from `HOPLINE_*`, checked at the start and fixed from then on."""

    model_config = SettingsConfigDict(env_prefix="HOPLINE_", frozen=True, extra="ignore")

    # Where to listen, `host:port` or `unix:/path`; empty: the service's own port on loopback.
    bind: str = ""
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_ca: Path | None = None
    # Allows plain text on addresses that other machines can reach.
    insecure: bool = False
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["auto", "human", "json"] = "auto"
    # Names this mesh in the audience of its assertions.
    mesh_id: str = "hopline"
    # Where this process says how it is, `host:port`: metrics, health. Empty: a port of its own on loopback
    # (another one where that is taken); `off`: nowhere.
    metrics: str = ""

    @property
    def tls(self) -> TlsSettings:
        """The three TLS settings as one."""
        return TlsSettings(self.tls_cert, self.tls_key, self.tls_ca)

    @classmethod
    def load(cls, overrides: Mapping[str, str] | None = None) -> Self:
        """Read the settings; `overrides` win over the environment. A bad one is named in one line."""
        try:
            return cls(**dict(overrides or {}))  # type: ignore[arg-type] # pydantic parses the texts
        except ValidationError as error:
            lines = [f"HOPLINE_{_name(item['loc'])}: {item['msg']}" for item in error.errors()]
            raise HoplineError("invalid_argument", "bad settings: " + "; ".join(lines)) from None


class StoreSettings(ServiceSettings):
    """Settings of a service that keeps a database."""

    # `postgresql://…`: its tables lie there, in a schema of their own. Empty: an SQLite file in `data`.
    database_url: str = Field(default="", repr=False)


def setting_names() -> list[str]:
    """Return the names of all settings of the services that were imported, as in a mesh's file."""
    kinds, names = [ServiceSettings], set[str]()
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        names |= kind.model_fields.keys()
    return sorted(names)


def _name(location: tuple[int | str, ...]) -> str:
    return "_".join(str(part) for part in location).upper()
