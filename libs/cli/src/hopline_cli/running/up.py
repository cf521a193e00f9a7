"""`hopline up`: the whole mesh in one process and one event loop."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

from hopline_client.discovery import read_token
from hopline_rpc import telemetry
from hopline_rpc.clock import SystemClock
from hopline_rpc.errors import HoplineError
from hopline_rpc.ids import Ids
from hopline_rpc.service import GrpcService, RunningService, Service, Wiring
from hopline_rpc.settings import (
    PublicUrl,
    SingleAgent,
    StoreSettings,
    public_url_problem,
    setting_names,
)
from hopline_rpc.span_export import SqliteSpanExporter

from hopline_cli.output import Output, warn
from hopline_cli.running.config import UpConfig, read_config
from hopline_cli.running.datadir import ADMIN_TOKEN, SPANS, DataDirectory
from hopline_cli.running.mesh_agents import Known, Registry, Settled, check, connected, settle
from hopline_cli.running.services import (
    close_all,
    configure_logs,
    installed,
    listen,
    settle_collector,
    wait_until_ready,
)
from hopline_cli.running.signals import stop_on_signals
from hopline_cli.running.status import Status

_NAME: Final = "embedded"
# There once a mesh has been started here: from then on its registry knows whom a file may name.
_REGISTRY: Final = "registry.db"


@runtime_checkable
class TokenMaker(Protocol):
    """What the registry of an embedded mesh does for the process it runs in."""

    async def service_token(self, name: str) -> str:
        """Make this process's own credential."""
        ...


class UpSettings(StoreSettings):
    """What concerns the mesh as a whole."""

    public_url: PublicUrl = ""
    single: SingleAgent = ""


@dataclass
class EmbeddedMesh:
    """The services of one mesh, wired to each other in this process."""

    data: Path
    config: UpConfig
    any_port: bool = False
    services: Mapping[str, Service] = field(default_factory=installed)
    running: list[RunningService] = field(default_factory=list)
    addresses: dict[str, str] = field(default_factory=dict)
    settled: Settled = field(default_factory=Settled)
    _token: str = ""

    async def start(self) -> None:
        """Open every service in order, each with its port, and wait until all can serve."""
        clock = SystemClock()
        ids = Ids(clock)
        channels: dict[str, object] = {}
        for name, service in self.services.items():
            wiring = Wiring(
                data_dir=self.data,
                channels=dict(channels),  # type: ignore[arg-type] # in-process channels are what stubs take
                clock=clock,
                ids=ids,
                service_token=lambda: self._token,
                settings=self.config.settings,
                embedded=True,
            )
            running = await service.open(wiring)
            self.running.append(running)
            if isinstance(running, TokenMaker):
                self._token = await running.service_token(_NAME)
            if isinstance(running, GrpcService):
                channels[name] = running.server.channel()
            self.addresses[name] = await listen(running, self._bind(service))
            if name == "registry" and self.config.agents:
                self.settled = await self._settle(running)
        await wait_until_ready(self.running)

    async def _settle(self, registry: RunningService) -> Settled:
        """Have the agents of the file, before anything else can meet them."""
        if not isinstance(registry, GrpcService):
            raise TypeError("the registry has no methods to call")
        token = read_token(self.data / ADMIN_TOKEN)
        url = UpSettings.load(self.config.settings).public_url
        return await settle(self.config, Registry(registry.server.channel(), token), has_public_url=bool(url))

    def _bind(self, service: Service) -> str:
        given = self.config.listen.get(service.name)
        return given or f"127.0.0.1:{0 if self.any_port else service.default_port}"

    async def stop(self) -> None:
        """Drain and close what was opened."""
        await close_all(self.running)


async def run_up(
    data: Path,
    config_file: Path | None,
    *,
    any_port: bool,
    out: Output,
    public_url: str = "",
    single: str = "",
) -> None:
    """Run a mesh until told to stop. Raises `HoplineError` where it cannot start."""
    os.umask(0o077)  # whatever lands in the data directory is for its owner
    services = installed()
    config = _config(data, config_file, public_url, single)
    settings = UpSettings.load(config.settings)
    if settings.database_url:
        # Not passed over: somebody may think that what happens here is kept there.
        raise HoplineError(
            "failed_precondition",
            "`hopline up` keeps its mesh in SQLite; HOPLINE_DATABASE_URL is for `hopline serve`",
        )
    configure_logs(settings)
    with DataDirectory(data) as directory:
        spans = telemetry.setup("hopline", SqliteSpanExporter(data / SPANS))
        mesh = EmbeddedMesh(data, config, any_port, services)
        async with AsyncExitStack() as stack:
            if spans is not None:
                stack.callback(spans.shutdown)
            stack.push_async_callback(mesh.stop)
            stack.callback(directory.withdraw)
            stop = stop_on_signals()
            is_first = not (data / ADMIN_TOKEN).exists()
            status = Status("hopline", services, mesh.running, settings, any_port=any_port)
            stack.push_async_callback(status.stop)
            metrics = await status.start()
            await _start(mesh)
            _tell(out, directory.announce(mesh.addresses, metrics), data, is_first=is_first)
            _tell_agents(out, mesh.settled, is_first=is_first)
            settle_collector()
            await stop.wait()
            if not out.as_json:
                out.line("draining …")
                out.flush()


def _config(data: Path, file: Path | None, public_url: str, single: str) -> UpConfig:
    """Read the file; one that is wrong stops the start before anything is made, where that can be told."""
    config = read_config(file, setting_names())
    if single:
        config = replace(config, settings={**config.settings, "single": single})
    if UpSettings.load(config.settings).single:
        config = replace(config, problems=(*config.problems, *connected(config)))
    if not (config.agents and (data / _REGISTRY).exists()):
        check(config, Known())
    if not public_url:
        return config
    if problem := public_url_problem(public_url):
        raise HoplineError("invalid_argument", f"--public-url {problem}")
    return replace(config, settings={**config.settings, "public_url": public_url})


async def _start(mesh: EmbeddedMesh) -> None:
    try:
        await mesh.start()
    except HoplineError as error:
        if "in use" in error.message:
            text = f"{error.message} (or use --any-port)"
            raise HoplineError(error.reason, text, details=error.details) from None
        raise


def _tell(out: Output, endpoints: Mapping[str, object], data: Path, *, is_first: bool) -> None:
    if out.as_json:
        out.json(dict(endpoints))
    else:
        out.line(f"Hopline is up: {endpoints['gateway']} (data in {data})")
        for name in ("console", "registry", "relay", "quota"):
            out.line(f"  {name:<9}{endpoints[name]}")
        if endpoints["metrics"]:
            out.line(f"  {'metrics':<9}{endpoints['metrics']}/metrics")
        if is_first:
            out.line(f"the admin token was written to {data / ADMIN_TOKEN} (for you alone)")
    out.flush()


def _tell_agents(out: Output, settled: Settled, *, is_first: bool) -> None:
    for text in settled.warnings:
        warn(text)
    if out.as_json:
        return
    if settled.changed:
        out.line(f"agents changed as the file says: {', '.join(settled.changed)}")
    if settled.created:
        out.line(f"agents made: {', '.join(settled.created)}")
        example = f"hopline token create --agent {settled.created[0]} --token-file {settled.created[0]}.token"
        out.line(f"nobody has a token of theirs yet: {example}")
        out.line(f"next: hopline attach --agent {settled.created[-1]} -- COMMAND")
    elif is_first:
        out.line("next: hopline agent create NAME, then hopline attach --agent NAME -- COMMAND")
    out.flush()
