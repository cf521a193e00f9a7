"""The agents of a mesh's file against a whole registry: made, changed, left alone, refused by line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from hopline.registry.v1 import agent_pb2 as pb
from hopline.registry.v1.identity_pb2 import ListTokensRequest
from hopline.registry.v1.model_pb2 import CreateModelRequest, Model
from hopline.registry.v1.workspace_pb2 import Policy, UpdatePolicyRequest
from hopline_cli.running.config import read_config
from hopline_cli.running.mesh_agents import Registry, Settled, settle
from hopline_rpc.errors import HoplineError

from tests.registry.builders import Rig, copied

TWO = """
agents:
  concierge:
    name: The Concierge
    instructions: Pass questions about the sky on.
    connections:
      weather: {agent: weather-agent, description: For the sky.}
  weather-agent:
    reach: [concierge]
    labels: {a: "1"}
"""


@pytest.fixture(scope="session")
def started(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mesh-agents") / "data"

    async def start() -> None:
        rig = await Rig.open(folder)
        await rig.registry.close()

    asyncio.run(start())
    return folder


@pytest.fixture
async def rig(started: Path, tmp_path: Path) -> AsyncIterator[Rig]:
    made = await Rig.open(copied(started, tmp_path / "data"))
    yield made
    await made.registry.close()


async def start(rig: Rig, text: str, *, has_public_url: bool = False) -> Settled:
    """Do what a start of a mesh with such a file does."""
    file = rig.folder.parent / "mesh.yaml"
    file.write_text(text)
    registry = Registry(rig.registry.server.channel(), rig.root)
    return await settle(read_config(file), registry, has_public_url=has_public_url)


async def refused(rig: Rig, text: str) -> list[str]:
    with pytest.raises(HoplineError) as caught:
        await start(rig, text)
    return [line.replace(f"{rig.folder.parent}/", "") for line in caught.value.message.split("\n")]


async def agent(rig: Rig, ref: str) -> pb.Agent:
    return (await rig.admin.agents.GetAgent(pb.GetAgentRequest(agent=ref))).agent


async def update(rig: Rig, ref: str, **fields: object) -> None:
    wanted = pb.Agent(**fields)  # type: ignore[arg-type]
    mask = FieldMask(paths=list(fields))
    await rig.admin.agents.UpdateAgent(pb.UpdateAgentRequest(agent_ref=ref, agent=wanted, update_mask=mask))


async def test_the_first_start_makes_the_agents_and_the_second_changes_nothing(rig: Rig) -> None:
    assert await start(rig, TWO) == Settled(("concierge", "weather-agent"), (), ())
    concierge, weather = await agent(rig, "concierge"), await agent(rig, "weather-agent")
    assert (concierge.name, weather.name) == ("The Concierge", "weather-agent")
    assert [(each.name, each.agent, each.description) for each in concierge.connections] == [
        ("weather", weather.id, "For the sky.")
    ]
    assert list(weather.reach) == [concierge.id]
    head = rig.registry.directory.seq
    assert await start(rig, TWO) == Settled()
    assert rig.registry.directory.seq == head


async def test_what_drifted_is_set_right_and_what_the_file_does_not_name_stays(rig: Rig) -> None:
    await start(rig, TWO)
    await rig.agent("Stranger")
    before = await agent(rig, "weather-agent")
    await update(rig, "concierge", name="Renamed", connections=[], model_id="mine")
    await update(rig, "weather-agent", labels={"b": "2"}, soul="Dry.")
    await rig.admin.agents.PauseAgent(pb.PauseAgentRequest(agent="concierge"))
    assert await start(rig, TWO) == Settled((), ("concierge", "weather-agent"), ())
    concierge, weather = await agent(rig, "concierge"), await agent(rig, "weather-agent")
    assert concierge.name == "The Concierge"
    assert concierge.connections[0].agent == before.id
    assert dict(weather.labels) == {"a": "1"}
    assert (concierge.model_id, weather.soul, concierge.state) == ("mine", "Dry.", pb.AGENT_STATE_PAUSED)
    # Out of the file, but not out of the mesh.
    assert await start(rig, "agents: {concierge: {}}") == Settled()
    assert (await agent(rig, "concierge")).name == "The Concierge"
    assert (await agent(rig, "weather-agent")).id == before.id


async def test_a_model_of_the_catalogue_goes_by_its_identifier_and_one_that_is_not_there_is_refused(
    rig: Rig,
) -> None:
    made = await rig.admin.models.CreateModel(CreateModelRequest(model=Model(model_identifier="opus-4")))
    await start(rig, "agents: {concierge: {model: opus-4}}")
    assert (await agent(rig, "concierge")).model_id == made.model.id
    head = rig.registry.directory.seq
    assert await start(rig, "agents: {concierge: {model: opus-4}}") == Settled()
    assert rig.registry.directory.seq == head
    (said,) = await refused(rig, "agents:\n  concierge:\n    model: opus-3")
    assert said.startswith("mesh.yaml:3: concierge: agent.model_id: there is no model 'opus-3'")


async def test_a_deleted_agent_of_the_file_is_made_again_and_connected_again(rig: Rig) -> None:
    await start(rig, TWO)
    first = await agent(rig, "weather-agent")
    await rig.admin.agents.DeleteAgent(pb.DeleteAgentRequest(agent="weather-agent"))
    assert await start(rig, TWO) == Settled(("weather-agent",), ("concierge",), ())
    second, concierge = await agent(rig, "weather-agent"), await agent(rig, "concierge")
    assert second.id != first.id
    assert concierge.connections[0].agent == second.id


async def test_an_owner_may_be_named_and_changed(rig: Rig) -> None:
    await rig.user("Alice")
    await start(rig, "agents: {a: {owner: Alice}, b: {}}")
    alice, admin = (await agent(rig, "a")).owner_id, (await agent(rig, "b")).owner_id
    assert alice != admin
    assert await start(rig, f"agents: {{a: {{owner: {alice}}}, b: {{owner: admin}}}}") == Settled()
    await start(rig, "agents: {a: {owner: admin}}")
    assert (await agent(rig, "a")).owner_id == admin


async def test_a_webhook_that_wakes_is_set_with_its_secret_and_then_left_alone(rig: Rig) -> None:
    secret = rig.folder.parent / "wake.secret"
    secret.write_text("0123456789abcdef\n")
    text = "agents: {a: {wake: {webhook: 'https://%s.example.org', secret_file: wake.secret}}}"
    assert (await start(rig, text % "one")).created == ("a",)
    wake = (await agent(rig, "a")).wake
    assert (wake.webhook_url, wake.has_webhook_secret) == ("https://one.example.org", True)
    head = rig.registry.directory.seq
    assert await start(rig, text % "one") == Settled()
    assert rig.registry.directory.seq == head
    secret.write_text("fedcba9876543210")
    await start(rig, text % "one")
    assert rig.registry.directory.seq > head
    assert (await start(rig, text % "two")).changed == ("a",)
    assert (await start(rig, "agents: {a: {wake: none}}")).changed == ("a",)
    assert not (await agent(rig, "a")).wake.has_webhook_secret
    secret.write_text("short")
    (said,) = await refused(rig, text % "two")
    assert said.startswith("mesh.yaml:1: wake.webhook_secret: ")
    assert "short" not in said.replace("wake.webhook_secret", "")


async def test_nothing_is_begun_where_anything_is_wrong(rig: Rig) -> None:
    text = "agents:\n  a: {}\n  b:\n    owner: ghost\n    connections: {w: {agent: nobody}}"
    said = await refused(rig, text)
    assert [line.split(":")[1] for line in said] == ["4", "5"]
    assert (await rig.admin.agents.ListAgents(pb.ListAgentsRequest())).agents == []


async def test_what_the_registry_itself_refuses_is_said_with_its_line(rig: Rig) -> None:
    await rig.agent("modem")
    said = await refused(rig, 'agents:\n  a: {}\n  m0dem: {}\n  b:\n    name: "x\\u200by"')
    assert len(said) == 2
    assert said[0].startswith("mesh.yaml:3: m0dem: the slug 'm0dem' looks like 'modem'")
    assert said[1].startswith("mesh.yaml:5: b: agent.name: must not contain the invisible character")
    # What could be made was made, and is found by the next start.
    assert await start(rig, "agents: {a: {}}") == Settled()


async def test_the_policy_has_to_have_room_for_all_before_one_is_made(rig: Rig) -> None:
    policy = UpdatePolicyRequest(policy=Policy(agents=1), update_mask=FieldMask(paths=["agents"]))
    await rig.admin.workspaces.UpdatePolicy(policy)
    (said,) = await refused(rig, TWO)
    assert "2 agents are to be made beside 0, and the policy allows 1; start without --config, raise" in said
    assert (await rig.admin.agents.ListAgents(pb.ListAgentsRequest())).agents == []


async def test_agents_in_the_cloud_are_warned_of_until_there_is_a_public_url(rig: Rig) -> None:
    text = "agents:\n  a:\n    runtime: cloud\n    connections: {w: {agent: b}}\n  b: {runtime: cloud}"
    settled = await start(rig, text)
    (warning,) = settled.warnings
    assert warning.replace(f"{rig.folder.parent}/", "").startswith(
        "mesh.yaml:4: a runs in the cloud and is offered no connections"
    )
    assert "--public-url" in warning
    assert len((await start(rig, text)).warnings) == 1
    assert (await start(rig, text, has_public_url=True)).warnings == ()


async def test_the_tokens_of_new_agents_are_kept_nowhere(rig: Rig) -> None:
    """They are made with `hopline token create`: what nobody holds opens nothing."""
    await start(rig, TWO)
    tokens = (await rig.admin.identity.ListTokens(ListTokensRequest(agent="concierge"))).tokens
    assert len(tokens) == 1
    kept = {path.name for path in rig.folder.iterdir()}
    assert kept <= {"admin.token", "registry.db", "registry.db-wal", "registry.db-shm", "registry.lock"}


async def test_starts_at_once_come_to_the_same(rig: Rig) -> None:
    done = await asyncio.gather(*(start(rig, TWO) for _ in range(4)), return_exceptions=True)
    assert any(isinstance(each, Settled) for each in done)
    assert await start(rig, TWO) in (
        Settled(),
        Settled((), ("concierge",), ()),
        Settled((), ("concierge", "weather-agent"), ()),
    )
    assert await start(rig, TWO) == Settled()
    found = (await rig.admin.agents.ListAgents(pb.ListAgentsRequest())).agents
    assert sorted(each.slug for each in found) == ["concierge", "weather-agent"]
