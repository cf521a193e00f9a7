"""The installed services, found by entry point: the command line imports none of them by name."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from hopline_rpc import logs
from hopline_rpc.errors import HoplineError
from hopline_rpc.service import ENTRY_POINTS, ORDER, GrpcService, HttpService, RunningService, Service
from hopline_rpc.settings import ServiceSettings

log = logging.getLogger("hopline.run")

_READY_POLL: Final = 0.02
_READY_SECONDS: Final = 30.0
_DRAIN_SECONDS: Final = 8.0
# Calls leave few cycles behind; looking for them after every 700 new objects is a tenth of a call's cost.
_COLLECT: Final = (20_000, 20, 50)


def available() -> dict[str, EntryPoint]:
    """Return the installed services, not yet imported, in the order in which they are opened."""
    found = {point.name: point for point in entry_points(group=ENTRY_POINTS)}
    return {name: found[name] for name in ORDER if name in found}


def installed() -> dict[str, Service]:
    """Import every installed service."""
    return {name: point.load() for name, point in available().items()}


def configure_logs(settings: ServiceSettings) -> None:
    """Send logs to standard error as the settings say."""
    logs.configure(settings.log_level, settings.log_format)
    # A dozen lines at every start that say nothing of this mesh.
    for name in ("alembic", "uvicorn.error"):
        logging.getLogger(name).setLevel(logging.WARNING)


async def listen(running: RunningService, bind: str) -> str:
    """Open a service's port and return its address, with the real number for port 0."""
    if isinstance(running, GrpcService):
        return await running.server.start(bind)
    if isinstance(running, HttpService):
        return await running.start(bind)
    raise TypeError(f"the service {running.name} has no way to listen")


async def wait_until_ready(services: Sequence[RunningService]) -> None:
    """Wait until every service can serve; one that never gets there is named."""
    for service in services:
        try:
            async with asyncio.timeout(_READY_SECONDS):
                while not await service.ready():  # noqa: ASYNC110 - the services have no event for it
                    await asyncio.sleep(_READY_POLL)
        except TimeoutError:
            raise HoplineError(
                "unavailable", f"the {service.name} was not ready within {_READY_SECONDS:.0f} s"
            ) from None


def settle_collector() -> None:
    """Spare the collector what stays for good: modules, contracts, services. To be called when all is up."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT)


async def close_all(services: Sequence[RunningService]) -> None:
    """Drain and close services, the last opened first; what takes too long is closed all the same."""
    for service in reversed(services):
        try:
            async with asyncio.timeout(_DRAIN_SECONDS):
                await service.drain()
        except TimeoutError:
            log.warning("the %s did not drain within %.0f s", service.name, _DRAIN_SECONDS)
        except Exception:
            log.exception("the %s could not be drained", service.name)
    for service in reversed(services):
        try:
            await service.close()
        except Exception:
            log.exception("the %s could not be closed", service.name)
