"""The mesh of a simulation: the real registry, quota and relay, on virtual time, from a prepared folder."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hopline.registry.v1 import agent_pb2 as agents
from hopline.registry.v1 import identity_pb2, plugin_pb2
from hopline.relay.v1.dead_letter_pb2_grpc import DeadLetterServiceStub
from hopline.relay.v1.delegation_pb2_grpc import DelegationServiceStub
from hopline.relay.v1.escalation_pb2_grpc import EscalationServiceStub
from hopline.relay.v1.message_pb2_grpc import MessageServiceStub
from hopline.relay.v1.session_pb2_grpc import SessionServiceStub
from hopline.relay.v1.tool_pb2_grpc import ToolServiceStub
from hopline_rpc.ids import seeded_ids

from tests.simulation.inline import Process, opener
from tests.simulation.quotas import QuotaModel, WatchedStore
from tests.simulation.virtual import VirtualClock, VirtualLoop
from tests.support.relay_mesh import Caller, RelayMesh

_IMPLICIT = agents.REPLY_MODE_IMPLICIT
_RECEIVES = agents.AGENT_KIND_RECEIVE_ONLY
# A crew of a lead and two, one that answers only when it wants to, one that only receives, and some more.
CAST: dict[str, dict[str, Any]] = {
    "ada": {},
    "bo": {"is_subagent": True, "parent": "ada", "is_group_only_callable": True},
    "cy": {"is_subagent": True, "parent": "ada", "is_group_only_callable": True},
    "dee": {"reply_mode": _IMPLICIT},
    "eve": {"kind": _RECEIVES},
    "fay": {},
    "gus": {},
}
STRANGER = "zed"  # alone in a workspace of its own
CREW = ("ada", "bo", "cy")
PLUGGED = ("fay", "gus")  # may be brought by a plugin
_START = 1_767_225_600.0  # midnight UTC


class Member(Caller):
    """An agent or a person with its stubs made once a life of the mesh."""

    def __init__(self, mesh: World, name: str, identifier: str, token: str, workspace: str = "") -> None:
        super().__init__(mesh, identifier, token, workspace)
        self.name = name
        self._stubs: dict[str, tuple[int, Any]] = {}

    def _stub(self, kind: Any) -> Any:
        life = self.mesh.life  # type: ignore[attr-defined]
        known = self._stubs.get(kind.__name__)
        if known is None or known[0] != life:
            known = self._stubs[kind.__name__] = (life, kind(self._channel("relay")))
        return known[1]

    @property
    def messages(self) -> Any:
        """MessageService."""
        return self._stub(MessageServiceStub)

    @property
    def sessions(self) -> Any:
        """SessionService."""
        return self._stub(SessionServiceStub)

    @property
    def letters(self) -> Any:
        """DeadLetterService."""
        return self._stub(DeadLetterServiceStub)

    @property
    def turns(self) -> Any:
        """DelegationService."""
        return self._stub(DelegationServiceStub)

    @property
    def tools(self) -> Any:
        """ToolService."""
        return self._stub(ToolServiceStub)

    @property
    def escalations(self) -> Any:
        """EscalationService."""
        return self._stub(EscalationServiceStub)


class World(RelayMesh):
    """The three services on virtual time. `life` counts how often they were opened."""

    def __init__(self, folder: Path, loop: VirtualLoop, rng: random.Random, wall: float, seed: int) -> None:
        self.loop = loop
        self.rng = rng
        self.time = VirtualClock(loop, wall)
        self.life = 0
        self.process = Process(rng)
        self.quotas = QuotaModel(self.time, folder / "relay.db")
        self._ids = seeded_ids(self.time, seed)
        super().__init__(folder, self.time)  # type: ignore[arg-type]

    async def open(self) -> None:
        """Open everything."""
        self.life += 1
        self.process = Process(self.rng)
        with self._seams():
            await super().open()

    async def open_relay(self) -> None:
        """Open the relay."""
        self.life += 1
        with self._seams():
            await super().open_relay()

    @contextmanager
    def _seams(self) -> Iterator[None]:
        open_inline = opener(self.process)
        with (
            patch("hopline_relay.app.open_database", open_inline),
            patch("hopline_registry.app.open_database", opener(Process(self.rng))),
            patch("hopline_quota.app.open_database", opener(self.process)),
            patch("hopline_quota.app.MemoryStore", lambda clock: WatchedStore(clock, self.quotas)),
            patch("tests.support.relay_mesh.Ids", lambda _: self._ids),
        ):
            yield

    async def plugged(self, key: str, name: str) -> Caller:
        """Have a plugin of its own bring an agent."""
        manifest = plugin_pb2.PluginManifest(key=key, name=key, version="1")
        manifest.agents.add(key=name, name=name)
        await self.admin.plugins.InstallPlugin(
            plugin_pb2.InstallPluginRequest(manifest=manifest, confirm=True)
        )
        made = await self.admin.people.CreateToken(identity_pb2.CreateTokenRequest(agent=name))
        return Caller(self, made.info.subject_id, made.token)

    async def uninstall(self, key: str) -> None:
        """End a plugin."""
        await self.admin.plugins.UninstallPlugin(plugin_pb2.UninstallPluginRequest(plugin=key))

    async def kill(self) -> None:
        """End the process, whatever it is doing."""
        self.process.dead = True
        registry, quota = self._services[:2]
        for task in self.loop.tasks():
            task.cancel()
        await self.loop.settle()
        self.loop.forget_everything()
        await registry.close()
        self._services.clear()
        self.relay._database.engine.dispose()
        quota._ledger._database.engine.dispose()


async def prepare(folder: Path, loop: VirtualLoop) -> dict[str, tuple[str, str]]:
    """Make a folder with the cast; returns id and token of each."""
    world = World(folder, loop, random.Random(0), _START, 0)
    await world.open()
    made: dict[str, tuple[str, str]] = {}
    for name, fields in CAST.items():
        values = dict(fields)
        parent = values.pop("parent", None)
        if parent:
            values["parent_agent_id"] = made[parent][0]
        agent = await world.agent(name, **values)
        made[name] = (agent.id, agent.token)
    stranger = await world.foreign_agent(STRANGER)
    made[STRANGER] = (stranger.id, stranger.token)
    await world.close()
    return made


def copied(template: Path, folder: Path) -> Path:
    """Return a fresh copy of a prepared folder."""
    shutil.rmtree(folder, ignore_errors=True)  # of a run that was broken off
    shutil.copytree(template, folder)
    return folder
