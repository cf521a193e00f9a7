"""Connections: other agents under names of an agent's own. They give no reach, and tell of nobody hidden."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from hopline.registry.v1 import agent_pb2 as pb
from hopline.registry.v1.agent_pb2 import (
    Agent,
    Connection,
    DeleteAgentRequest,
    GetAgentRequest,
    PauseAgentRequest,
    ResumeAgentRequest,
    UpdateAgentRequest,
)
from hopline.registry.v1.identity_pb2 import GrantRoleRequest, RevokeRoleRequest
from hopline.registry.v1.visibility_pb2 import ListConnectionsRequest
from hopline_directory import ADMIN, OPERATOR, VIEWER

from tests.registry.builders import Caller, Rig, refusal


async def update(caller: Caller, ref: str, **fields: Any) -> Agent:
    request = UpdateAgentRequest(
        agent_ref=ref, agent=Agent(**fields), update_mask=FieldMask(paths=list(fields))
    )
    return (await caller.agents.UpdateAgent(request)).agent


async def connect(caller: Caller, ref: str, **named: str) -> Agent:
    made = [Connection(name=name, agent=agent) for name, agent in named.items()]
    return await update(caller, ref, connections=made)


async def usable(caller: Caller) -> dict[str, str]:
    found = await caller.visibility.ListConnections(ListConnectionsRequest())
    return {each.name: each.peer.slug for each in found.connections}


async def grant(rig: Rig, agent: str, role: int) -> None:
    await rig.admin.identity.GrantRole(GrantRoleRequest(user="Alice", agent=agent, role=role))  # type: ignore[arg-type]


async def test_a_peer_is_named_by_slug_name_or_id_and_kept_by_id(rig: Rig) -> None:
    weather, _ = await rig.agent("Weather Agent")
    _, planner = await rig.agent("Planner")
    for ref in ("weather-agent", "Weather Agent", weather.id):
        made = await connect(rig.admin, "planner", sky=ref)
        assert [(each.name, each.agent) for each in made.connections] == [("sky", weather.id)]
    assert await usable(planner) == {"sky": "weather-agent"}


async def test_a_new_agent_may_have_connections_and_a_renamed_peer_stays(rig: Rig) -> None:
    weather, _ = await rig.agent("Weather")
    link = Connection(name="weather", agent="weather", description="Ask it for forecasts.")
    made, planner = await rig.agent("Planner", connections=[link])
    assert made.connections[0].description == "Ask it for forecasts."
    await update(rig.admin, "weather", name="Forecasts")
    found = (await planner.visibility.ListConnections(ListConnectionsRequest())).connections
    assert [(each.name, each.peer.id, each.peer.name, each.description) for each in found] == [
        ("weather", weather.id, "Forecasts", "Ask it for forecasts.")
    ]


async def test_connections_come_in_order_of_name_and_page(rig: Rig) -> None:
    for name in ("one", "two", "three"):
        await rig.agent(name)
    _, planner = await rig.agent("Planner")
    await connect(rig.admin, "planner", c="three", a="one", b="two")
    names, token = [], ""
    while True:
        request = ListConnectionsRequest(page_size=2, page_token=token)
        page = await planner.visibility.ListConnections(request)
        names.append([each.name for each in page.connections])
        token = page.next_page_token
        if not token:
            break
    assert names == [["a", "b"], ["c"]]


@pytest.mark.parametrize("ref", ["planner", "Planner", ""])
async def test_an_agent_is_not_connected_to_itself(rig: Rig, ref: str) -> None:
    planner, _ = await rig.agent("Planner")
    error = await refusal(connect(rig.admin, "planner", me=ref or planner.id))
    assert error.reason == "invalid_argument"
    assert error.violations == (
        ("agent.connections[0].agent", "is the agent itself; a connection leads to another agent"),
    )


async def test_a_name_stands_once(rig: Rig) -> None:
    await rig.agent("Weather")
    await rig.agent("Planner")
    twice = [Connection(name="w", agent="weather"), Connection(name="w", agent="weather")]
    error = await refusal(update(rig.admin, "planner", connections=twice))
    assert error.reason == "invalid_argument"
    assert "agent.connections[1].name" in error.message


@pytest.mark.parametrize("name", ["", "W", "1a", "_a", "a b", "a.b", "a" * 33, "a\n", "wetter\u00e4"])
async def test_a_name_that_no_tool_could_begin_with_is_refused(rig: Rig, name: str) -> None:
    await rig.agent("Weather")
    await rig.agent("Planner")
    error = await refusal(connect(rig.admin, "planner", **{name: "weather"}))
    assert (error.reason, error.violations[0][0]) == ("invalid_argument", "connections[0].name")


async def test_twenty_are_allowed_and_one_more_is_not(rig: Rig) -> None:
    await rig.agent("Weather")
    _, planner = await rig.agent("Planner")
    names = {f"n{number}": "weather" for number in range(20)}
    await connect(rig.admin, "planner", **names)
    assert len(await usable(planner)) == 20
    error = await refusal(connect(rig.admin, "planner", **names, more="weather"))
    assert error.reason == "invalid_argument"


async def test_whom_the_writer_may_not_see_is_refused_like_who_never_existed(rig: Rig) -> None:
    await rig.agent("Secret")
    alice = await rig.user("Alice", OPERATOR)
    await rig.admin.identity.RevokeRole(RevokeRoleRequest(user="Alice"))
    await rig.agent("Planner")
    await grant(rig, "planner", ADMIN)
    told = []
    for ref in ("secret", "nobody"):
        error = await refusal(connect(alice, "planner", peer=ref))
        told.append((error.reason, error.message.replace(ref, "REF"), error.violations[0][0]))
    assert told[0] == told[1]
    assert told[0][0] == "invalid_argument"


async def test_a_connection_gives_no_reach_and_comes_back_with_it(rig: Rig) -> None:
    """Seeing is enough to connect; using takes what it takes without a connection."""
    weather, _ = await rig.agent("Weather")
    other, _ = await rig.agent("Other")
    alice = await rig.user("Alice", OPERATOR)
    made, planner = await rig.agent("Planner", by=alice)
    await rig.admin.identity.RevokeRole(RevokeRoleRequest(user="Alice"))
    await grant(rig, "weather", VIEWER)
    await connect(alice, "planner", sky="weather")
    assert await usable(planner) == {}
    await grant(rig, "weather", OPERATOR)
    assert await usable(planner) == {"sky": "weather"}
    await grant(rig, "other", OPERATOR)
    await update(alice, "planner", reach=[other.id])
    assert await usable(planner) == {}
    await update(alice, "planner", reach=[other.id, weather.id])
    assert await usable(planner) == {"sky": "weather"}
    await rig.admin.agents.PauseAgent(PauseAgentRequest(agent="weather"))
    assert await usable(planner) == {}
    await rig.admin.agents.ResumeAgent(ResumeAgentRequest(agent="weather"))
    await rig.admin.agents.PauseAgent(PauseAgentRequest(agent="planner"))
    assert await usable(planner) == {}
    assert made.connections == []


async def test_one_that_is_group_only_or_receives_only_is_offered_as_reach_has_it(rig: Rig) -> None:
    await rig.agent("Lead")
    await rig.agent("Closed", parent_agent_id="lead", is_group_only_callable=True)
    _, planner = await rig.agent("Planner")
    _, mailbox = await rig.agent("Mailbox", kind=pb.AGENT_KIND_RECEIVE_ONLY)
    for slug in ("planner", "mailbox"):
        await connect(rig.admin, slug, one="closed", two="lead")
    assert await usable(planner) == {"two": "lead"}
    assert await usable(mailbox) == {}


async def test_a_deleted_peer_vanishes_from_use_and_shows_as_one_out_of_reach(rig: Rig) -> None:
    """Who may not know of the peer must not learn from the connection that it is gone."""
    gone, _ = await rig.agent("Gone")
    hidden, _ = await rig.agent("Hidden")
    alice = await rig.user("Alice", OPERATOR)
    _, planner = await rig.agent("Planner", by=alice)
    await connect(alice, "planner", a="gone", b="hidden")
    await rig.admin.identity.RevokeRole(RevokeRoleRequest(user="Alice"))
    before = (await alice.agents.GetAgent(GetAgentRequest(agent="planner"))).agent
    await rig.admin.agents.DeleteAgent(DeleteAgentRequest(agent="gone"))
    after = (await alice.agents.GetAgent(GetAgentRequest(agent="planner"))).agent
    assert before == after
    assert await usable(planner) == {}
    # Both may be written again, and both taken away, alike.
    again = [Connection(name="x", agent=gone.id), Connection(name="y", agent=hidden.id)]
    assert (await update(alice, "planner", connections=again)).connections == again
    assert (await update(alice, "planner", connections=[])).connections == []


async def test_what_runs_in_the_cloud_has_none_until_the_mesh_has_a_public_url(rig: Rig) -> None:
    await rig.agent("Weather")
    links = [Connection(name="w", agent="weather")]
    _, planner = await rig.agent("Planner", runtime=pb.AGENT_RUNTIME_CLOUD, connections=links)
    assert await usable(planner) == {}
    reopened = await rig.reopen(public_url="https://mesh.example.org")
    try:
        assert await usable(reopened.caller(planner.token)) == {"w": "weather"}
    finally:
        await reopened.registry.close()


async def test_connections_outlive_a_restart(rig: Rig) -> None:
    await rig.agent("Weather")
    _, planner = await rig.agent(
        "Planner", connections=[Connection(name="w", agent="weather", description="d")]
    )
    reopened = await rig.reopen()
    try:
        found = await reopened.caller(planner.token).visibility.ListConnections(ListConnectionsRequest())
        assert [(each.name, each.peer.slug, each.description) for each in found.connections] == [
            ("w", "weather", "d")
        ]
    finally:
        await reopened.registry.close()
