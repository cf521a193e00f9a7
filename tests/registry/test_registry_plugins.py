"""Installing plugins: what it adds, who may, what room it takes, and how it ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from hopline.registry.v1 import plugin_pb2 as pb
from hopline.registry.v1.agent_pb2 import (
    AGENT_STATE_ACTIVE,
    AGENT_STATE_PROVISIONING,
    Agent,
    DeleteAgentRequest,
    PauseAgentRequest,
    ResumeAgentRequest,
    UpdateAgentRequest,
)
from hopline.registry.v1.identity_pb2 import CreateTokenRequest, GrantRoleRequest, ListTokensRequest
from hopline.registry.v1.visibility_pb2 import ListPeersRequest
from hopline.registry.v1.workspace_pb2 import Policy, UpdatePolicyRequest
from hopline_directory import ADMIN, OPERATOR, VIEWER
from hopline_registry import plugins
from hopline_registry.domain.names import RESERVED_SECONDS

from tests.registry.builders import Caller, Rig, refusal
from tests.registry.plugin_builders import CREW, agents, confirm, install, manifest, uninstall

pytestmark = pytest.mark.both_stores

# What reaches further than the installer's own agents.
FAR: list[dict[str, Any]] = [
    {"permissions": ["session"]},
    {"permissions": ["todo.read"]},
    {"endpoint": "127.0.0.1:7500"},
    {"skills": [pb.PluginSkill(name="method", description="how", text="so")]},
    {"model_provider": True},
]


async def limit(rig: Rig, count: int) -> None:
    request = UpdatePolicyRequest(policy=Policy(agents=count), update_mask=FieldMask(paths=["agents"]))
    await rig.admin.workspaces.UpdatePolicy(request)


async def listed(caller: Caller) -> list[str]:
    found = await caller.plugins.ListPlugins(pb.ListPluginsRequest())
    return [each.manifest.key for each in found.plugins]


# -- installing --------------------------------------------------------------------------------------


async def test_installing_says_what_it_adds_and_its_agents_wait_until_it_is_confirmed(rig: Rig) -> None:
    alice = await rig.user("alice", OPERATOR)
    made = (await install(rig, *CREW, by=alice, confirm=False)).answer
    assert (made.adds_agents, made.was_created) == (3, True)
    assert made.plugin.state == pb.PLUGIN_STATE_AWAITING_CONFIRMATION
    assert list(made.plugin.asks) == ["agent librarian", "agent oracle", "agent scout"]
    assert {each.state for each in (await agents(rig)).values()} == {AGENT_STATE_PROVISIONING}
    confirmed = await confirm(alice)
    assert (confirmed.state, list(confirmed.asks)) == (pb.PLUGIN_STATE_ACTIVE, [])
    found = await agents(rig)
    assert set(found) == {"omo-oracle", "omo-librarian", "omo-scout"}
    assert {each.state for each in found.values()} == {AGENT_STATE_ACTIVE}
    me = confirmed.installed_by
    assert {(each.owner_id, each.plugin_id, each.plugin_name) for each in found.values()} == {
        (me, confirmed.id, "Oh My")
    }


async def test_what_waits_to_be_confirmed_can_neither_be_reached_nor_woken_by_hand(rig: Rig) -> None:
    _, planner = await rig.agent("planner")
    await install(rig, "oracle", confirm=False)
    assert (await planner.visibility.ListPeers(ListPeersRequest())).peers == []
    for call in (
        rig.admin.agents.ResumeAgent(ResumeAgentRequest(agent="omo-oracle")),
        rig.admin.agents.PauseAgent(PauseAgentRequest(agent="omo-oracle")),
    ):
        assert (await refusal(call)).reason == "failed_precondition"
    await confirm(rig.admin)
    (peer,) = (await planner.visibility.ListPeers(ListPeersRequest())).peers
    assert (peer.slug, peer.plugin_id != "", peer.plugin_name) == ("omo-oracle", True, "Oh My")


@pytest.mark.parametrize("confirmed", [False, True])
@pytest.mark.parametrize(("room", "fits"), [(4, True), (3, False), (1, False)])
async def test_a_plan_has_room_for_all_of_its_agents_or_nothing_is_installed(
    rig: Rig, room: int, *, fits: bool, confirmed: bool
) -> None:
    await rig.agent("own")
    await limit(rig, room)
    if fits:
        await install(rig, *CREW, confirm=confirmed)
        assert len(await agents(rig)) == 4
    else:
        error = await refusal(install(rig, *CREW, confirm=confirmed))
        assert (error.reason, error.details["used"], error.details["limit"]) == ("limit_reached", 1, room)
        assert list(await agents(rig)) == ["own"]
        assert await listed(rig.admin) == []


async def test_a_plugin_without_agents_needs_no_room(rig: Rig) -> None:
    await limit(rig, 0)
    assert (await install(rig)).answer.adds_agents == 0


async def test_two_that_install_the_same_at_once_get_one_plugin_and_one_of_them_its_secrets(rig: Rig) -> None:
    alice = await rig.user("alice", OPERATOR)
    found = await asyncio.gather(*(install(rig, *CREW, by=each) for each in [rig.admin, alice] * 5))
    assert len({each.answer.plugin.id for each in found}) == 1
    assert sum(each.answer.was_created for each in found) == 1
    assert sum(bool(each.answer.token and each.answer.endpoint_secret) for each in found) == 1
    assert len(await agents(rig)) == 3


async def test_of_two_versions_installed_at_once_one_is_there_and_the_other_is_told_so(rig: Rig) -> None:
    calls = [install(rig, *CREW[:size], version=str(size)) for size in (1, 2, 3)]
    found = await asyncio.gather(*calls, return_exceptions=True)
    errors = [each for each in found if isinstance(each, BaseException)]
    assert len(errors) == 2
    assert all("is installed already, as version" in str(each) for each in errors)
    (there,) = [each for each in found if not isinstance(each, BaseException)]
    assert len(await agents(rig)) == there.answer.adds_agents


async def test_what_is_installed_at_once_never_passes_the_room(rig: Rig) -> None:
    await limit(rig, 5)
    calls = [install(rig, "a", "b", key=f"plugin-{number}") for number in range(6)]
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(not isinstance(each, BaseException) for each in found) == 2
    assert len(await agents(rig)) == 4


async def test_the_same_request_installs_once_and_tells_its_secrets_once(rig: Rig) -> None:
    request = pb.InstallPluginRequest(manifest=manifest("oracle"), request_id="r1")
    first = await rig.admin.plugins.InstallPlugin(request)
    again = await rig.admin.plugins.InstallPlugin(request)
    assert (again.plugin.id, again.token, again.endpoint_secret) == (first.plugin.id, "", "")
    request.manifest.name = "Another"
    assert (await refusal(rig.admin.plugins.InstallPlugin(request))).reason == "request_id_conflict"


async def test_what_was_uninstalled_since_is_not_installed_again_by_an_old_request(rig: Rig) -> None:
    request = pb.InstallPluginRequest(manifest=manifest("oracle"), request_id="r1")
    await rig.admin.plugins.InstallPlugin(request)
    await uninstall(rig.admin)
    error = await refusal(rig.admin.plugins.InstallPlugin(request))
    assert (error.reason, "uninstalled since" in error.message) == ("failed_precondition", True)
    assert await listed(rig.admin) == []


async def test_a_workspace_has_so_many_plugins_and_no_more(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "MAX_PLUGINS", 2)
    await install(rig, key="a")
    await install(rig, key="b")
    assert (await refusal(install(rig, key="c"))).reason == "limit_reached"
    assert (await install(rig, key="b")).answer.was_created is False
    await uninstall(rig.admin, "a")
    assert (await install(rig, key="c")).answer.was_created


async def test_installing_the_same_again_confirms_what_waits_where_asked_to(rig: Rig) -> None:
    await install(rig, "oracle", confirm=False)
    again = (await install(rig, "oracle", confirm=True)).answer
    assert (again.was_created, again.plugin.state) == (False, pb.PLUGIN_STATE_ACTIVE)


# -- who may -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fields", FAR, ids=lambda fields: next(iter(fields)))
async def test_what_reaches_further_than_ones_own_agents_is_for_admins(
    rig: Rig, fields: dict[str, Any]
) -> None:
    operator, admin = await rig.user("oscar", OPERATOR), await rig.user("anna", ADMIN)
    for confirmed in (False, True):
        error = await refusal(install(rig, by=operator, confirm=confirmed, **fields))
        assert error.reason == "permission_denied"
    assert await listed(operator) == []
    await install(rig, by=admin, **fields)


async def test_whoever_may_make_no_agents_installs_nothing(rig: Rig) -> None:
    for name, role in (("nobody", 0), ("viewer", VIEWER)):
        caller = await rig.user(name, role)
        assert (await refusal(install(rig, "oracle", by=caller))).reason == "permission_denied"


async def test_another_operator_manages_no_plugin_that_is_not_theirs(rig: Rig) -> None:
    alice, bob = await rig.user("alice", OPERATOR), await rig.user("bob", OPERATOR)
    await install(rig, "oracle", by=alice, confirm=False)
    for call in (
        confirm(bob),
        uninstall(bob),
        install(rig, "oracle", by=bob, confirm=True),
        bob.plugins.RotatePluginSecret(pb.RotatePluginSecretRequest(plugin="omo")),
        bob.plugins.DeclinePluginUpdate(pb.DeclinePluginUpdateRequest(plugin="omo")),
        bob.plugins.UpdatePlugin(pb.UpdatePluginRequest(plugin="omo", manifest=manifest("oracle"))),
    ):
        assert (await refusal(call)).reason == "permission_denied"
    assert (await confirm(rig.admin)).state == pb.PLUGIN_STATE_ACTIVE
    assert await uninstall(alice) == 1


async def test_whoever_could_not_install_it_any_more_manages_it_no_more(rig: Rig) -> None:
    anna = await rig.user("anna", ADMIN)
    made = await install(rig, by=anna, permissions=["session"])
    await rig.admin.identity.GrantRole(GrantRoleRequest(user="anna", role=OPERATOR))  # type: ignore[arg-type]
    for call in (
        uninstall(anna),
        anna.plugins.RotatePluginSecret(pb.RotatePluginSecretRequest(plugin="omo")),
        anna.identity.CreateToken(CreateTokenRequest(plugin="omo")),
    ):
        assert (await refusal(call)).reason == "permission_denied"
    found = await anna.identity.ListTokens(ListTokensRequest(page_size=200))
    assert made.id not in {each.subject_id for each in found.tokens}
    await install(rig, "oracle", key="own", by=anna)
    await uninstall(anna, "own")


async def test_who_may_not_see_a_plugin_is_answered_as_if_there_were_none(rig: Rig) -> None:
    await install(rig, "oracle")
    stranger, abroad = await rig.user("stranger"), await rig.workspace("abroad")
    for caller in (stranger, abroad):
        answers = set()
        for ref in ("omo", "other", "plg_never"):
            for call in (
                caller.plugins.GetPlugin(pb.GetPluginRequest(plugin=ref)),
                caller.plugins.ConfirmPlugin(pb.ConfirmPluginRequest(plugin=ref)),
                caller.plugins.UninstallPlugin(pb.UninstallPluginRequest(plugin=ref)),
                caller.plugins.RotatePluginSecret(pb.RotatePluginSecretRequest(plugin=ref)),
                caller.plugins.DeclinePluginUpdate(pb.DeclinePluginUpdateRequest(plugin=ref)),
            ):
                error = await refusal(call)
                answers.add((error.reason, error.message.replace(ref, "REF")))
        assert answers == {("not_found", "there is no plugin 'REF'")}
        assert await listed(caller) == []
    assert await listed(await rig.user("viewer", VIEWER)) == ["omo"]


async def test_a_workspace_may_have_a_plugin_of_the_same_key_as_another(rig: Rig) -> None:
    abroad = await rig.workspace("abroad")
    await install(rig, "oracle")
    assert (await install(rig, "oracle", by=abroad)).answer.was_created


async def test_plugins_are_listed_in_order_of_key_page_by_page(rig: Rig) -> None:
    for key in ("zoo", "bar", "mid"):
        await install(rig, key=key)
    found: list[str] = []
    token = ""
    while True:
        page = await rig.admin.plugins.ListPlugins(pb.ListPluginsRequest(page_size=2, page_token=token))
        found += [each.manifest.key for each in page.plugins]
        token = page.next_page_token
        if not token:
            break
    assert found == ["bar", "mid", "zoo"]


# -- manifests ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"model_provider": True, "permissions": ["session"]}, "permissions"),
        ({"model_provider": True, "permissions": ["agents.write"]}, "permissions"),
        ({"model_provider": True, "permissions": ["todo.read"]}, "permissions"),
        ({"model_provider": True, "permissions": ["todo.write"]}, "permissions"),
        ({"model_provider": True, "permissions": ["notify.write"]}, "permissions"),
        ({"model_provider": True, "agents": [pb.PluginAgent(key="a", name="A")]}, "agents"),
        ({"endpoint": "a:65536"}, "endpoint"),
        ({"hooks": [pb.PluginHook(kind="todo_added")]}, "hooks"),
        ({"tools": [pb.PluginTool(name="find", description="finds")]}, "tools"),
        ({"commands": [pb.PluginCommand(name="ask", agent_key="nobody")]}, "commands[0].agent_key"),
        (
            {"endpoint": "a:1", "tools": [pb.PluginTool(name="t", description="t", input_schema_json="[]")]},
            "tools[0].input_schema_json",
        ),
        (
            {"endpoint": "a:1", "tools": [pb.PluginTool(name="t", description="t", input_schema_json="{")]},
            "tools[0].input_schema_json",
        ),
        *(
            (
                {
                    "endpoint": "a:1",
                    "tools": [pb.PluginTool(name="t", description="t", input_schema_json=schema)],
                },
                "tools[0].input_schema_json",
            )
            for schema in (
                '{"type": 5}',
                '{"type": "array"}',
                '{"properties": 7}',
                '{"properties": {"a": true}}',
                '{"required": "a"}',
                '{"$schema": 5}',
            )
        ),
        ({"name": "\u202eevil"}, "name"),
        ({"version": "1\n2"}, "version"),
        ({"agents": [pb.PluginAgent(key="a\nb", name="A")]}, "agents[0].key"),
        ({"agents": [pb.PluginAgent(key="a", name=" A")]}, "agents[0].name"),
    ],
)
async def test_a_manifest_that_cannot_be_is_refused_by_field(
    rig: Rig, fields: dict[str, Any], field: str
) -> None:
    error = await refusal(install(rig, **fields))
    assert error.reason == "invalid_argument"
    assert [name for name, _ in error.violations] == [f"manifest.{field}"]
    assert await listed(rig.admin) == []


def skills(count: int) -> list[pb.PluginSkill]:
    return [pb.PluginSkill(name=f"s{number}", description="x", text="x" * 65_000) for number in range(count)]


async def test_a_manifest_takes_one_mebibyte_and_no_more(rig: Rig) -> None:
    error = await refusal(install(rig, skills=skills(17)))
    assert (error.violations[0][0], "1 MiB" in error.message) == ("manifest", True)
    made = await install(rig, skills=skills(16))
    waits = manifest(version="2", skills=[*skills(15), pb.PluginSkill(name="new", description="x", text="x")])
    await rig.admin.plugins.UpdatePlugin(pb.UpdatePluginRequest(plugin="omo", manifest=waits))
    found = await rig.admin.plugins.GetPlugin(pb.GetPluginRequest(plugin=made.id))
    assert (len(found.plugin.manifest.skills), len(found.plugin.waiting.skills)) == (16, 16)


async def test_a_page_of_large_plugins_ends_before_it_is_more_than_a_call_carries(rig: Rig) -> None:
    keys = ["a", "b", "c", "d", "e"]
    for key in keys:
        await install(rig, key=key, skills=skills(16))
    found: list[str] = []
    token, pages = "", 0
    while token or not pages:
        page = await rig.admin.plugins.ListPlugins(pb.ListPluginsRequest(page_token=token))
        assert page.ByteSize() < 4 * 1024 * 1024
        found += [each.manifest.key for each in page.plugins]
        token, pages = page.next_page_token, pages + 1
    assert (found, pages > 1) == (keys, True)


async def test_a_model_provider_may_read_agents_and_models(rig: Rig) -> None:
    made = await install(rig, model_provider=True, permissions=["models.read", "agents.read"])
    assert made.answer.plugin.state == pb.PLUGIN_STATE_ACTIVE


# -- the end of it -----------------------------------------------------------------------------------


async def test_uninstalling_takes_its_agents_and_nobody_elses(rig: Rig) -> None:
    await rig.agent("own")
    await install(rig, *CREW)
    await install(rig, "bear", key="zoo")
    assert await uninstall(rig.admin) == 3
    assert set(await agents(rig)) == {"own", "zoo-bear"}
    assert await listed(rig.admin) == ["zoo"]
    assert (await refusal(uninstall(rig.admin))).reason == "not_found"


async def test_a_plugin_stays_while_one_of_its_agents_is_the_default(rig: Rig) -> None:
    await install(rig, "oracle", "scout")
    mask = FieldMask(paths=["is_default"])

    async def default(agent: str, *, value: bool) -> None:
        request = UpdateAgentRequest(agent_ref=agent, agent=Agent(is_default=value), update_mask=mask)
        await rig.admin.agents.UpdateAgent(request)

    await default("omo-oracle", value=True)
    error = await refusal(uninstall(rig.admin))
    assert (error.reason, "omo-oracle" in error.message) == ("failed_precondition", True)
    assert len(await agents(rig)) == 2
    await default("omo-oracle", value=False)
    assert await uninstall(rig.admin) == 2


async def test_an_installation_that_was_never_confirmed_is_uninstalled_as_well(rig: Rig) -> None:
    await install(rig, *CREW, confirm=False)
    assert await uninstall(rig.admin) == 3
    assert await agents(rig) == {}


async def test_installed_again_it_gets_its_slugs_back_and_another_plugin_does_not(rig: Rig) -> None:
    await install(rig, "oracle")
    await uninstall(rig.admin)
    error = await refusal(rig.agent("Oracle", slug="omo-oracle"))
    assert "is reserved" in error.message
    # One whose slug would be the same: `omo-oracle` is `omo` + `oracle`.
    await install(rig, "x", key="omo-oracle", agents=[pb.PluginAgent(key="oracle", name="x")])
    assert "omo-oracle-x" in await agents(rig)
    await install(rig, "oracle", version="2")
    assert (await agents(rig))["omo-oracle"].key == "oracle"


async def test_after_thirty_days_nothing_is_kept_of_a_plugin_that_is_gone(rig: Rig) -> None:
    await install(rig, "oracle")
    await uninstall(rig.admin)
    await rig.clock.advance(RESERVED_SECONDS + 60.0)
    rig = await rig.reopen()
    made, _ = await rig.agent("Oracle", slug="omo-oracle")
    assert made.slug == "omo-oracle"
    await rig.registry.close()


async def test_a_member_that_its_owner_deleted_stays_deleted_when_the_rest_is_confirmed(rig: Rig) -> None:
    await install(rig, *CREW, confirm=False)
    await rig.admin.agents.DeleteAgent(DeleteAgentRequest(agent="omo-scout"))
    await confirm(rig.admin)
    assert set(await agents(rig)) == {"omo-oracle", "omo-librarian"}


async def test_plugins_and_what_waits_survive_a_restart(rig: Rig) -> None:
    await install(rig, "oracle", confirm=False)
    before = await rig.admin.plugins.GetPlugin(pb.GetPluginRequest(plugin="omo"))
    rig = await rig.reopen()
    assert await rig.admin.plugins.GetPlugin(pb.GetPluginRequest(plugin="omo")) == before
    assert rig.registry.directory.plugins(before.plugin.workspace_id) == ()
    await confirm(rig.admin)
    rig = await rig.reopen()
    (there,) = rig.registry.directory.plugins(before.plugin.workspace_id)
    assert there.key == "omo"
    await rig.registry.close()
