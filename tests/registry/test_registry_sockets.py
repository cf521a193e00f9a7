"""The registry over a real socket, as services in processes of their own see it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hopline.registry.v1.agent_pb2 import Agent, CreateAgentRequest, PauseAgentRequest
from hopline.registry.v1.agent_pb2_grpc import AgentServiceStub
from hopline.registry.v1.identity_pb2 import CreateTokenRequest, ListTokensRequest, RevokeTokenRequest
from hopline.registry.v1.identity_pb2_grpc import IdentityServiceStub
from hopline.registry.v1.visibility_pb2 import Change
from hopline_directory import Guard
from hopline_registry.app import SERVICE
from hopline_rpc.channels import bearer, dial
from hopline_rpc.clock import SystemClock
from hopline_rpc.errors import HoplineError
from hopline_rpc.service import Wiring

from tests.registry.builders import copied


async def test_a_service_elsewhere_follows_pauses_and_revocations(started: Path, tmp_path: Path) -> None:
    folder = copied(started, tmp_path / "data")
    registry = await SERVICE.open(Wiring(data_dir=folder))
    address = await registry.server.start("127.0.0.1:0")
    admin = dial(address, credentials=bearer((folder / "admin.token").read_text().strip()))
    agents, identity = AgentServiceStub(admin), IdentityServiceStub(admin)
    relay = dial(
        address, credentials=bearer((await identity.CreateToken(CreateTokenRequest(service="relay"))).token)
    )
    guard = Guard(relay, "hopline", SystemClock())
    await guard.start()
    made = await agents.CreateAgent(CreateAgentRequest(agent=Agent(name="Planner")))
    principal = await guard.authenticator.principal(made.token)

    told: asyncio.Queue[str] = asyncio.Queue()

    def tell(news: list[Change]) -> None:
        for change in news:
            told.put_nowait(change.audit.action)

    async def until(action: str) -> None:
        async with asyncio.timeout(10):
            while await told.get() != action:
                pass

    guard.follower.add_listener(tell)
    await agents.PauseAgent(PauseAgentRequest(agent="planner"))
    await until("agent.paused")
    record = guard.directory.agent(principal.workspace_id, principal.id)
    assert record is not None
    assert record.state == "paused"

    token = (await identity.ListTokens(ListTokensRequest(agent="planner"))).tokens[0]
    await identity.RevokeToken(RevokeTokenRequest(token_id=token.id))
    await until("token.revoked")
    with pytest.raises(HoplineError) as refused:
        await guard.authenticator.principal(principal.assertion)
    assert refused.value.reason == "unauthenticated"

    await guard.close()
    await relay.close()
    await admin.close()
    await registry.server.stop()
    await registry.close()
