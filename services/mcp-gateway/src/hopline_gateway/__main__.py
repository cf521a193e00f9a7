"""Runs the gateway alone: `python -m hopline_gateway`."""

from __future__ import annotations

import asyncio
import signal
import sys
from contextlib import AsyncExitStack

from hopline_rpc import logs
from hopline_rpc.channels import dial
from hopline_rpc.errors import HoplineError
from hopline_rpc.service import Wiring

from hopline_gateway.app import SERVICE
from hopline_gateway.settings import GatewaySettings


async def main() -> None:
    """Serve until told to stop, then drain."""
    settings = GatewaySettings.load()
    settings.service_token()  # a missing one is said now, not at the first call
    logs.configure(settings.log_level, settings.log_format)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with AsyncExitStack() as stack:
        channels = {}
        for name in ("registry", "relay", "quota"):
            channel = dial(getattr(settings, name), tls=settings.tls or None, insecure=settings.insecure)
            channels[name] = await stack.enter_async_context(channel)
        gateway = await SERVICE.open(Wiring(channels=channels, service_token=settings.service_token))
        stack.push_async_callback(gateway.close)
        await gateway.start(settings.bind)
        await stop.wait()
        await gateway.drain()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except HoplineError as error:
        sys.exit(f"hopline_gateway: {error.message}")
