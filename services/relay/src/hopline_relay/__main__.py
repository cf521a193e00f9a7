"""Runs the relay alone: `python -m hopline_relay`."""

from __future__ import annotations

import asyncio
import signal
import sys

from hopline_rpc import logs
from hopline_rpc.channels import dial
from hopline_rpc.errors import HoplineError
from hopline_rpc.service import Wiring

from hopline_relay.app import SERVICE
from hopline_relay.settings import RelaySettings


async def main() -> None:
    """Serve until told to stop, then drain."""
    settings = RelaySettings.load()
    settings.service_token()  # a missing one is said now, not at the first call
    logs.configure(settings.log_level, settings.log_format)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    tls, insecure = settings.tls, settings.insecure
    async with (
        dial(settings.registry, tls=tls, insecure=insecure) as registry,
        dial(settings.quota, tls=tls, insecure=insecure) as quota,
    ):
        wiring = Wiring(channels={"registry": registry, "quota": quota}, service_token=settings.service_token)
        await serve(settings, wiring, stop)


async def serve(settings: RelaySettings, wiring: Wiring, stop: asyncio.Event) -> None:
    """Open the service and its port, and close both when `stop` is set, also while it is opening."""
    opening = asyncio.ensure_future(SERVICE.open(wiring))
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait((opening, stopping), return_when=asyncio.FIRST_COMPLETED)
    if not opening.done():
        opening.cancel()
        await asyncio.wait({opening})
        return
    relay = opening.result()
    try:
        await relay.server.start(settings.bind or f"127.0.0.1:{SERVICE.default_port}")
        await stopping
        await relay.drain()
    finally:
        await relay.close()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except HoplineError as error:
        sys.exit(f"hopline_relay: {error.message}")
