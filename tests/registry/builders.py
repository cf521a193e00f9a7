"""A whole registry on a clock moved by hand, and callers of it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from hopline.registry.v1.agent_pb2 import Agent, CreateAgentRequest
from hopline.registry.v1.agent_pb2_grpc import AgentServiceStub
from hopline.registry.v1.crew_pb2_grpc import CrewServiceStub
from hopline.registry.v1.identity_pb2 import CreateUserRequest, GrantRoleRequest
from hopline.registry.v1.identity_pb2_grpc import IdentityServiceStub
from hopline.registry.v1.model_pb2_grpc import ModelServiceStub
from hopline.registry.v1.plugin_pb2_grpc import PluginServiceStub
from hopline.registry.v1.visibility_pb2_grpc import VisibilityServiceStub
from hopline.registry.v1.workspace_pb2 import CreateWorkspaceRequest
from hopline.registry.v1.workspace_pb2_grpc import WorkspaceServiceStub
from hopline_registry.app import SERVICE, Registry
from hopline_rpc.channels import ClientChannel, Pairs
from hopline_rpc.clock import ManualClock
from hopline_rpc.errors import HoplineError
from hopline_rpc.ids import Ids
from hopline_rpc.service import Wiring


class Caller:
    """Someone with a token, and every service of the registry by its stub."""

    def __init__(self, registry: Registry, token: str, workspace: str = "", **extra: str) -> None:
        self.token = token
        pairs: Pairs = (("authorization", f"Bearer {token}"),) if token else ()
        if workspace:
            pairs += (("hopline-workspace", workspace),)
        pairs += tuple((f"hopline-{name}", value) for name, value in extra.items())
        self.channel = ClientChannel(registry.server.channel(), lambda: pairs)
        self.workspaces = WorkspaceServiceStub(self.channel)
        self.identity = IdentityServiceStub(self.channel)
        self.agents = AgentServiceStub(self.channel)
        self.crews = CrewServiceStub(self.channel)
        self.models = ModelServiceStub(self.channel)
        self.plugins = PluginServiceStub(self.channel)
        self.visibility = VisibilityServiceStub(self.channel)


class Rig:
    """A running registry, its data folder and its admin."""

    def __init__(self, registry: Registry, folder: Path, clock: ManualClock) -> None:
        self.registry = registry
        self.folder = folder
        self.clock = clock
        self.store_url = ""
        self.root = (folder / "admin.token").read_text().strip()
        self.admin = self.caller(self.root)

    @staticmethod
    async def open(folder: Path, clock: ManualClock | None = None, **settings: str) -> Rig:
        return await Rig._open(folder, clock or ManualClock(), settings, embedded=True)

    @staticmethod
    async def beside(folder: Path, clock: ManualClock, url: str) -> Rig:
        """Open one that shares its database with others."""
        return await Rig._open(folder, clock, {"database_url": url}, embedded=False)

    @staticmethod
    async def _open(folder: Path, clock: ManualClock, settings: dict[str, str], *, embedded: bool) -> Rig:
        wiring = Wiring(data_dir=folder, clock=clock, ids=Ids(clock), settings=settings, embedded=embedded)
        rig = Rig(await SERVICE.open(wiring), folder, clock)
        rig.store_url = settings.get("database_url", "")
        return rig

    async def reopen(self, **settings: str) -> Rig:
        await self.registry.close()
        return await Rig.open(self.folder, self.clock, database_url=self.store_url, **settings)

    def caller(self, token: str, workspace: str = "", **extra: str) -> Caller:
        return Caller(self.registry, token, workspace, **extra)

    async def service(self, name: str = "mesh") -> Caller:
        return self.caller(await self.registry.service_token(name))

    async def user(self, name: str, role: int = 0, workspace: str = "") -> Caller:
        """Make a person with a role on the workspace."""
        admin = self.caller(self.root, workspace)
        made = await admin.identity.CreateUser(CreateUserRequest(name=name))
        if role:
            await admin.identity.GrantRole(GrantRoleRequest(user=name, role=role))  # type: ignore[arg-type]
        return self.caller(made.token)

    async def agent(self, name: str, by: Caller | None = None, **fields: Any) -> tuple[Agent, Caller]:
        """Make an agent, by the admin unless somebody else is named."""
        request = CreateAgentRequest(agent=Agent(name=name, **fields))
        made = await (by or self.admin).agents.CreateAgent(request)
        return made.agent, self.caller(made.token)

    async def workspace(self, name: str) -> Caller:
        """Make a workspace and return its admin."""
        await self.admin.workspaces.CreateWorkspace(CreateWorkspaceRequest(name=name))
        return self.caller(self.root, name)


async def refusal(call: Any) -> HoplineError:
    """Await a call that must be refused, and return what it says."""
    with pytest.raises(HoplineError) as caught:
        await call
    return caught.value


def copied(template: Path, target: Path) -> Path:
    """Return a folder with a registry that has been started once."""
    shutil.copytree(template, target)
    return target
