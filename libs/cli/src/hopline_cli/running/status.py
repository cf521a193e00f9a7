"""What a process of services says of itself: on a port of its own, and to a collector where one is named."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import Final

from hopline_rpc.clock import Clock, SystemClock
from hopline_rpc.errors import HoplineError
from hopline_rpc.metrics import Family, Labels, Measured, Source, gather, gauges
from hopline_rpc.metrics_otlp import Pushing, pushing
from hopline_rpc.otel import service_name
from hopline_rpc.service import Explaining, GrpcService, RunningService
from hopline_rpc.serving import PortInUseError
from hopline_rpc.settings import ServiceSettings
from hopline_rpc.status_port import Answer, Asked, StatusPort, as_text

log = logging.getLogger("hopline.run")

OFF: Final = "off"
# Where each kind of process says how it is, unless told otherwise.
PORTS: Final = {
    "hopline": 7490,
    "gateway": 7490,
    "registry": 7491,
    "relay": 7492,
    "quota": 7493,
    "console": 7494,
}


class Status:
    """The status of a process that is to run these services, from before the first of them is open."""

    def __init__(
        self,
        name: str,
        expected: Iterable[str],
        services: Sequence[RunningService],
        settings: ServiceSettings,
        *,
        any_port: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._expected = tuple(expected)
        # Those that are open: it grows.
        self._services = services
        self._bind = settings.metrics.strip()
        self._usual = 0 if any_port else PORTS[name]
        self._resource: Labels = {
            "service.name": service_name("hopline" if name == "hopline" else f"hopline-{name}"),
            "service.version": version("hopline-rpc"),
        }
        paths = {"/metrics": self._metrics, "/healthz": self._healthz, "/readyz": self._readyz}
        self._port = StatusPort(paths, settings.tls, insecure=settings.insecure)
        self._pushing: Pushing | None = pushing(self.families, self._resource, clock or SystemClock())

    async def start(self) -> str | None:
        """Open the port and return its URL; None where it was switched off."""
        if self._pushing is not None:
            self._pushing.start()
        if self._bind == OFF:
            return None
        if self._bind:
            return await self._port.start(self._bind)
        try:
            return await self._port.start(f"127.0.0.1:{self._usual}")
        except PortInUseError:
            url = await self._port.start("127.0.0.1:0")
            log.info("port %d is taken; metrics are at %s (HOPLINE_METRICS says where)", self._usual, url)
            return url

    async def stop(self) -> None:
        """Close the port, and send what was counted since the last time."""
        await self._port.stop()
        if self._pushing is not None:
            await self._pushing.close()

    async def families(self) -> list[Family]:
        """Return everything that is measured here."""
        ready = {name: float(not missing) for name, missing in (await self._missing()).items()}
        text = "1 where a service can serve, 0 where not."
        return [
            gauges("hopline.ready", "{service}", text, ready, "hopline.service"),
            *await gather([_source(each) for each in self._services]),
        ]

    async def _metrics(self, asked: Asked) -> Answer:
        from hopline_rpc.metrics_text import expose  # no memory for it where nobody asks

        body, content_type = expose(await self.families(), asked.get("accept", ""), self._resource)
        return Answer(200, content_type, body)

    async def _healthz(self, asked: Asked) -> Answer:
        return as_text(200, "ok")

    async def _readyz(self, asked: Asked) -> Answer:
        said = [
            f"{name}: {'; '.join(missing)}" for name, missing in (await self._missing()).items() if missing
        ]
        return as_text(503, "\n".join(["not ready", *said])) if said else as_text(200, "ready")

    async def _missing(self) -> dict[str, Sequence[str]]:
        """Return what keeps each service from serving, in words."""
        found: dict[str, Sequence[str]] = dict.fromkeys(self._expected, ("it is starting",))
        return found | {each.name: await missing_of(each) for each in self._services}


async def missing_of(service: RunningService) -> Sequence[str]:
    """Return what keeps a service from serving; one that fails over the question cannot serve."""
    try:
        if isinstance(service, Explaining):
            return await service.missing()
        return () if await service.ready() else ("it is not ready",)
    except HoplineError as error:
        return (error.message,)


def _source(service: RunningService) -> Source:
    return Source(
        service.name,
        service if isinstance(service, Measured) else None,
        service.server.stats if isinstance(service, GrpcService) else None,
    )
