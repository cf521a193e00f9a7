"""Slugs that are taken, reserved or look alike, and what those who use an old name are told."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from hopline.registry.v1 import agent_pb2 as pb
from hopline.registry.v1.agent_pb2 import DeleteAgentRequest, GetAgentRequest, UpdateAgentRequest
from hopline.registry.v1.visibility_pb2 import ResolveRequest
from hopline_registry.domain.names import RESERVED_SECONDS
from hopline_rpc.clock import ManualClock
from hopline_rpc.errors import HoplineError

from tests.registry.builders import Caller, Rig, refusal


async def delete(rig: Rig, agent: str) -> None:
    await rig.admin.agents.DeleteAgent(DeleteAgentRequest(agent=agent))


async def rename(rig: Rig, agent: str, name: str) -> pb.Agent:
    request = UpdateAgentRequest(agent_ref=agent, agent=pb.Agent(name=name))
    request.update_mask.CopyFrom(FieldMask(paths=["name"]))
    return (await rig.admin.agents.UpdateAgent(request)).agent


async def skip(rig: Rig, seconds: float) -> None:
    rig.clock._now += seconds
    await rig.clock.advance(0.3)


@pytest.mark.parametrize("slug", ["b0t", "B0T", "\uff22\uff2f\uff34"])
async def test_a_slug_that_looks_like_anothers_is_refused_and_names_it(rig: Rig, slug: str) -> None:
    await rig.agent("Bot")
    error = await refusal(rig.agent("Other", slug=slug))
    assert error.reason == "failed_precondition"
    assert "taken" in error.message
    assert (await rig.agent("B0t"))[0].slug == "b0t-2"


async def test_slugs_that_look_alike_made_at_once_are_made_once(rig: Rig) -> None:
    async def outcome(slug: str) -> str:
        try:
            return str((await rig.agent("Single", slug=slug))[0].slug)
        except HoplineError as error:
            return error.reason

    made = await asyncio.gather(*(outcome(slug) for slug in ("modern", "modem", "m0dern", "rnodern")))
    assert sorted(made)[:3] == ["failed_precondition"] * 3


async def test_the_slug_of_a_deleted_agent_is_reserved_for_thirty_days(rig: Rig) -> None:
    first, _ = await rig.agent("Planner")
    await delete(rig, "planner")
    assert (await rig.agent("Planner"))[0].slug == "planner-2"
    for slug in ("planner", "p1anner"):
        error = await refusal(rig.agent("P", slug=slug))
        assert error.reason == "failed_precondition"
        assert "reserved" in error.message
    await skip(rig, RESERVED_SECONDS - 10)
    assert (await refusal(rig.agent("P", slug="planner"))).reason == "failed_precondition"
    await skip(rig, 20)
    second, _ = await rig.agent("P", slug="planner")
    assert (second.slug, second.id != first.id) == ("planner", True)
    rig = await rig.reopen()
    found = await rig.admin.agents.GetAgent(GetAgentRequest(agent="planner"))
    assert found.agent.id == second.id
    await rig.registry.close()


async def test_the_same_key_of_the_same_owner_gets_its_slug_back_at_once(rig: Rig) -> None:
    await rig.agent("Planner", key="lead")
    await delete(rig, "planner")
    zoe = await rig.user("zoe", 2)
    assert (await refusal(rig.agent("P", zoe, slug="planner", key="lead"))).reason == "failed_precondition"
    assert (await refusal(rig.agent("P", slug="planner", key="other"))).reason == "failed_precondition"
    assert (await refusal(rig.agent("P", slug="planner"))).reason == "failed_precondition"
    assert (await rig.agent("Planner", key="lead"))[0].slug == "planner"


async def test_who_may_see_an_agent_and_uses_its_old_name_is_told_the_new_one(rig: Rig) -> None:
    agent, _ = await rig.agent("Planner")
    _, peer = await rig.agent("Peer")
    after = await rename(rig, agent.id, "Chief")
    assert (after.id, after.slug, after.name) == (agent.id, agent.slug, "Chief")
    calls: list[Any] = [
        lambda: peer.visibility.Resolve(ResolveRequest(agent="Planner")),
        lambda: rig.admin.agents.GetAgent(GetAgentRequest(agent="Planner")),
        lambda: rig.admin.agents.PauseAgent(pb.PauseAgentRequest(agent="Planner")),
    ]
    for call in calls:
        error = await refusal(call())
        assert error.reason == "not_found"
        assert "'Chief'" in error.message
        assert error.details["renamed_to"] == [{"id": agent.id, "slug": "planner", "name": "Chief"}]
    for ref in ("Chief", "planner", agent.id):
        assert (await peer.visibility.Resolve(ResolveRequest(agent=ref))).peer.id == agent.id
    await skip(rig, RESERVED_SECONDS + 1)
    for call in calls:
        assert "renamed_to" not in (await refusal(call())).details


async def _told(caller: Caller, ref: str) -> tuple[str, str, dict[str, Any]]:
    error = await refusal(caller.visibility.Resolve(ResolveRequest(agent=ref)))
    return error.reason, error.message.replace(ref, "NAME"), {**error.details, "agent": "NAME"}


async def test_who_may_not_see_an_agent_is_told_nothing_of_its_names(rig: Rig) -> None:
    hidden, _ = await rig.agent("Hidden")
    zoe = await rig.user("zoe")
    await rename(rig, hidden.id, "Elsewhere")
    answers = [await _told(zoe, ref) for ref in ("Hidden", "Never", "Elsewhere")]
    assert answers == [answers[0]] * 3
    assert "renamed_to" not in answers[0][2]


async def test_a_name_that_somebody_has_now_means_them_and_one_shared_before_lists_both(rig: Rig) -> None:
    one, _ = await rig.agent("Twin", slug="one")
    two, _ = await rig.agent("Twin", slug="two")
    await rename(rig, "one", "First")
    await rename(rig, "two", "Second")
    error = await refusal(rig.admin.agents.GetAgent(GetAgentRequest(agent="Twin")))
    assert {each["id"] for each in error.details["renamed_to"]} == {one.id, two.id}
    three, _ = await rig.agent("Twin", slug="three")
    assert (await rig.admin.agents.GetAgent(GetAgentRequest(agent="Twin"))).agent.id == three.id
    back = await rename(rig, "one", "Twin")
    assert [each.name for each in back.former_names] == ["First"]


async def test_a_registry_of_before_gets_the_looks_of_its_slugs(tmp_path: Path) -> None:
    rig = await Rig.open(tmp_path, ManualClock())
    await rig.agent("Modern")
    await rig.registry.close()
    with sqlite3.connect(tmp_path / "registry.db") as record:
        record.execute("DROP INDEX agents_by_look")
        record.execute("DROP INDEX agents_by_key")
        record.execute("DROP INDEX agents_by_scope")
        record.execute("DROP TABLE models")
        record.execute("DROP TABLE secrets")
        record.execute("DROP TABLE plugins")
        since = ("slug_look", "former_names", "connections", "webhook_secret", "awaits_definition", "crew")
        for column in since:
            record.execute(f"ALTER TABLE agents DROP COLUMN {column}")
        record.execute("DROP INDEX users_by_login")
        for column in ("webhook_url", "webhook_secret", "login"):
            record.execute(f"ALTER TABLE users DROP COLUMN {column}")
        record.execute("UPDATE alembic_version SET version_num = '0001'")
    record.close()
    rig = await Rig.open(tmp_path, rig.clock)
    assert "looks like 'modern'" in (await refusal(rig.agent("Other", slug="modem"))).message
    await rig.registry.close()
