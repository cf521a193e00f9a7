"""`hopline serve NAME`: one service of a mesh in a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from hopline_rpc import telemetry
from hopline_rpc.channels import ClientChannel, dial
from hopline_rpc.errors import HoplineError
from hopline_rpc.service import ORDER, Service, Wiring
from hopline_rpc.settings import ServiceSettings

from hopline_cli.output import Output
from hopline_cli.running.services import available, close_all, configure_logs, listen
from hopline_cli.running.signals import stop_on_signals

_TOKEN_SECONDS: Final = 5.0


class ServeSettings(ServiceSettings):
    """Where the other services are, and this one's credential."""

    registry: str = "127.0.0.1:7401"
    relay: str = "127.0.0.1:7402"
    quota: str = "127.0.0.1:7403"
    service_token_file: Path | None = None


async def run_serve(name: str, *, bind: str, data: Path | None, out: Output) -> None:
    """Run one service until told to stop. Raises `HoplineError` where it cannot start."""
    service = _service(name)
    settings = ServeSettings.load({"bind": bind} if bind else None)
    configure_logs(settings)
    spans = telemetry.setup(f"hopline-{name}")
    channels = _channels(name, settings)
    wiring = Wiring(data_dir=data, channels=channels, service_token=_token_of(settings))
    stop = stop_on_signals()
    running = None
    try:
        running = await service.open(wiring)
        address = await listen(running, settings.bind or f"127.0.0.1:{service.default_port}")
        out.result({"service": name, "address": address}, f"the {name} listens on {address}")
        out.flush()
        await stop.wait()
    finally:
        await close_all([] if running is None else [running])
        for channel in channels.values():
            await channel.close()
        if spans is not None:
            spans.shutdown()


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
    import time

    kept: tuple[float, str] = (-_TOKEN_SECONDS, "")

    def token() -> str:
        nonlocal kept
        if time.monotonic() - kept[0] >= _TOKEN_SECONDS:
            kept = (time.monotonic(), _read_token(settings.service_token_file))
        return kept[1]

    return token


def _read_token(path: Path | None) -> str:
    from hopline_client.discovery import read_token

    if path is None:
        raise HoplineError(
            "failed_precondition",
            "this service has no credential: set HOPLINE_SERVICE_TOKEN_FILE to a file with a token made by"
            " `hopline token create --service NAME`",
        )
    return read_token(path)
