"""Runs the registry alone: `python -m hopline_registry`."""

from __future__ import annotations

import asyncio
import signal

from hopline_rpc.service import Wiring

from hopline_registry.app import SERVICE
from hopline_registry.settings import RegistrySettings


async def main() -> None:
    """Serve until told to stop, then drain."""
    settings = RegistrySettings.load()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    registry = await SERVICE.open(Wiring())
    try:
        await registry.server.start(settings.bind or f"127.0.0.1:{SERVICE.default_port}")
        await stop.wait()
        await registry.drain()
    finally:
        await registry.close()


if __name__ == "__main__":
    asyncio.run(main())
