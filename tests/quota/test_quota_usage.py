"""What an agent and its people learn of its limits."""

from __future__ import annotations

from typing import Any

import pytest
from hopline.quota.v1 import admission_pb2
from hopline.quota.v1 import usage_pb2 as pb
from hopline.registry.v1 import identity_pb2
from hopline_rpc.errors import HoplineError

from tests.quota.mesh import Mesh

POLICY_KEYS = {
    "max_depth",
    "messages_per_thread",
    "sent_per_day",
    "received_per_day",
    "concurrent_runs",
    "root_turns",
    "batch_inbox",
    "require_isolation",
    "agents",
    "subagent_depth",
    "hook_generations",
    "inbox_backlog",
    "causality_window_seconds",
    "refuse_cycles",
    "pair_budget",
    "refusals",
    "turn_seconds",
    "queue_seconds",
    "retention_days",
    "credits",
    "redact_credentials",
    "evidence_required",
}


async def usage(mesh: Mesh, token: str, agent: str = "") -> pb.GetUsageResponse:
    response: pb.GetUsageResponse = await mesh.usage(token).GetUsage(pb.GetUsageRequest(agent=agent))
    return response


async def refusal(mesh: Mesh, token: str, agent: str = "") -> HoplineError:
    with pytest.raises(HoplineError) as caught:
        await usage(mesh, token, agent)
    return caught.value


async def test_an_agent_sees_what_it_has_used_and_when_it_is_reset(mesh: Mesh) -> None:
    await mesh.seed()
    agent_id, token = await mesh.agent("planner")
    await mesh.admit(await mesh.item("k1", agent_id, "agt_b"), await mesh.item("k2", "agt_b", agent_id))
    found = await usage(mesh, token)
    assert found.agent_id == agent_id
    assert (found.sent_today, found.received_today, found.inbox, found.running) == (1, 1, 1, 0)
    assert found.resets_at.ToJsonString() == "2025-06-16T00:00:00Z"


async def test_the_limits_are_the_policy_keys_with_their_values(mesh: Mesh) -> None:
    await mesh.seed()
    _, token = await mesh.agent("planner")
    limits = (await usage(mesh, token)).limits
    assert set(limits) == POLICY_KEYS
    assert limits["max_depth"] == "4"
    assert limits["pair_budget"] == "30/300s"
    assert limits["credits"] == "off"
    assert limits["batch_inbox"] == "false"
    assert limits["refuse_cycles"] == "off"


async def test_a_changed_policy_shows_at_once(mesh: Mesh) -> None:
    await mesh.seed()
    _, token = await mesh.agent("planner")
    await mesh.policy(max_depth=7, pair_budget="0", refusals="0", credits="0.250000", require_isolation=True)
    limits = (await usage(mesh, token)).limits
    shown = {key: limits[key] for key in ("max_depth", "pair_budget", "refusals", "require_isolation")}
    assert shown == {"max_depth": "7", "pair_budget": "0", "refusals": "0", "require_isolation": "true"}
    assert float(limits["credits"]) == 0.25


@pytest.mark.parametrize("by", ["id", "slug"])
async def test_an_agent_may_name_itself(mesh: Mesh, by: str) -> None:
    await mesh.seed()
    agent_id, token = await mesh.agent("planner")
    assert (await usage(mesh, token, agent_id if by == "id" else "planner")).agent_id == agent_id


async def test_another_agents_usage_answers_an_agent_as_a_name_that_never_existed(mesh: Mesh) -> None:
    await mesh.seed()
    _, token = await mesh.agent("planner")
    await mesh.agent("reviewer")
    real, made_up = await refusal(mesh, token, "reviewer"), await refusal(mesh, token, "nonesuch")
    assert real.reason == made_up.reason == "not_found"
    assert real.message.replace("reviewer", "nonesuch") == made_up.message


async def test_a_viewer_sees_an_agents_usage_and_others_are_told_it_does_not_exist(mesh: Mesh) -> None:
    await mesh.seed()
    agent_id, _ = await mesh.agent("planner")
    user_id, token = await mesh.user("bob")
    before = await refusal(mesh, token, "planner")
    assert before.reason == "not_found"
    assert before.message.replace("planner", "x") == (await refusal(mesh, token, "x")).message
    await mesh.grant(user_id, identity_pb2.ROLE_VIEWER, "planner")
    assert (await usage(mesh, token, "planner")).agent_id == agent_id


async def test_a_person_has_to_say_whose_usage(mesh: Mesh) -> None:
    await mesh.seed()
    error = await refusal(mesh, mesh.tokens["admin"])
    assert (error.reason, error.violations[0][0]) == ("invalid_argument", "agent")


async def test_a_service_alone_has_no_usage(mesh: Mesh) -> None:
    await mesh.seed()
    assert (await refusal(mesh, mesh.tokens["relay"])).reason == "permission_denied"


async def test_a_service_may_ask_on_behalf_of_an_agent(mesh: Mesh) -> None:
    await mesh.seed()
    agent_id, token = await mesh.agent("planner")
    subject = (("hopline-subject", await mesh.assertion(token)),)
    stub = mesh.usage(mesh.tokens["relay"])
    assert (await stub.GetUsage(pb.GetUsageRequest(), metadata=subject)).agent_id == agent_id


async def test_while_the_counters_are_being_rebuilt_usage_is_unavailable(mesh: Mesh) -> None:
    _, token = await mesh.agent("planner")
    error = await refusal(mesh, token)
    assert (error.reason, error.retryable) == ("unavailable", True)


async def test_the_depth_shown_is_of_the_turn_that_runs_or_ran_within_the_policys_window(mesh: Mesh) -> None:
    await mesh.seed()
    await mesh.policy(causality_window_seconds=100)
    agent_id, token = await mesh.agent("planner")
    workspace = await mesh.workspace_id()
    common: dict[str, Any] = {"turn_id": "t", "workspace_id": workspace, "agent_id": agent_id}
    begin = admission_pb2.BeginTurnItem(depth=3, root_id="R", attempt=1, **common)
    await mesh.relay.BeginTurn(admission_pb2.BeginTurnRequest(epoch=1, items=[begin]))
    assert (await usage(mesh, token)).depth == 3
    end = admission_pb2.EndTurnItem(kind=admission_pb2.END_KIND_ENDED, **common)
    await mesh.relay.EndTurn(admission_pb2.EndTurnRequest(epoch=1, items=[end]))
    await mesh.clock.advance(99)
    assert (await usage(mesh, token)).depth == 3
    await mesh.clock.advance(1)
    assert (await usage(mesh, token)).depth == 0
