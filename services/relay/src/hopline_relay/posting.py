"""Posting to an address that somebody else has set: resolved once, checked, and called just there."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit

from hopline_relay.domain.notices import may_call

if TYPE_CHECKING:
    import aiohttp

_SECONDS: Final = 10.0
_PORTS: Final = {"https": 443, "http": 80}


class Poster(Protocol):
    """Posts a body; returns why it was not taken, empty when it was. Never raises, names no address."""

    async def __call__(self, url: str, body: bytes, headers: Mapping[str, str]) -> str:
        """Post."""
        ...

    async def close(self) -> None:
        """Close what is open."""
        ...


class HttpPoster:
    """Posts over HTTP: follows no redirect, reads no answer, calls no address that is not allowed."""

    def __init__(self, *, loopback: bool, private: bool) -> None:
        self._loopback = loopback
        self._private = private

    async def __call__(self, url: str, body: bytes, headers: Mapping[str, str]) -> str:
        """Post once."""
        # Not needed by a mesh whose people have no webhooks, and it takes its time.
        import aiohttp

        try:
            async with asyncio.timeout(_SECONDS):
                address = await self._resolve(url)
                if not address:
                    return "its address may not be called"
                return await self._post(url, address, body, headers)
        except TimeoutError:
            return "no answer in time"
        except (aiohttp.ClientError, OSError, ValueError):
            return "it could not be reached"

    async def close(self) -> None:
        """Nothing stays open."""

    async def _resolve(self, url: str) -> str:
        """Return the address to call: the first one, if all that the name stands for may be called."""
        parts = urlsplit(url)
        port = parts.port or _PORTS[parts.scheme]
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
        addresses = [str(sockaddr[0]) for *_, sockaddr in found]
        allowed = all(may_call(each, loopback=self._loopback, private=self._private) for each in addresses)
        return addresses[0] if addresses and allowed else ""

    async def _post(self, url: str, address: str, body: bytes, headers: Mapping[str, str]) -> str:
        import aiohttp

        connector = aiohttp.TCPConnector(resolver=_pinned(address), use_dns_cache=False, force_close=True)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.post(url, data=body, headers=dict(headers), allow_redirects=False) as answer,
        ):
            return "" if 200 <= answer.status < 300 else f"it answered {answer.status}"


def _pinned(address: str) -> aiohttp.abc.AbstractResolver:
    """Return a resolver for which every name is at one address: what was checked is what is called."""
    import aiohttp.abc

    class Pinned(aiohttp.abc.AbstractResolver):
        async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[Any]:
            version = socket.AF_INET6 if ":" in address else socket.AF_INET
            return [
                {
                    "hostname": host,
                    "host": address,
                    "port": port,
                    "family": version,
                    "proto": 0,
                    "flags": socket.AI_NUMERICHOST,
                }
            ]

        async def close(self) -> None:
            pass

    return Pinned()
