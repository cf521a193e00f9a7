"""What plugins do with their own agents, and that they know of no others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from hopline.registry.v1 import plugin_pb2 as pb
from hopline.registry.v1.agent_pb2 import (
    AGENT_STATE_ACTIVE,
    AGENT_STATE_PAUSED,
    REPLY_MODE_ALL,
    THINKING_LEVEL_HIGH,
    Agent,
    DeleteAgentRequest,
    UpdateAgentRequest,
)
from hopline.registry.v1.identity_pb2 import GrantRoleRequest
from hopline.registry.v1.model_pb2 import ListModelsRequest
from hopline.registry.v1.visibility_pb2 import WatchChangesRequest
from hopline.registry.v1.workspace_pb2 import Policy, UpdatePolicyRequest
from hopline_directory import OPERATOR, VIEWER

from tests.registry.builders import Rig, refusal
from tests.registry.plugin_builders import CREW, Plugin, agents, confirm, install, own, uninstall

BOTH = ["agents.read", "agents.write"]


async def begin(rig: Rig, *keys: str, **fields: Any) -> Plugin:
    return await install(rig, *keys, **{"permissions": BOTH, **fields})


async def create(plugin: Plugin, key: str, name: str = "", **fields: Any) -> pb.CreatePluginAgentResponse:
    agent = Agent(key=key, name=name or key.capitalize(), **fields)
    return await plugin.caller.plugins.CreatePluginAgent(pb.CreatePluginAgentRequest(agent=agent))


async def change(plugin: Plugin, ref: str, *, enabled: bool | None = None, **fields: Any) -> Agent:
    request = pb.UpdatePluginAgentRequest(
        agent_ref=ref, agent=Agent(**fields), update_mask=FieldMask(paths=list(fields)), enabled=enabled
    )
    return (await plugin.caller.plugins.UpdatePluginAgent(request)).agent


async def delete(plugin: Plugin, ref: str) -> None:
    await plugin.caller.plugins.DeletePluginAgent(pb.DeletePluginAgentRequest(agent=ref))


async def edit(rig: Rig, ref: str, **fields: Any) -> Agent:
    """Change an agent as its owner does."""
    mask = FieldMask(paths=list(fields))
    request = UpdateAgentRequest(agent_ref=ref, agent=Agent(**fields), update_mask=mask)
    return (await rig.admin.agents.UpdateAgent(request)).agent


# -- get or create -----------------------------------------------------------------------------------


async def test_what_the_installation_made_becomes_what_the_plugin_says_once(rig: Rig) -> None:
    plugin = await begin(rig, "oracle")
    (before,) = (await own(plugin)).values()
    assert before.awaits_definition
    made = await create(plugin, "oracle", "The Oracle", soul="wise", thinking_level=THINKING_LEVEL_HIGH)
    assert (made.was_created, made.agent.id, made.agent.slug) == (True, before.id, "omo-oracle")
    assert (made.agent.name, made.agent.soul, made.agent.awaits_definition) == ("The Oracle", "wise", False)
    again = await create(plugin, "oracle", "Other", soul="foolish")
    assert (again.was_created, again.agent) == (False, made.agent)


async def test_an_agent_that_its_owner_has_edited_is_never_overwritten_by_creating_it(rig: Rig) -> None:
    plugin = await begin(rig, "oracle")
    edited = await edit(rig, "omo-oracle", soul="mine")
    found = await create(plugin, "oracle", soul="theirs")
    assert (found.was_created, found.agent.soul, found.agent.id) == (False, "mine", edited.id)


async def test_one_that_was_deleted_is_made_again_under_its_slug(rig: Rig) -> None:
    plugin = await begin(rig, *CREW)
    first = (await create(plugin, "oracle")).agent
    await rig.admin.agents.DeleteAgent(DeleteAgentRequest(agent="omo-oracle"))
    assert set(await own(plugin)) == {"librarian", "scout"}
    made = await create(plugin, "oracle", soul="healed")
    assert (made.was_created, made.agent.slug, made.agent.soul) == (True, "omo-oracle", "healed")
    assert made.agent.id != first.id
    assert made.agent.owner_id == first.owner_id


async def test_creating_at_once_makes_one(rig: Rig) -> None:
    plugin = await begin(rig, "oracle")
    await delete(plugin, "omo-oracle")
    found = await asyncio.gather(*(create(plugin, "oracle", soul=str(number)) for number in range(8)))
    assert sum(each.was_created for each in found) == 1
    assert len({each.agent.id for each in found}) == 1
    assert len({each.agent.soul for each in found}) == 1


@pytest.mark.parametrize(("room", "fits"), [(1, True), (0, False)])
async def test_making_one_again_takes_room(rig: Rig, room: int, *, fits: bool) -> None:
    plugin = await begin(rig, "oracle")
    await delete(plugin, "omo-oracle")
    mask = FieldMask(paths=["agents"])
    await rig.admin.workspaces.UpdatePolicy(UpdatePolicyRequest(policy=Policy(agents=room), update_mask=mask))
    if fits:
        assert (await create(plugin, "oracle")).was_created
    else:
        assert (await refusal(create(plugin, "oracle"))).reason == "limit_reached"


async def test_a_key_that_nobody_has_agreed_to_is_refused(rig: Rig) -> None:
    plugin = await begin(rig, "oracle")
    error = await refusal(create(plugin, "spy"))
    assert (error.reason, "'spy'" in error.message) == ("failed_precondition", True)
    assert (await refusal(create(plugin, "", "Nameless"))).violations[0][0] == "agent.key"


async def test_nothing_is_made_in_the_name_of_somebody_who_may_make_nothing_any_more(rig: Rig) -> None:
    alice = await rig.user("alice", OPERATOR)
    plugin = await begin(rig, "oracle", "scout", by=alice)
    await delete(plugin, "omo-oracle")
    await rig.admin.identity.GrantRole(GrantRoleRequest(user="alice", role=VIEWER))  # type: ignore[arg-type]
    assert (await refusal(create(plugin, "oracle"))).reason == "failed_precondition"
    # What is there goes on.
    assert (await create(plugin, "scout")).was_created


async def test_names_that_leave_no_slug_take_the_key_and_the_prefix_stays(rig: Rig) -> None:
    agents_ = [pb.PluginAgent(key="seer", name="神託"), pb.PluginAgent(key="二", name="二")]
    await install(rig, agents=agents_)
    assert set(await agents(rig)) == {"omo-seer", "omo-agent"}


async def test_a_slug_that_is_taken_gets_a_number_behind_the_prefix(rig: Rig) -> None:
    await rig.agent("own", slug="omo-oracle")
    await begin(rig, "oracle")
    found = await agents(rig)
    assert found["omo-oracle-2"].key == "oracle"
    assert found["omo-oracle"].plugin_id == ""


# -- changing ----------------------------------------------------------------------------------------


async def test_what_is_left_out_stays_and_an_empty_parent_is_none(rig: Rig) -> None:
    plugin = await begin(rig, "oracle", "scout")
    lead = (await own(plugin))["oracle"].id
    made = await change(plugin, "omo-scout", soul="s", is_subagent=True, parent_agent_id=lead)
    assert (made.parent_agent_id, made.is_subagent) == (lead, True)
    kept = await change(plugin, "omo-scout", description="looks", reply_mode=REPLY_MODE_ALL)
    assert (kept.parent_agent_id, kept.soul, kept.description) == (lead, "s", "looks")
    alone = await change(plugin, "omo-scout", parent_agent_id="")
    assert (alone.parent_agent_id, alone.soul) == ("", "s")


async def test_a_parent_is_a_main_agent_of_the_same_plugin(rig: Rig) -> None:
    plugin = await begin(rig, *CREW)
    stranger, _ = await rig.agent("stranger")
    other = await begin(rig, "bear", key="zoo")
    bear = (await own(other))["bear"].id
    answers = set()
    for ref in (stranger.id, bear, "agt_never"):
        error = await refusal(change(plugin, "omo-scout", parent_agent_id=ref))
        answers.add((error.reason, error.message.replace(ref, "REF")))
    assert len(answers) == 1
    await change(plugin, "omo-scout", parent_agent_id="omo-oracle")
    error = await refusal(change(plugin, "omo-librarian", parent_agent_id="omo-scout"))
    assert error.violations[0][0] == "agent.parent_agent_id"


async def test_a_plugin_pauses_and_resumes_its_agents(rig: Rig) -> None:
    plugin = await begin(rig, "oracle")
    assert (await change(plugin, "omo-oracle", enabled=False)).state == AGENT_STATE_PAUSED
    changed = await change(plugin, "omo-oracle", enabled=True, soul="back")
    assert (changed.state, changed.soul) == (AGENT_STATE_ACTIVE, "back")
    assert (await change(plugin, "omo-oracle", enabled=True)) == changed


@pytest.mark.parametrize(
    "field", ["owner_id", "reach", "wake", "is_default", "key", "slug", "tools", "state", "plugin_id", "crew"]
)
async def test_a_plugin_says_nothing_that_is_its_owners_or_the_meshs_to_say(rig: Rig, field: str) -> None:
    plugin = await begin(rig, "oracle")
    mask = FieldMask(paths=[field])
    request = pb.UpdatePluginAgentRequest(agent_ref="omo-oracle", agent=Agent(), update_mask=mask)
    error = await refusal(plugin.caller.plugins.UpdatePluginAgent(request))
    assert (error.reason, field in error.message) == ("invalid_argument", True)
    values: dict[str, Any] = {"reach": ["a"], "tools": ["a"], "wake": {}, "is_default": True, "state": 2}
    if field != "key":
        error = await refusal(create(plugin, "oracle", **{field: values.get(field, "x")}))
        assert error.violations[0][0] == f"agent.{field}"


async def test_neither_the_plugin_nor_the_owner_gives_an_agent_another_key(rig: Rig) -> None:
    await begin(rig, "oracle", "scout")
    for key in ("other", ""):
        error = await refusal(edit(rig, "omo-oracle", key=key))
        assert error.violations[0][0] == "agent.key"
    assert (await edit(rig, "omo-oracle", name="Mine")).name == "Mine"


async def test_an_update_that_says_nothing_is_refused(rig: Rig) -> None:
    plugin = await begin(rig, "oracle")
    assert (await refusal(change(plugin, "omo-oracle"))).reason == "invalid_argument"


async def test_deleting_takes_the_lead_from_its_subagents_and_spares_the_default(rig: Rig) -> None:
    plugin = await begin(rig, "oracle", "scout")
    await change(plugin, "omo-scout", parent_agent_id="omo-oracle")
    await edit(rig, "omo-oracle", is_default=True)
    assert (await refusal(delete(plugin, "omo-oracle"))).reason == "failed_precondition"
    await edit(rig, "omo-oracle", is_default=False)
    await delete(plugin, "omo-oracle")
    (left,) = (await own(plugin)).values()
    assert (left.key, left.parent_agent_id) == ("scout", "")


# -- whose -------------------------------------------------------------------------------------------


async def test_agents_that_are_not_its_own_answer_like_none(rig: Rig) -> None:
    plugin = await begin(rig, "oracle")
    other = await begin(rig, "bear", key="zoo")
    mine, _ = await rig.agent("mine")
    gone, _ = await rig.agent("gone")
    await rig.admin.agents.DeleteAgent(DeleteAgentRequest(agent="gone"))
    bear = (await own(other))["bear"]
    found = set()
    for ref in (mine.id, mine.slug, mine.name, gone.id, bear.id, bear.slug, "Bear", "agt_never", "never"):
        for call in (
            change(plugin, ref, soul="x"),
            change(plugin, ref, enabled=False),
            delete(plugin, ref),
        ):
            error = await refusal(call)
            found.add((error.reason, error.message.replace(f"'{ref}'", "REF")))
    assert found == {("not_found", "there is no agent REF")}
    assert set(await own(plugin)) == {"oracle"}
    assert len(await agents(rig)) == 3


async def test_a_plugin_looks_at_itself_and_at_no_other_plugin(rig: Rig) -> None:
    plugin, other = await begin(rig, "oracle"), await begin(rig, key="zoo")
    for ref in ("", "omo", plugin.id):
        found = await plugin.caller.plugins.GetPlugin(pb.GetPluginRequest(plugin=ref))
        assert found.plugin.id == plugin.id
    for ref in ("zoo", other.id, "never"):
        error = await refusal(plugin.caller.plugins.GetPlugin(pb.GetPluginRequest(plugin=ref)))
        assert error.message == f"there is no plugin {ref!r}"


# -- permissions -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("permissions", "missing"),
    [
        ([], {"agents.read", "agents.write", "models.read"}),
        (["agents.read"], {"agents.write", "models.read"}),
        (["agents.write"], {"agents.read", "models.read"}),
        (["models.read"], {"agents.read", "agents.write"}),
        (["agents.read", "agents.write", "models.read"], set()),
    ],
)
async def test_what_the_manifest_does_not_allow_is_refused_by_the_permissions_name(
    rig: Rig, permissions: list[str], missing: set[str]
) -> None:
    plugin = await install(rig, "oracle", permissions=permissions)
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "agents.read": lambda: own(plugin),
        "models.read": lambda: plugin.caller.models.ListModels(ListModelsRequest()),
        "agents.write": lambda: create(plugin, "oracle"),
    }
    for permission, call in calls.items():
        if permission not in missing:
            await call()
            continue
        error = await refusal(call())
        assert (error.reason, error.details["permission"]) == ("permission_denied", permission)
        assert permission in error.message
    if "agents.write" in missing:
        for write in (change(plugin, "omo-oracle", soul="x"), delete(plugin, "omo-oracle")):
            assert (await refusal(write)).details["permission"] == "agents.write"


async def test_before_it_is_confirmed_a_plugin_may_do_nothing_but_look_at_itself(rig: Rig) -> None:
    plugin = await begin(rig, "oracle", confirm=False)
    for call in (own(plugin), create(plugin, "oracle"), delete(plugin, "omo-oracle")):
        error = await refusal(call)
        assert (error.reason, "confirmed" in error.message) == ("permission_denied", True)
    found = await plugin.caller.plugins.GetPlugin(pb.GetPluginRequest())
    assert found.plugin.state == pb.PLUGIN_STATE_AWAITING_CONFIRMATION
    await confirm(rig.admin)
    assert set(await own(plugin)) == {"oracle"}


async def test_a_permission_that_waits_to_be_confirmed_is_not_there_yet(rig: Rig) -> None:
    plugin = await install(rig, "oracle", permissions=["agents.read"])
    manifest = (await plugin.caller.plugins.GetPlugin(pb.GetPluginRequest())).plugin.manifest
    manifest.version = "2"
    manifest.permissions.append("agents.write")
    await plugin.caller.plugins.UpdatePlugin(pb.UpdatePluginRequest(manifest=manifest))
    assert (await refusal(create(plugin, "oracle"))).reason == "permission_denied"
    await confirm(rig.admin)
    assert (await create(plugin, "oracle")).was_created


async def test_what_a_plugin_does_stands_in_the_feed_in_its_name(rig: Rig) -> None:
    plugin = await begin(rig, "oracle")
    service = await rig.service()
    head = rig.registry.directory.seq
    await create(plugin, "oracle", soul="wise")
    await uninstall(rig.admin)
    stream = service.visibility.WatchChanges(WatchChangesRequest(from_seq=head))
    notes = [each.audit for each in (await anext(aiter(stream))).changes]
    stream.cancel()
    assert [(each.action, each.actor_kind) for each in notes] == [
        ("agent.updated", "plugin"),
        ("agent.deleted", "user"),
        ("token.revoked", "user"),
        ("plugin.uninstalled", "user"),
    ]
    assert notes[0].actor_id == plugin.id
    assert notes[0].actor_name == "Oh My"
