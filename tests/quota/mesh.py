"""A real registry and a real quota service in one process, wired as the mesh wires them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hopline.quota.v1 import admission_pb2 as pb
from hopline.quota.v1.admission_pb2_grpc import AdmissionServiceStub
from hopline.quota.v1.usage_pb2_grpc import UsageServiceStub
from hopline.registry.v1 import agent_pb2, identity_pb2, workspace_pb2
from hopline.registry.v1.agent_pb2_grpc import AgentServiceStub
from hopline.registry.v1.identity_pb2_grpc import IdentityServiceStub
from hopline.registry.v1.workspace_pb2_grpc import WorkspaceServiceStub
from hopline_quota.app import SERVICE, RunningQuota
from hopline_registry.app import SERVICE as REGISTRY
from hopline_registry.app import Registry
from hopline_rpc.channels import ClientChannel, bearer
from hopline_rpc.clock import ManualClock
from hopline_rpc.ids import seeded_ids
from hopline_rpc.service import Wiring

LIMITS = pb.Limits(
    max_depth=4,
    root_turns=200,
    sent_per_day=200,
    received_per_day=500,
    pair_budget=30,
    pair_window_seconds=300,
    inbox_backlog=1000,
    causality_window_seconds=600,
    agents=25,
)


class Mesh:
    """What the tests of the service speak to."""

    def __init__(
        self, registry: Registry, quota: RunningQuota, clock: ManualClock, tokens: dict[str, str]
    ) -> None:
        self.registry = registry
        self.quota = quota
        self.clock = clock
        self.tokens = tokens
        self.relay = self.admission(tokens["relay"])

    @classmethod
    async def open(cls, folder: Path) -> Mesh:
        clock = ManualClock()
        ids = seeded_ids(clock, 1)
        registry = await REGISTRY.open(Wiring(data_dir=folder, clock=clock, ids=ids, embedded=True))
        tokens = {name: await registry.service_token(name) for name in ("quota", "relay")}
        tokens["admin"] = registry.token_file.read_text().strip()
        wiring = Wiring(
            data_dir=folder,
            channels={"registry": registry.server.channel()},
            clock=clock,
            ids=ids,
            service_token=lambda: tokens["quota"],
            embedded=True,
        )
        return cls(registry, await SERVICE.open(wiring), clock, tokens)

    async def close(self) -> None:
        await self.quota.drain()
        await self.quota.close()
        await self.registry.close()

    # -- channels ------------------------------------------------------------------------------------

    def admission(self, token: str) -> Any:
        return AdmissionServiceStub(ClientChannel(self.quota.server.channel(), bearer(token)))

    def usage(self, token: str) -> Any:
        return UsageServiceStub(ClientChannel(self.quota.server.channel(), bearer(token)))

    def at_registry(self, stub: Callable[[Any], Any], token: str) -> Any:
        return stub(ClientChannel(self.registry.server.channel(), bearer(token)))

    # -- the registry's world ------------------------------------------------------------------------

    async def agent(self, name: str, token: str = "") -> tuple[str, str]:
        """Make an agent of the admin's, or of whoever's token is given; returns id and token."""
        stub = self.at_registry(AgentServiceStub, token or self.tokens["admin"])
        made = await stub.CreateAgent(agent_pb2.CreateAgentRequest(agent=agent_pb2.Agent(name=name)))
        return made.agent.id, made.token

    async def user(self, name: str) -> tuple[str, str]:
        stub = self.at_registry(IdentityServiceStub, self.tokens["admin"])
        made = await stub.CreateUser(identity_pb2.CreateUserRequest(name=name))
        return made.user.id, made.token

    async def grant(self, user: str, role: identity_pb2.Role.ValueType, agent: str = "") -> None:
        stub = self.at_registry(IdentityServiceStub, self.tokens["admin"])
        await stub.GrantRole(identity_pb2.GrantRoleRequest(user=user, agent=agent, role=role))

    async def policy(self, **values: Any) -> None:
        stub = self.at_registry(WorkspaceServiceStub, self.tokens["admin"])
        request = workspace_pb2.UpdatePolicyRequest(policy=workspace_pb2.Policy(**values))
        request.update_mask.paths.extend(values)
        await stub.UpdatePolicy(request)

    async def assertion(self, token: str) -> str:
        stub = IdentityServiceStub(ClientChannel(self.registry.server.channel()))
        answer = await stub.Authenticate(identity_pb2.AuthenticateRequest(token=token))
        return str(answer.assertion)

    async def workspace_id(self) -> str:
        stub = self.at_registry(WorkspaceServiceStub, self.tokens["admin"])
        answer = await stub.GetWorkspace(workspace_pb2.GetWorkspaceRequest())
        return str(answer.workspace.id)

    # -- admission -----------------------------------------------------------------------------------

    async def seed(self, epoch: int = 1) -> None:
        await self.relay.Seed(pb.SeedRequest(epoch=epoch))

    async def item(self, key: str, sender: str, recipient: str, /, **fields: Any) -> pb.AdmitItem:
        return pb.AdmitItem(
            **{
                "key": key,
                "workspace_id": await self.workspace_id(),
                "kind": pb.ADMIT_KIND_START,
                "sender_id": sender,
                "recipients": [pb.AdmitRecipient(agent_id=recipient, turn_id=f"turn of {key}")],
                "new_root_id": f"root of {key}",
                "limits": LIMITS,
                **fields,
            }
        )

    async def admit(self, *items: pb.AdmitItem, epoch: int = 1) -> pb.AdmitResponse:
        response: pb.AdmitResponse = await self.relay.Admit(pb.AdmitRequest(epoch=epoch, items=items))
        return response
