"""New versions of plugins: what waits for its owner's OK, and what goes on meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from hopline.registry.v1 import plugin_pb2 as pb
from hopline.registry.v1.identity_pb2 import GrantRoleRequest
from hopline.registry.v1.workspace_pb2 import Policy, UpdatePolicyRequest
from hopline_directory import ADMIN, OPERATOR, VIEWER

from tests.registry.builders import Rig, refusal
from tests.registry.plugin_builders import Plugin, agents, confirm, install, manifest, own, update

ENDPOINT = "127.0.0.1:7500"
HOOK = pb.PluginHook(kind="todo_added", order=1, fail_mode="fail_open")
# What a version adds, and the words in which it is asked for.
WIDER: list[tuple[dict[str, Any], str]] = [
    ({"permissions": ["agents.read", "agents.write"]}, "permission agents.write"),
    ({"endpoint": "127.0.0.1:7501"}, "endpoint 127.0.0.1:7501"),
    ({"hooks": [HOOK]}, "hook todo_added (fail_open)"),
    ({"tools": [pb.PluginTool(name="find", description="finds")]}, "tool find"),
    ({"skills": [pb.PluginSkill(name="method", description="how", text="so")]}, "skill method"),
    ({"commands": [pb.PluginCommand(name="ask", agent_key="oracle")]}, "command ask"),
]


async def begin(rig: Rig, **fields: Any) -> Plugin:
    return await install(rig, "oracle", **{"permissions": ["agents.read"], "endpoint": ENDPOINT, **fields})


def version(number: int, *keys: str, **fields: Any) -> pb.PluginManifest:
    values = {"permissions": ["agents.read"], "endpoint": ENDPOINT, "version": str(number), **fields}
    return manifest(*keys, **values)


async def told(rig: Rig) -> pb.Plugin:
    return (await rig.admin.plugins.GetPlugin(pb.GetPluginRequest(plugin="omo"))).plugin


async def limit(rig: Rig, count: int) -> None:
    request = UpdatePolicyRequest(policy=Policy(agents=count), update_mask=FieldMask(paths=["agents"]))
    await rig.admin.workspaces.UpdatePolicy(request)


async def test_a_version_that_adds_nothing_is_in_force_at_once(rig: Rig) -> None:
    plugin = await begin(rig)
    found = await update(plugin.caller, version(2, "oracle", description="better"))
    assert (found.plugin.state, found.adds_agents) == (pb.PLUGIN_STATE_ACTIVE, 0)
    assert (found.plugin.manifest.version, found.plugin.revision) == ("2", 2)


async def test_a_version_that_adds_an_agent_waits_and_the_old_one_goes_on_meanwhile(rig: Rig) -> None:
    plugin = await begin(rig)
    found = await update(plugin.caller, version(2, "oracle", "scout"))
    assert (found.plugin.state, found.adds_agents) == (pb.PLUGIN_STATE_UPDATE_WAITING, 1)
    assert (found.plugin.manifest.version, found.plugin.waiting.version) == ("1", "2")
    assert list(found.plugin.asks) == ["agent scout"]
    assert set(await agents(rig)) == {"omo-oracle"}
    assert set(await own(plugin)) == {"oracle"}
    (known,) = rig.registry.directory.plugins(found.plugin.workspace_id)
    assert known.version == "1"
    confirmed = await confirm(rig.admin)
    assert (confirmed.state, confirmed.manifest.version) == (pb.PLUGIN_STATE_ACTIVE, "2")
    assert set(await own(plugin)) == {"oracle", "scout"}


@pytest.mark.parametrize(("fields", "word"), WIDER, ids=lambda value: str(value) if value is str else None)
async def test_whatever_a_version_asks_for_anew_waits_and_is_said_in_words(
    rig: Rig, fields: dict[str, Any], word: str
) -> None:
    plugin = await begin(rig)
    found = (await update(plugin.caller, version(2, "oracle", **fields))).plugin
    assert (found.state, list(found.asks)) == (pb.PLUGIN_STATE_UPDATE_WAITING, [word])
    # Having it, the next version keeps it without asking, and gives it up without asking.
    await confirm(rig.admin)
    kept = (await update(plugin.caller, version(3, "oracle", **fields))).plugin
    less = (await update(plugin.caller, version(4, "oracle"))).plugin
    wants_the_old_endpoint_back = "endpoint" in fields
    assert kept.state == pb.PLUGIN_STATE_ACTIVE
    assert (less.state == pb.PLUGIN_STATE_ACTIVE) != wants_the_old_endpoint_back


async def test_a_hook_that_closes_where_it_was_open_is_asked_for_again(rig: Rig) -> None:
    plugin = await begin(rig, hooks=[HOOK])
    closed = pb.PluginHook(kind="todo_added", order=1, fail_mode="fail_closed")
    found = (await update(plugin.caller, version(2, "oracle", hooks=[closed]))).plugin
    assert list(found.asks) == ["hook todo_added (fail_closed)"]


async def test_a_person_may_agree_in_the_same_call_and_a_plugin_may_not(rig: Rig) -> None:
    plugin = await begin(rig)
    error = await refusal(update(plugin.caller, version(2, "oracle", "scout"), confirm=True))
    assert (error.reason, error.violations[0][0]) == ("invalid_argument", "confirm")
    found = await update(rig.admin, version(2, "oracle", "scout"), confirm=True)
    assert found.plugin.state == pb.PLUGIN_STATE_ACTIVE
    assert len(await agents(rig)) == 2


async def test_an_operator_agrees_to_agents_and_an_admin_to_what_reaches_further(rig: Rig) -> None:
    alice, anna = await rig.user("alice", OPERATOR), await rig.user("anna", ADMIN)
    plugin = await install(rig, "oracle", by=alice)
    await update(plugin.caller, manifest("oracle", "scout", version="2"))
    assert (await confirm(alice)).manifest.version == "2"
    wider = manifest("oracle", "scout", version="3", permissions=["session"])
    await update(plugin.caller, wider)
    assert (await refusal(confirm(alice))).reason == "permission_denied"
    assert (await refusal(update(alice, wider, confirm=True))).reason == "permission_denied"
    assert (await told(rig)).manifest.version == "2"
    assert (await confirm(anna)).manifest.version == "3"


async def test_what_was_looked_at_is_what_is_confirmed(rig: Rig) -> None:
    plugin = await begin(rig)
    seen = (await update(plugin.caller, version(2, "oracle", "scout"))).plugin.waiting_revision
    newer = (await update(plugin.caller, version(3, "oracle", "spy"))).plugin.waiting_revision
    error = await refusal(confirm(rig.admin, seen))
    assert (error.reason, error.details["revision"]) == ("failed_precondition", newer)
    assert set(await agents(rig)) == {"omo-oracle"}
    assert (await confirm(rig.admin, newer)).manifest.version == "3"
    assert set(await own(plugin)) == {"oracle", "spy"}


async def test_of_several_versions_the_newest_waits_and_one_that_asks_for_nothing_ends_the_waiting(
    rig: Rig,
) -> None:
    plugin = await begin(rig)
    await update(plugin.caller, version(2, "oracle", "scout"))
    found = (await update(plugin.caller, version(3, "oracle"))).plugin
    assert (found.state, found.manifest.version) == (pb.PLUGIN_STATE_ACTIVE, "3")
    assert not found.HasField("waiting")
    assert (await confirm(rig.admin)).manifest.version == "3"


async def test_a_version_names_one_manifest(rig: Rig) -> None:
    plugin = await begin(rig)
    assert (await update(plugin.caller, version(1, "oracle"))).plugin.revision == 1
    error = await refusal(update(plugin.caller, version(1, "oracle", description="other")))
    assert error.reason == "failed_precondition"
    await update(plugin.caller, version(2, "oracle", "scout"))
    assert (await refusal(update(plugin.caller, version(2, "oracle", "spy")))).reason == "failed_precondition"


async def test_the_key_of_a_plugin_stays(rig: Rig) -> None:
    plugin = await begin(rig)
    error = await refusal(update(plugin.caller, version(2, "oracle", key="other")))
    assert error.violations[0][0] == "manifest.key"


async def test_a_version_that_waits_can_be_declined(rig: Rig) -> None:
    plugin = await begin(rig)
    await update(plugin.caller, version(2, "oracle", "scout"))
    request = pb.DeclinePluginUpdateRequest(plugin="omo")
    found = (await rig.admin.plugins.DeclinePluginUpdate(request)).plugin
    assert (found.state, found.manifest.version) == (pb.PLUGIN_STATE_ACTIVE, "1")
    assert (await rig.admin.plugins.DeclinePluginUpdate(request)).plugin == found
    assert (await confirm(rig.admin)) == found
    # Its number is not given again: whoever looked at it before confirms nothing else by it.
    again = (await update(plugin.caller, version(3, "oracle", "spy"))).plugin
    assert again.waiting_revision > 2


async def test_an_installation_that_waits_takes_no_new_version(rig: Rig) -> None:
    plugin = await begin(rig, confirm=False)
    for caller in (plugin.caller, rig.admin):
        error = await refusal(update(caller, version(2, "oracle")))
        assert error.reason == "failed_precondition"


@pytest.mark.parametrize(("room", "fits"), [(3, True), (2, False)])
async def test_the_room_is_checked_when_a_version_comes_and_when_it_is_confirmed(
    rig: Rig, room: int, *, fits: bool
) -> None:
    plugin = await begin(rig)
    new = version(2, "oracle", "scout", "librarian")
    await limit(rig, room)
    if not fits:
        assert (await refusal(update(plugin.caller, new))).reason == "limit_reached"
        await limit(rig, room + 1)
    await update(plugin.caller, new)
    await rig.agent("squatter")
    await limit(rig, 3)
    assert (await refusal(confirm(rig.admin))).reason == "limit_reached"
    waiting = await told(rig)
    assert (waiting.state, waiting.manifest.version) == (pb.PLUGIN_STATE_UPDATE_WAITING, "1")
    await limit(rig, 4)
    await confirm(rig.admin)
    assert len(await agents(rig)) == 4


async def test_agents_that_a_version_declares_no_more_are_named_and_stay(rig: Rig) -> None:
    plugin = await begin(rig)
    ids = {key: agent.id for key, agent in (await own(plugin)).items()}
    found = await update(plugin.caller, version(2))
    assert list(found.retired_agent_ids) == [ids["oracle"]]
    assert set(await own(plugin)) == {"oracle"}
    # Declared again, it is the same agent, and no other is made beside it.
    back = await update(plugin.caller, version(3, "oracle"))
    await confirm(rig.admin)
    assert back.plugin.state == pb.PLUGIN_STATE_UPDATE_WAITING
    assert {key: agent.id for key, agent in (await own(plugin)).items()} == ids


async def test_nothing_is_added_in_the_name_of_somebody_who_may_add_nothing_any_more(rig: Rig) -> None:
    alice = await rig.user("alice", OPERATOR)
    plugin = await install(rig, "oracle", by=alice)
    await update(plugin.caller, manifest("oracle", "scout", version="2"))
    await rig.admin.identity.GrantRole(GrantRoleRequest(user="alice", role=VIEWER))  # type: ignore[arg-type]
    for caller in (alice, rig.admin):
        assert (await refusal(confirm(caller))).reason in ("permission_denied", "failed_precondition")
    assert set(await agents(rig)) == {"omo-oracle"}
    assert (await told(rig)).state == pb.PLUGIN_STATE_UPDATE_WAITING


async def test_confirming_many_times_at_once_adds_its_agents_once(rig: Rig) -> None:
    plugin = await begin(rig)
    await update(plugin.caller, version(2, "oracle", "scout", "librarian"))
    found = await asyncio.gather(*(confirm(rig.admin) for _ in range(5)))
    assert {each.manifest.version for each in found} == {"2"}
    assert len(await agents(rig)) == 3
    assert (await told(rig)).revision == 2
