"""The quota service, put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hopline.quota.v1.admission_pb2_grpc import add_AdmissionServiceServicer_to_server
from hopline.quota.v1.credit_pb2_grpc import add_CreditServiceServicer_to_server
from hopline.quota.v1.usage_pb2_grpc import add_UsageServiceServicer_to_server
from hopline_directory import Guard
from hopline_rpc.metrics import Family
from hopline_rpc.paging import Pager
from hopline_rpc.principals import AssertionVerifier
from hopline_rpc.service import Wiring
from hopline_rpc.serving import Server
from hopline_store import Database, open_database, private_file

from hopline_quota.admission import Admission
from hopline_quota.credits import Credits
from hopline_quota.measuring import measured
from hopline_quota.servicers.admission import AdmissionServicer
from hopline_quota.servicers.credits import CreditServicer
from hopline_quota.servicers.usage import UsageServicer
from hopline_quota.settings import DATABASE_FILE, QuotaSettings
from hopline_quota.store.ledger import Ledger
from hopline_quota.store.memory import MemoryStore
from hopline_quota.usage import UsageReader


class RunningQuota:
    """The service, open. Its counters are empty until a relay seeds them."""

    name = "quota"

    def __init__(self, wiring: Wiring, settings: QuotaSettings, ledger: Ledger) -> None:
        self._embedded = wiring.embedded
        self._ledger = ledger
        self._guard = Guard(wiring.channel("registry"), settings.mesh_id, wiring.clock)
        self.server = Server(
            self.name,
            authenticator=self._guard.authenticator,
            clock=wiring.clock,
            ids=wiring.ids,
            ready=self.ready,
            tls=settings.tls,
            insecure=settings.insecure,
        )
        directory = self._guard.directory
        verifier = AssertionVerifier(
            directory.public_key, settings.mesh_id, wiring.clock, directory.is_revoked
        )
        self._store = store = MemoryStore(wiring.clock)
        paying = Credits(ledger, store, directory, wiring.clock, wiring.ids)
        admission = AdmissionServicer(store, Admission(store, verifier.verify))
        self.server.add(add_AdmissionServiceServicer_to_server, admission)
        self.server.add(add_UsageServiceServicer_to_server, UsageServicer(UsageReader(store, directory)))
        self.server.add(add_CreditServiceServicer_to_server, CreditServicer(paying, Pager()))
        self._guard.protect(self.server.live)

    async def start(self) -> None:
        """Read what was paid in, and wait for the registry's view of who may call."""
        for workspace_id, total in (await self._ledger.totals()).items():
            self._store.deposited(workspace_id, total)
        await self._guard.start()

    async def ready(self) -> bool:
        """Tell whether it knows who may call, and whether its ledger answers."""
        return not await self.missing()

    async def missing(self) -> list[str]:
        """Return what keeps it from serving, in words. Counters are no part of it: a relay brings them."""
        found = [] if self._guard.follower.fresh else ["the registry is not heard of"]
        return found if await self._ledger.ready() else [*found, "its store does not answer"]

    async def measure(self) -> Sequence[Family]:
        """Return what there is to measure."""
        return [*self._ledger.measure(self.name), *measured(self._store, self._guard.directory)]

    async def drain(self) -> None:
        """Finish what runs and take nothing new."""
        if self._embedded:
            await self.server.drain(probe_seconds=0.0)  # nobody probes a part of one process
        else:
            await self.server.drain()

    async def close(self) -> None:
        """Stop serving and following; the counters go with the process, the ledger stays."""
        await self.server.stop()
        await self._guard.close()
        await self._ledger.close()


class QuotaService:
    """How the mesh opens it."""

    name = "quota"
    default_port = 7403

    async def open(self, wiring: Wiring) -> RunningQuota:
        """Open the ledger and build the service; opens no port."""
        settings = QuotaSettings.load(wiring.settings)
        running = RunningQuota(wiring, settings, Ledger(_open_store(wiring, settings)))
        try:
            await running.start()
        except BaseException:
            await running.close()
            raise
        return running


SERVICE: Final = QuotaService()


def _open_store(wiring: Wiring, settings: QuotaSettings) -> Database:
    """Open the ledger's database; of SQLite, a file and a folder for their owner alone."""
    scripts = "hopline_quota.migrations"
    if settings.database_url:
        return open_database(settings.database_url, migrations=scripts, name="quota", alone=True)
    file = private_file(wiring.data_dir or settings.data.expanduser(), DATABASE_FILE)
    return open_database(file, migrations=scripts, name="quota")
