"""What a service is to whoever runs it: `hopline up` opens all in one process, `hopline serve X` one.

Each service's `app.py` exports `SERVICE`, found by the entry point group `hopline.services`. The runner
opens the registry first, then quota, relay and gateway; a service finds those before it in
`wiring.channels`, in process or dialled, and cannot tell which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

from hopline_rpc.channels import ChannelLike, ClientChannel, bearer
from hopline_rpc.clock import Clock, SystemClock
from hopline_rpc.errors import HoplineError
from hopline_rpc.ids import IdMaker, Ids
from hopline_rpc.serving import Server

ENTRY_POINTS: Final = "hopline.services"
# Opened in this order, drained and closed in the opposite one.
ORDER: Final = ("registry", "quota", "relay", "gateway", "console")


def _no_token() -> str:
    raise HoplineError("failed_precondition", "this process has no service token")


@dataclass(frozen=True)
class Wiring:
    """Everything a service gets from outside."""

    # Where this mesh keeps its files; None: the service keeps nothing, or its settings say where.
    data_dir: Path | None = None
    # The services opened before, by name.
    channels: Mapping[str, ChannelLike] = field(default_factory=dict)
    clock: Clock = field(default_factory=SystemClock)
    ids: IdMaker = field(default_factory=lambda: Ids(SystemClock()))
    # This process's own credential, asked for at the moment of each call: it may be renewed.
    service_token: Callable[[], str] = _no_token
    # The mesh's settings, by name as in the environment without `HOPLINE_`, lower case; they win over it.
    settings: Mapping[str, str] = field(default_factory=dict)
    # All services in this process: one file each, memory stores for what can be rebuilt.
    embedded: bool = False

    def channel(self, service: str) -> ClientChannel:
        """Return a channel to another service that carries this process's credential, trace and deadline."""
        channel = self.channels.get(service)
        if channel is None:
            raise HoplineError("failed_precondition", f"no address of the {service} service was given")
        return ClientChannel(channel, bearer(self.service_token))


class RunningService(Protocol):
    """A service that has been opened."""

    @property
    def name(self) -> str:
        """The service's name."""
        ...

    async def ready(self) -> bool:
        """Tell whether its stores answer and it can serve."""
        ...

    async def drain(self) -> None:
        """Finish what runs and take nothing new; called before `close`."""
        ...

    async def close(self) -> None:
        """Close everything `open` opened. Safe to call twice, and after a failed drain."""
        ...


@runtime_checkable
class Explaining(Protocol):
    """A service that says what keeps it from serving."""

    async def missing(self) -> Sequence[str]:
        """Return what is missing, in words for whoever runs it; nothing when it is ready."""
        ...


@runtime_checkable
class GrpcService(RunningService, Protocol):
    """A running service with a gRPC server, not yet started: the runner decides where it listens."""

    @property
    def server(self) -> Server:
        """The server; `server.channel()` reaches it inside the process."""
        ...


@runtime_checkable
class HttpService(RunningService, Protocol):
    """A running service with an HTTP server, not yet started: the runner decides where it listens."""

    async def start(self, bind: str) -> str:
        """Listen on `host:port` and return the URL, with the real number for port 0."""
        ...


class Service(Protocol):
    """What an `app.py` exports as `SERVICE`."""

    @property
    def name(self) -> str:
        """The service's name, as in `hopline serve NAME`."""
        ...

    @property
    def default_port(self) -> int:
        """Where it listens unless told otherwise."""
        ...

    async def open(self, wiring: Wiring) -> RunningService:
        """Build the service: open its stores, migrate, start its workers. Opens no port."""
        ...
