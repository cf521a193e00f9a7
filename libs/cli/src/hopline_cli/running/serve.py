"""`hopline serve NAME`: one service of a mesh in a process of its own."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from hopline_client.discovery import DEFAULT_DATA, read_token
from hopline_rpc import telemetry
from hopline_rpc.channels import ClientChannel, dial
from hopline_rpc.errors import HoplineError
from hopline_rpc.service import ORDER, RunningService, Service, Wiring
from hopline_rpc.settings import ServiceSettings
from hopline_rpc.span_export import SqliteSpanExporter

from hopline_cli.output import Output
from hopline_cli.running.datadir import SPANS, ServiceDirectory
from hopline_cli.running.services import available, close_all, configure_logs, listen, settle_collector
from hopline_cli.running.signals import stop_on_signals
from hopline_cli.running.status import Status

_TOKEN_SECONDS: Final = 5.0
# These keep a database; the others need no folder.
_STORING: Final = frozenset({"registry", "relay", "quota"})


class ServeSettings(ServiceSettings):
    """Where the other services are, this one's credential, and its folder."""

    registry: str = "127.0.0.1:7401"
    relay: str = "127.0.0.1:7402"
    quota: str = "127.0.0.1:7403"
    service_token_file: Path | None = None
    data: Path | None = None


async def run_serve(name: str, *, bind: str, data: Path | None, single: str = "", out: Output) -> None:
    """Run one service until told to stop. Raises `HoplineError` where it cannot start."""
    os.umask(0o077)  # whatever lands in the folder is for its owner
    service = _service(name)
    if single and name != "gateway":
        raise HoplineError("invalid_argument", "--single is for the gateway, which serves the agents")
    settings = ServeSettings.load({"bind": bind} if bind else None)
    token = _token_of(settings)
    if name != ORDER[0]:
        token()  # a missing one is said now, not at the first call
    configure_logs(settings)
    async with AsyncExitStack() as stack:
        place = _folder(name, data or settings.data)
        if place is not None:
            stack.enter_context(place)
        folder = None if place is None else place.path
        store = None if folder is None else folder / SPANS
        spans = telemetry.setup(f"hopline-{name}", None if store is None else SqliteSpanExporter(store))
        if spans is not None:
            stack.callback(spans.shutdown)
        channels = _channels(name, settings)
        for channel in channels.values():
            stack.push_async_callback(channel.close)
        stop = stop_on_signals()
        wiring = Wiring(
            data_dir=folder,
            channels=channels,
            service_token=token,
            settings={"single": single} if single else {},
        )
        services: list[RunningService] = []
        stack.push_async_callback(close_all, services)
        status = Status(name, (name,), services, settings, any_port=not _is_usual(settings.bind, service))
        stack.push_async_callback(status.stop)
        metrics = await status.start()
        running = await _opened(service, wiring, stop)
        if running is None:
            return
        services.append(running)
        address = await listen(running, settings.bind or _usual(service))
        if place is not None:
            place.announce(address, metrics)
            stack.callback(place.withdraw)
        out.result({"service": name, "address": address}, f"the {name} listens on {address}")
        out.flush()
        settle_collector()
        await stop.wait()


def _usual(service: Service) -> str:
    return f"127.0.0.1:{service.default_port}"


def _is_usual(bind: str, service: Service) -> bool:
    """Tell whether a service is where it usually is: then its status is, too."""
    return not bind or bind.endswith(f":{service.default_port}")


def _folder(name: str, given: Path | None) -> ServiceDirectory | None:
    """Return the data directory to take part in; a service that stores nothing needs none."""
    if given is None and name in _STORING:
        given = DEFAULT_DATA
    return None if given is None else ServiceDirectory(given.expanduser().absolute(), name)


async def _opened(service: Service, wiring: Wiring, stop: asyncio.Event) -> RunningService | None:
    """Open the service, which may wait for others; None when told to stop before it is open."""
    opening = asyncio.ensure_future(service.open(wiring))
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((opening, stopping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        if not opening.done():
            opening.cancel()
            await asyncio.wait({opening})
    return None if opening.cancelled() else opening.result()


def _service(name: str) -> Service:
    found = available()
    if name not in found:
        raise HoplineError("invalid_argument", f"there is no service {name!r}: {', '.join(found)}")
    service: Service = found[name].load()
    return service


def _channels(name: str, settings: ServeSettings) -> dict[str, ClientChannel]:
    """Dial the services that come before this one; nobody calls those that come after it."""
    before = ORDER[: ORDER.index(name)]
    addresses = {"registry": settings.registry, "relay": settings.relay, "quota": settings.quota}
    tls = settings.tls or None
    return {
        each: dial(addresses[each], tls=tls, insecure=settings.insecure)
        for each in before
        if each in addresses
    }


def _token_of(settings: ServeSettings) -> Callable[[], str]:
    """Return what reads the service token: again every few seconds, for it may be replaced."""
    kept: tuple[float, str] = (-_TOKEN_SECONDS, "")

    def token() -> str:
        nonlocal kept
        if time.monotonic() - kept[0] >= _TOKEN_SECONDS:
            kept = (time.monotonic(), _read_token(settings.service_token_file))
        return kept[1]

    return token


def _read_token(path: Path | None) -> str:
    if path is None:
        raise HoplineError(
            "failed_precondition",
            "this service has no credential: set HOPLINE_SERVICE_TOKEN_FILE to a file with a token made by"
            " `hopline token create --service NAME --data DIR`, DIR being the registry's",
        )
    try:
        return read_token(path)
    except HoplineError as error:
        raise HoplineError(error.reason, f"HOPLINE_SERVICE_TOKEN_FILE: {error.message}") from None
