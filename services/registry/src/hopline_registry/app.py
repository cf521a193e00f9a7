"""The registry put together, and taken apart."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import IO, Final, NamedTuple

from hopline.registry.v1.agent_pb2_grpc import add_AgentServiceServicer_to_server
from hopline.registry.v1.crew_pb2_grpc import add_CrewServiceServicer_to_server
from hopline.registry.v1.identity_pb2_grpc import add_IdentityServiceServicer_to_server
from hopline.registry.v1.model_pb2_grpc import add_ModelServiceServicer_to_server
from hopline.registry.v1.plugin_pb2_grpc import add_PluginServiceServicer_to_server
from hopline.registry.v1.visibility_pb2 import WatchChangesResponse
from hopline.registry.v1.visibility_pb2_grpc import add_VisibilityServiceServicer_to_server
from hopline.registry.v1.workspace_pb2_grpc import add_WorkspaceServiceServicer_to_server
from hopline_directory import REVOKED_SECONDS, Directory, end_revoked
from hopline_rpc.calls import detach
from hopline_rpc.errors import HoplineError
from hopline_rpc.metrics import Family
from hopline_rpc.paging import Pager
from hopline_rpc.service import Wiring
from hopline_rpc.serving import Server
from hopline_store import Database, open_database, private_file
from hopline_store.secret import shared_secret
from sqlalchemy import Connection

from hopline_registry.agents import Agents
from hopline_registry.bootstrap import TOKEN_FILE, install
from hopline_registry.core import Core
from hopline_registry.crews import Crews
from hopline_registry.domain.names import RESERVED_SECONDS
from hopline_registry.feed import Feed
from hopline_registry.given import take_in
from hopline_registry.identity import Identity
from hopline_registry.keys import Keys
from hopline_registry.models import Models
from hopline_registry.people import People
from hopline_registry.plugin_agents import PluginAgents
from hopline_registry.plugins import Plugins
from hopline_registry.servicers.agents import AgentServicer
from hopline_registry.servicers.crews import CrewServicer
from hopline_registry.servicers.identity import IdentityServicer
from hopline_registry.servicers.models import ModelServicer
from hopline_registry.servicers.plugins import PluginServicer
from hopline_registry.servicers.visibility import VisibilityServicer
from hopline_registry.servicers.workspaces import WorkspaceServicer
from hopline_registry.settings import DATABASE_FILE, LOCK_FILE, RegistrySettings
from hopline_registry.sign_in import SignIn
from hopline_registry.store import feed as feed_rows
from hopline_registry.store import plugins as plugin_rows
from hopline_registry.store import tokens as token_rows
from hopline_registry.store.schema import secrets
from hopline_registry.store.view import snapshot
from hopline_registry.tokens import Tokens
from hopline_registry.webhooks import Webhooks
from hopline_registry.workspaces import Workspaces

log = logging.getLogger("hopline.registry")

_UPKEEP_SECONDS: Final = 10.0
# Tokens that ended are listed for so long.
_DEAD_TOKEN_SECONDS: Final = 7 * 86_400.0


class RegistryService:
    """How the registry is found and opened."""

    name = "registry"
    default_port = 7401

    async def open(self, wiring: Wiring) -> Registry:
        """Open the database, make what every mesh has, and build the server; opens no port."""
        settings = RegistrySettings.load(wiring.settings)
        folder = wiring.data_dir or settings.data.expanduser()
        registry = Registry(wiring, settings, _open_store(wiring, folder, settings.database_url), folder)
        try:
            await registry.start()
        except BaseException:
            await registry.close()
            raise
        return registry


SERVICE: Final = RegistryService()


class Registry:
    """The running registry."""

    name = "registry"

    def __init__(self, wiring: Wiring, settings: RegistrySettings, store: _Store, folder: Path) -> None:
        self._settings = settings
        self._lock = store.lock
        self._db = db = store.db
        self._quick = wiring.embedded
        self.token_file = folder / TOKEN_FILE
        self.first_start = False
        self._upkeep: asyncio.Task[None] | None = None

        self.directory = Directory(wiring.clock.now)
        self._shared = bool(settings.database_url) and not wiring.embedded
        self._feed = Feed(db.reader, self.directory, wiring.clock, self._whole, shared=self._shared)
        self._core = Core(db, self.directory, self._feed, wiring.clock, wiring.ids)
        self._keys = Keys(self._core, settings.mesh_id)
        self._identity = Identity(self._core, self._keys, settings.mesh_id)
        self._tokens = Tokens(self._core)
        self.server = Server(
            self.name,
            authenticator=self._identity.authenticator,
            clock=wiring.clock,
            ids=wiring.ids,
            ready=db.ready,
            tls=settings.tls,
            insecure=settings.insecure,
        )
        self._feed.add_listener(
            lambda news: end_revoked(news, self.directory, self._identity.authenticator, self.server.live)
        )
        self._add_servicers()

    def _add_servicers(self) -> None:
        core, server = self._core, self.server
        pager = Pager(shared_secret(core.db, secrets, "pages"))
        webhooks, sign_in = Webhooks(core), SignIn(core, self._settings)
        server.add(add_WorkspaceServiceServicer_to_server, WorkspaceServicer(Workspaces(core), pager))
        server.add(
            add_IdentityServiceServicer_to_server,
            IdentityServicer(
                self._identity,
                self._keys,
                sign_in,
                People(core, sign_in),
                self._tokens,
                webhooks,
                core.directory,
                pager,
            ),
        )
        server.add(add_AgentServiceServicer_to_server, AgentServicer(Agents(core), webhooks, pager))
        server.add(add_CrewServiceServicer_to_server, CrewServicer(Crews(core), pager))
        server.add(add_ModelServiceServicer_to_server, ModelServicer(Models(core), pager))
        server.add(
            add_PluginServiceServicer_to_server, PluginServicer(Plugins(core), PluginAgents(core), pager)
        )
        server.add(
            add_VisibilityServiceServicer_to_server,
            VisibilityServicer(
                self.directory, self._feed, pager, has_public_url=bool(self._settings.public_url)
            ),
        )

    async def start(self) -> None:
        """Load the view, make what every mesh has, and begin the upkeep."""
        self.directory.apply(await self._core.read(self._whole))
        # Of several registries each has a folder of its own, and the first has made the token.
        replace_lost = not self._shared or self._settings.renew_admin_token
        self.first_start = await install(self._core, self.token_file, replace_lost=replace_lost)
        if self._settings.tokens_dir is not None:
            await take_in(self._core, self._settings.tokens_dir)
        await self._keys.load()
        await self._feed.start()
        self._upkeep = detach(self._keep_up(), name="registry upkeep")

    def _whole(self, conn: Connection) -> WatchChangesResponse:
        return snapshot(conn, self._core.clock.now() - REVOKED_SECONDS)

    async def service_token(self, name: str) -> str:
        """Make the service token of this process, in place of the one that the last start made."""
        return await self._tokens.renew_service(name)

    async def ready(self) -> bool:
        """Tell whether the database answers."""
        return await self._db.ready()

    async def missing(self) -> list[str]:
        """Return what keeps it from serving, in words."""
        if not await self._db.ready():
            return ["its store does not answer"]
        return [] if self._feed.current else ["what other registries write is not read"]

    async def measure(self) -> Sequence[Family]:
        """Return what there is to measure."""
        return self._db.measure(self.name)

    async def drain(self) -> None:
        """Take nothing new and let what runs end."""
        if self._quick:
            await self.server.drain(probe_seconds=0.0)  # nobody probes a part of one process
        else:
            await self.server.drain()

    async def close(self) -> None:
        """Close everything."""
        self._feed.close()
        if self._upkeep is not None:
            self._upkeep.cancel()
            await asyncio.wait({self._upkeep})
        await self.server.stop()
        await self._db.close()
        if self._lock is not None:
            self._lock.close()

    # -- upkeep ------------------------------------------------------------------------------------

    async def _keep_up(self) -> None:
        """Keep what grows within its bounds."""
        steps: tuple[Callable[[], Awaitable[None]], ...] = (self._keys.withdraw_outlived, self._forget)
        while True:
            for step in steps:
                try:
                    await step()
                except Exception:
                    log.exception("the registry's upkeep failed; it is tried again")
            await self._core.clock.sleep(_UPKEEP_SECONDS)

    async def _forget(self) -> None:
        kept, now = self._settings.registry_changes_kept, self._core.clock.now()
        slack = kept + kept // 10
        if await self._core.read(lambda conn: feed_rows.head(conn) - feed_rows.oldest(conn)) > slack:
            await self._db.writer.run(lambda conn: feed_rows.keep_newest(conn, kept))
        await self._db.writer.run(lambda conn: token_rows.forget_dead(conn, now - _DEAD_TOKEN_SECONDS))
        # By then no slug is kept any more for the agents of a plugin that is gone.
        await self._db.writer.run(lambda conn: plugin_rows.forget_uninstalled(conn, now - RESERVED_SECONDS))


class _Store(NamedTuple):
    """The open database, and the file that keeps a second process out."""

    db: Database
    lock: IO[str] | None


def _open_store(wiring: Wiring, folder: Path, url: str) -> _Store:
    """Open the database, which holds the private keys: of SQLite, a file for its owner alone."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    scripts = "hopline_registry.migrations"
    if url:
        db = open_database(url, migrations=scripts, name="registry", alone=wiring.embedded)
        return _Store(db, None)
    lock = _locked(folder / LOCK_FILE)
    try:
        db = open_database(private_file(folder, DATABASE_FILE), migrations=scripts, name="registry")
    except BaseException:
        lock.close()
        raise
    return _Store(db, lock)


def _locked(file: Path) -> IO[str]:
    """Take the lock of a folder: the view and the feed are right only while one process writes."""
    lock = os.fdopen(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise HoplineError(
            "failed_precondition",
            f"a registry is already running on {file.parent}; stop it, or choose another data directory",
        ) from None
    return lock
