"""The quota service, put together."""

from __future__ import annotations

from typing import Final

from hopline.quota.v1.admission_pb2_grpc import add_AdmissionServiceServicer_to_server
from hopline.quota.v1.usage_pb2_grpc import add_UsageServiceServicer_to_server
from hopline_directory import Guard
from hopline_rpc.principals import AssertionVerifier
from hopline_rpc.service import Wiring
from hopline_rpc.serving import Server
from hopline_rpc.settings import ServiceSettings

from hopline_quota.admission import Admission
from hopline_quota.servicers.admission import AdmissionServicer
from hopline_quota.servicers.usage import UsageServicer
from hopline_quota.store.memory import MemoryStore
from hopline_quota.usage import UsageReader


class RunningQuota:
    """The service, open. Its counters are empty until a relay seeds them."""

    name = "quota"

    def __init__(self, server: Server, guard: Guard, *, embedded: bool) -> None:
        self.server = server
        self._guard = guard
        self._embedded = embedded

    async def ready(self) -> bool:
        """Tell whether it knows who may call."""
        return self._guard.follower.fresh

    async def drain(self) -> None:
        """Finish what runs and take nothing new."""
        if self._embedded:
            await self.server.drain(probe_seconds=0.0)  # nobody probes a part of one process
        else:
            await self.server.drain()

    async def close(self) -> None:
        """Stop serving and following; the counters go with the process."""
        await self.server.stop()
        await self._guard.close()


class QuotaService:
    """How the mesh opens it."""

    name = "quota"
    default_port = 7403

    async def open(self, wiring: Wiring) -> RunningQuota:
        """Build it, and wait for the registry's view of who may call."""
        settings = ServiceSettings.load(wiring.settings)
        guard = Guard(wiring.channel("registry"), settings.mesh_id, wiring.clock)
        directory = guard.directory
        store = MemoryStore(wiring.clock)
        verifier = AssertionVerifier(
            directory.public_key, settings.mesh_id, wiring.clock, directory.is_revoked
        )

        async def is_fresh() -> bool:
            return guard.follower.fresh

        server = Server(
            self.name,
            authenticator=guard.authenticator,
            clock=wiring.clock,
            ids=wiring.ids,
            ready=is_fresh,
            tls=settings.tls,
            insecure=settings.insecure,
        )
        running = RunningQuota(server, guard, embedded=wiring.embedded)
        admission = AdmissionServicer(store, Admission(store, verifier.verify))
        server.add(add_AdmissionServiceServicer_to_server, admission)
        server.add(add_UsageServiceServicer_to_server, UsageServicer(UsageReader(store, directory)))
        guard.protect(server.live)
        try:
            await guard.start()
        except BaseException:
            await running.close()
            raise
        return running


SERVICE: Final = QuotaService()
