"""A gRPC server as every service runs it: ports, health, reflection, drain.

The same servicers answer on the socket and, through `channel()`, inside the process.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import grpc
import grpc.aio

from hopline_rpc.auth import Authenticator
from hopline_rpc.calls import LiveCalls
from hopline_rpc.channels import MAX_MESSAGE
from hopline_rpc.clock import Clock
from hopline_rpc.errors import HoplineError
from hopline_rpc.ids import IdMaker
from hopline_rpc.inprocess import InProcessChannel, InProcessServer
from hopline_rpc.interceptors import Handler, Interceptor, Refused
from hopline_rpc.rules import Rules
from hopline_rpc.stats import RpcStats
from hopline_rpc.tls import TlsSettings, host_of, require_safe

if TYPE_CHECKING:
    from grpc_health.v1.health import aio as health_aio

log = logging.getLogger("hopline.serving")

Servicer = TypeVar("Servicer")

# What orchestrators ask in; a drain waits one of these so that no new caller is sent here.
PROBE_SECONDS: Final = 2.0
_READY_POLL: Final = 0.2
_HEALTHY_POLL: Final = 5.0
_HEALTH: Final = "grpc.health.v1.Health"
SERVER_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_send_message_length", MAX_MESSAGE),
    ("grpc.max_metadata_size", 32 * 1024),
    # Two servers must not share a port: the second has to fail.
    ("grpc.so_reuseport", 0),
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
)


class PortInUseError(HoplineError):
    """The address to listen on belongs to another process."""

    def __init__(self, address: str) -> None:
        super().__init__(
            "failed_precondition", f"{address} is in use by another process; stop it or choose another port"
        )


async def _always_ready() -> bool:
    return True


class Server:
    """One service's server."""

    def __init__(
        self,
        name: str,
        *,
        authenticator: Authenticator | None,
        clock: Clock,
        ids: IdMaker,
        ready: Callable[[], Awaitable[bool]] = _always_ready,
        tls: TlsSettings | None = None,
        insecure: bool = False,
        max_concurrent_calls: int = 20_000,
        refused: Refused | None = None,
    ) -> None:
        self.name = name
        # Where it listens; empty before it does.
        self.address = ""
        self._clock = clock
        self._ready = ready
        self._tls = tls
        self._insecure = insecure
        self._max_concurrent_calls = max_concurrent_calls
        self._interceptor = Interceptor(name, authenticator, ids, refused)
        self._inner = InProcessServer(self._interceptor)
        self._grpc: grpc.aio.Server | None = None
        self._health: health_aio.HealthServicer | None = None
        self._watching: asyncio.Task[None] | None = None

    @property
    def stats(self) -> RpcStats:
        """What was answered so far."""
        return self._interceptor.stats

    @property
    def live(self) -> LiveCalls:
        """The calls being served; a revocation ends those of a principal with it."""
        return self._interceptor.live

    def add(self, register: Callable[[Servicer, grpc.aio.Server], None], servicer: Servicer) -> None:
        """Take a servicer: `server.add(add_MessageServiceServicer_to_server, MessageServicer(...))`."""
        if self._grpc is not None:
            raise RuntimeError("servicers are added before the server starts")
        register(servicer, self._inner)

    def channel(self) -> InProcessChannel:
        """Return a channel to these servicers that needs no socket; usable before `start`."""
        return self._inner.channel()

    async def start(self, bind: str) -> str:
        """Open a port and return its address, with the real number for port 0.

        `bind` is `host:port` or `unix:/path`. Health says NOT_SERVING until the readiness check passes.
        """
        if self._grpc is not None:
            raise RuntimeError("the server has been started")
        require_safe(bind, self._tls, insecure=self._insecure, what="the address")
        await self._add_standard_services()
        server = grpc.aio.server(options=SERVER_OPTIONS, maximum_concurrent_rpcs=self._max_concurrent_calls)
        # Not as registered methods: of those the server awaits each one anew with every call it takes.
        server.add_generic_rpc_handlers([_ByPath(self._inner.handlers)])
        address = self._open_port(server, bind)
        await server.start()
        self._grpc = server
        self.address = address
        self._watching = asyncio.create_task(self._watch_readiness(), name=f"{self.name} readiness")
        return address

    def _open_port(self, server: grpc.aio.Server, bind: str) -> str:
        unix = bind.startswith("unix")
        if not unix:
            _require_free(bind)
        # A socket file is for its owner only from the first moment on.
        mask = os.umask(0o177) if unix else None
        try:
            if self._tls:
                # Imported by those who use it: most ports are loopback ones without TLS.
                from hopline_rpc.certificates import server_credentials

                port = server.add_secure_port(bind, server_credentials(self._tls))
            else:
                port = server.add_insecure_port(bind)
        except RuntimeError as error:
            what = " with these TLS files" if self._tls else ""
            raise HoplineError("failed_precondition", f"cannot listen on {bind}{what}") from error
        finally:
            if mask is not None:
                os.umask(mask)
        return bind if unix else f"{bind.rpartition(':')[0]}:{port}"

    async def _add_standard_services(self) -> None:
        """Add health and reflection for everyone, and gRPC's view of its connections for services."""
        from grpc_channelz.v1 import channelz_pb2_grpc
        from grpc_channelz.v1.channelz import aio as channelz_aio
        from grpc_health.v1 import health_pb2_grpc
        from grpc_health.v1.health import aio as health_aio
        from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc

        offered = [*self._inner.services, _HEALTH, reflection.SERVICE_NAME]
        everyone = _Ruled(self._inner, Rules(public=True, traced=False))
        services = _Ruled(self._inner, Rules(allow=frozenset({"service"}), traced=False))
        self._health = health_aio.HealthServicer()
        # It starts out as SERVING by itself; nothing is ready yet.
        await self._set_health(self._health, serving=False)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, everyone)
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(
            reflection.aio.ReflectionServicer(offered), everyone
        )
        channelz_pb2_grpc.add_ChannelzServicer_to_server(channelz_aio.ChannelzServicer(), services)

    async def _set_health(self, health: health_aio.HealthServicer, *, serving: bool) -> None:
        from grpc_health.v1.health_pb2 import HealthCheckResponse

        status = HealthCheckResponse.SERVING if serving else HealthCheckResponse.NOT_SERVING
        for service in ("", *self._inner.services):
            await health.set(service, status)

    async def _watch_readiness(self) -> None:
        """Keep the health service saying what the readiness check says."""
        serving = False
        while self._health is not None:
            ready = await self._is_ready()
            if ready != serving:
                serving = ready
                log.log(
                    logging.INFO if ready else logging.WARNING,
                    "%s is %s",
                    self.name,
                    "ready" if ready else "not ready any more",
                )
                await self._set_health(self._health, serving=serving)
            await self._clock.sleep(_HEALTHY_POLL if serving else _READY_POLL)

    async def _is_ready(self) -> bool:
        try:
            return await self._ready()
        except Exception:
            # Asked several times a second while it fails; what changes is logged by the caller.
            log.debug("%s: the readiness check failed", self.name, exc_info=True)
            return False

    async def drain(self, grace: float = 10.0, *, probe_seconds: float = PROBE_SECONDS) -> None:
        """Leave without dropping anyone: stop being sent callers, end the streams, finish the rest.

        Health says NOT_SERVING at once; new calls are still served for one probe period; then streams
        are told to go elsewhere, and running calls get `grace` seconds.
        """
        await self._stop_watching()
        if self._health is not None:
            await self._health.enter_graceful_shutdown()
            await self._clock.sleep(probe_seconds)
        leaving = HoplineError("unavailable", "the service is shutting down; connect again")
        self.live.end(lambda call: call.streaming, leaving)
        await self.stop(grace)

    async def stop(self, grace: float | None = None) -> None:
        """Close the port; calls that still run get `grace` seconds, then they are cancelled."""
        await self._stop_watching()
        if self._grpc is not None:
            await asyncio.gather(self._grpc.stop(grace), self._inner.stop(grace))
        else:
            await self._inner.stop(grace)

    async def _stop_watching(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
            self._watching = None


def _require_free(bind: str) -> None:
    """Say in one line why a port cannot be opened; gRPC would log a page and tell only that it failed."""
    host, port = host_of(bind), bind.rpartition(":")[2]
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, int(port)))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortInUseError(bind) from None
        raise HoplineError("failed_precondition", f"cannot listen on {bind}: {error.strerror}") from None
    except (ValueError, OverflowError):
        raise HoplineError("invalid_argument", f"cannot listen on {bind}: not host:port") from None


class _ByPath(grpc.GenericRpcHandler):
    """Finds a method's handler by its path."""

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self._handlers = handlers

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Handler | None:
        """Return the handler; None where there is no such method."""
        return self._handlers.get(handler_call_details.method)


class _Ruled:
    """Takes the handlers that a generated function registers, with rules that are not in its contract."""

    def __init__(self, inner: InProcessServer, rules: Rules) -> None:
        self._inner = inner
        self._rules = rules

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """Ignore: the same handlers come by method as well."""

    def add_registered_method_handlers(self, service: str, handlers: Any) -> None:
        """Register them."""
        self._inner.add_service(service, handlers, dict.fromkeys(handlers, self._rules))
