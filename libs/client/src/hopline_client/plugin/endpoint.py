"""A plugin's gRPC endpoint: lets in whoever has the secret of the installation, and nobody else."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import grpc
import grpc.aio
from hopline_rpc.certificates import server_credentials
from hopline_rpc.tls import TlsSettings, require_safe

log = logging.getLogger("hopline.plugin")

_MAX_BYTES: Final = 1024 * 1024
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", _MAX_BYTES),
    ("grpc.max_send_message_length", _MAX_BYTES),
    ("grpc.so_reuseport", 0),
)
_BEARER: Final = "Bearer "

Secret = Callable[[], str]
"""Returns the secret of the installation: it may be rotated."""
Add = Callable[[grpc.aio.Server], None]
"""Adds a service."""


class _Door(grpc.aio.ServerInterceptor):
    """Refuses every call without the secret, whatever it asks for."""

    def __init__(self, secret: Secret) -> None:
        self._secret = secret

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        given = str(dict(details.invocation_metadata).get("authorization", ""))
        secret = self._secret()
        expected = f"{_BEARER}{secret}".encode()
        if secret and hmac.compare_digest(given.encode(), expected):
            return await continuation(details)
        return grpc.unary_unary_rpc_method_handler(_refuse)


async def _refuse(request: Any, context: Any) -> None:
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, "the secret of this installation is needed")


class Endpoint:
    """The server."""

    def __init__(self, services: Iterable[Add], secret: Secret, tls: TlsSettings | None = None) -> None:
        self._services = tuple(services)
        self._secret = secret
        self._tls = tls
        self._server: grpc.aio.Server | None = None

    async def start(self, address: str) -> str:
        """Listen on `host:port`, and return the address with the real port; plain text on loopback alone."""
        require_safe(address, self._tls, insecure=False, what="the plugin's endpoint")
        server = grpc.aio.server(interceptors=[_Door(self._secret)], options=_OPTIONS)
        for add in self._services:
            add(server)
        if self._tls:
            port = server.add_secure_port(address, server_credentials(self._tls))
        else:
            port = server.add_insecure_port(address)
        await server.start()
        self._server = server
        return f"{address.rpartition(':')[0]}:{port}"

    async def stop(self, grace: float = 5.0) -> None:
        """Let calls end, and stop."""
        if self._server is not None:
            await self._server.stop(grace)
            self._server = None
