"""Finding a mesh: its addresses and the credential to use, from a data directory, a URL or the environment.

A *source* is asked again at every connect, so that a mesh which was started anew on other ports is found.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from hopline_rpc.errors import HoplineError

DEFAULT_DATA: Final = Path("~/.hopline")
ENDPOINTS_FILE: Final = "endpoints.json"
ADMIN_TOKEN_FILE: Final = "admin.token"  # noqa: S105  the name of a file, not a secret
_FETCH_SECONDS: Final = 5.0
_MAX_ANSWER: Final = 64 * 1024

TokenSource = Callable[[], Awaitable[str]]
"""`await source()` returns the token to use now; it is asked at every connect, so tokens may rotate."""


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where the services of a mesh listen. `gateway` and `console` are URLs, the others gRPC targets.

    `single`: the gateway serves one agent alone, at paths without a slug; only the gateway says so.
    """

    gateway: str = ""
    registry: str = ""
    relay: str = ""
    quota: str = ""
    console: str = ""
    single: bool = False

    def target(self, service: str) -> str:
        """Return the address of `registry`, `relay` or `quota`, or raise `unavailable`."""
        target: str = getattr(self, service)
        if not target:
            text = f"the address of the {service} is not known: it does not run, or runs elsewhere"
            raise HoplineError("unavailable", text)
        return target


class Source(Protocol):
    """Knows how to find the addresses of a mesh, each time it is asked."""

    async def endpoints(self) -> Endpoints:
        """Return them, or raise `unavailable` with what to do."""
        ...


@dataclass(frozen=True, slots=True)
class DataDir:
    """A local mesh, by the directory it was started with (`hopline up --data DIR`)."""

    path: Path

    def read(self) -> Endpoints:
        """Read `endpoints.json`, which is there exactly while the mesh is up."""
        file = self.path / ENDPOINTS_FILE
        try:
            text = file.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise HoplineError(
                "unavailable",
                f"no mesh is running on {self.path}: start it with `hopline up --data {self.path}`, "
                "or set HOPLINE_URL",
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise HoplineError("unavailable", f"{file} cannot be read: {error}") from None
        return parse_endpoints(text, str(file))

    async def endpoints(self) -> Endpoints:
        """Return the addresses as they are now."""
        return self.read()

    @property
    def admin_token(self) -> Path:
        """The file with the installation's own token."""
        return self.path / ADMIN_TOKEN_FILE


@dataclass(frozen=True, slots=True)
class Gateway:
    """A mesh by its gateway's base URL; `GET /endpoints` there gives the other addresses."""

    url: str
    tls: ssl.SSLContext | None = None

    def fetch(self) -> Endpoints:
        """Ask the gateway; blocks for at most 5 s."""
        address = f"{self.url.rstrip('/')}/endpoints"
        handlers: list[urllib.request.BaseHandler] = [urllib.request.HTTPSHandler(context=self.tls)]
        if is_loopback(self.url):
            handlers.append(urllib.request.ProxyHandler({}))  # a proxy cannot reach our loopback
        opener = urllib.request.build_opener(*handlers)
        try:
            with opener.open(address, timeout=_FETCH_SECONDS) as answer:
                text = answer.read(_MAX_ANSWER).decode()
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise HoplineError(
                "unavailable",
                f"no mesh answers at {self.url} ({reason}): check HOPLINE_URL, or start the mesh",
            ) from None
        return parse_endpoints(text, address)

    async def endpoints(self) -> Endpoints:
        """Ask the gateway for the addresses as they are now."""
        return await asyncio.to_thread(self.fetch)


@dataclass(frozen=True, slots=True)
class Fixed:
    """Addresses that are known and do not change."""

    known: Endpoints

    async def endpoints(self) -> Endpoints:
        """Return them."""
        return self.known


def parse_endpoints(text: str, where: str) -> Endpoints:
    """Read the JSON of `endpoints.json` or `GET /endpoints`; `where` names it in the error."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    names = ("gateway", "registry", "relay", "quota", "console") if isinstance(found, dict) else ()
    addresses = {name: value for name in names if isinstance(value := found.get(name), str)}
    if not addresses:
        raise HoplineError("unavailable", f"{where} does not list the addresses of a mesh")
    return Endpoints(**addresses, single=found.get("single") is True)


def source(where: str | Path | Source | None = None, env: Mapping[str, str] | None = None) -> Source:
    """Tell what `where` means: a data directory (a Path), a gateway's URL, a relay's gRPC target.

    None looks into the environment: HOPLINE_URL, else HOPLINE_DATA, else `~/.hopline`.
    """
    if isinstance(where, Path):
        return DataDir(where.expanduser())
    if isinstance(where, str):
        if where.startswith(("http://", "https://")):
            return Gateway(_checked_url(where))
        if not where:
            raise HoplineError("invalid_argument", "the mesh's address is empty")
        return Fixed(Endpoints(relay=where))
    if where is not None:
        return where
    env = os.environ if env is None else env
    if url := env.get("HOPLINE_URL"):
        return Gateway(_checked_url(url))
    return DataDir(Path(env.get("HOPLINE_DATA") or DEFAULT_DATA).expanduser())


def socket_path(env: Mapping[str, str] | None = None) -> Path | None:
    """Return the attach daemon's socket for this session, where the process runs under one."""
    value = (os.environ if env is None else env).get("HOPLINE_SOCKET")
    return Path(value) if value else None


def token_source(
    token: str | TokenSource | None = None,
    token_file: str | Path | None = None,
    env: Mapping[str, str] | None = None,
) -> TokenSource:
    """Return where the token comes from: given, a file (read again each time), or HOPLINE_TOKEN_FILE."""
    if token is not None and token_file is not None:
        raise HoplineError("invalid_argument", "give a token or a token file, not both")
    if callable(token):
        return token
    if token is not None:
        return _fixed_token(token)
    path = token_file or (os.environ if env is None else env).get("HOPLINE_TOKEN_FILE")
    if not path:
        raise HoplineError(
            "unauthenticated", "no credential: give a token, a token file, or set HOPLINE_TOKEN_FILE"
        )
    return _token_in(Path(path).expanduser())


def _fixed_token(token: str) -> TokenSource:
    async def give() -> str:
        return token

    return give


def _token_in(path: Path) -> TokenSource:
    async def read() -> str:
        return read_token(path)

    return read


def read_token(path: Path) -> str:
    """Read the token in a file, or say in one line why there is none."""
    try:
        token = path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        raise HoplineError("unauthenticated", f"the token file {path} does not exist") from None
    except UnicodeDecodeError:
        raise HoplineError("unauthenticated", f"the token file {path} does not hold a token") from None
    except OSError as error:
        raise HoplineError(
            "unauthenticated", f"the token file {path} cannot be read: {error.strerror}"
        ) from None
    if not token or len(token.split()) > 1 or not token.isascii():
        raise HoplineError("unauthenticated", f"the token file {path} does not hold a token")
    return token


def is_loopback(address: str) -> bool:
    """Tell whether a URL or a gRPC target stays on this machine."""
    if address.startswith(("unix:", "unix-abstract:")):
        return True
    try:
        host: Any = urlsplit(address if "://" in address else f"//{address}").hostname or ""
    except ValueError:
        return False
    return host in {"localhost", "::1"} or host.startswith("127.")


def _checked_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise HoplineError("invalid_argument", f"{url!r} is not the URL of a gateway (http://HOST:PORT)")
    return url
