"""What the view knows of plugins."""

from __future__ import annotations

from typing import Any

import pytest
from hopline.registry.v1 import plugin_pb2 as pb
from hopline.registry.v1.agent_pb2 import AGENT_STATE_PROVISIONING
from hopline.registry.v1.visibility_pb2 import WatchChangesResponse
from hopline_directory import Directory
from hopline_rpc.errors import HoplineError
from hopline_rpc.principals import Principal

from tests.directory.builders import ABROAD, HOME, World, household

PLUGIN = Principal("plugin", "plg_omo", HOME, "Oh My", "tok_omo")


def plugin(key: str = "omo", state: int = pb.PLUGIN_STATE_ACTIVE, **fields: Any) -> pb.Plugin:
    values = {"name": key.upper(), "version": "1", **fields}
    return pb.Plugin(
        id=f"plg_{key}",
        workspace_id=HOME,
        slug_prefix=f"{key}-",
        manifest=pb.PluginManifest(key=key, **values),
        state=state,  # type: ignore[arg-type]
        installed_by="usr_alice",
        revision=3,
    )


FULL = plugin(
    description="a crew",
    agents=[pb.PluginAgent(key="oracle", name="Oracle")],
    permissions=["agents.read", "session"],
    tools=[pb.PluginTool(name="find", description="finds", input_schema_json='{"type":"object"}')],
    skills=[pb.PluginSkill(name="method", description="how", text="so")],
    commands=[pb.PluginCommand(name="research", description="looks", agent_key="oracle")],
    hooks=[pb.PluginHook(kind="system_prompt", order=-5, fail_mode="fail_closed")],
    endpoint="127.0.0.1:7500",
    model_provider=True,
)


def snapshot_of(view: Directory) -> WatchChangesResponse:
    changes = list(view.snapshot())
    return WatchChangesResponse(changes=changes, head_seq=view.seq, snapshot=True, snapshot_end=True)


def refusal(world: World, permission: str) -> HoplineError:
    with pytest.raises(HoplineError) as caught:
        world.view.plugin_for(PLUGIN, permission)
    return caught.value


def test_a_plugin_is_known_with_all_of_its_manifest_and_told_whole_in_a_snapshot() -> None:
    world = household()
    world.change(HOME, plugin=FULL)
    (known,) = world.view.plugins(HOME)
    assert (known.key, known.slug_prefix, known.endpoint, known.is_model_provider) == (
        "omo",
        "omo-",
        "127.0.0.1:7500",
        True,
    )
    assert known.hooks[0].fail_mode == "fail_closed"
    assert known.tools[0].input_schema == {"type": "object"}
    fresh = Directory()
    fresh.apply(snapshot_of(world.view))
    assert fresh.plugin(HOME, "plg_omo") == known
    told = [each.plugin for each in fresh.snapshot() if each.WhichOneof("entity") == "plugin"]
    assert [(each.id, each.revision, each.manifest) for each in told] == [("plg_omo", 3, FULL.manifest)]


def test_those_in_force_are_listed_by_key_and_those_that_wait_are_not() -> None:
    world = household()
    world.change(HOME, plugin=plugin("zoo"))
    world.change(HOME, plugin=plugin("bar", pb.PLUGIN_STATE_UPDATE_WAITING))
    world.change(HOME, plugin=plugin("new", pb.PLUGIN_STATE_AWAITING_CONFIRMATION))
    assert [each.key for each in world.view.plugins(HOME)] == ["bar", "zoo"]
    assert world.view.plugin(HOME, "plg_new") is not None
    assert world.view.plugins(ABROAD) == ()
    assert world.view.plugin(ABROAD, "plg_bar") is None


def test_one_that_is_uninstalled_is_gone_and_a_late_reader_is_told_so() -> None:
    world = household()
    world.change(HOME, plugin=FULL)
    behind = Directory()
    behind.apply(snapshot_of(world.view))
    world.change(HOME, plugin_removed="plg_omo")
    assert world.view.plugins(HOME) == ()
    assert world.view.plugin(HOME, "plg_omo") is None
    news = behind.apply(snapshot_of(world.view))
    assert [each.plugin_removed for each in news] == ["plg_omo"]
    assert behind.plugins(HOME) == ()


def test_a_permission_that_the_manifest_lacks_is_refused_by_its_name() -> None:
    world = household()
    world.change(HOME, plugin=FULL)
    assert world.view.plugin_for(PLUGIN, "agents.read").key == "omo"
    error = refusal(world, "agents.write")
    assert error.reason == "permission_denied"
    assert "agents.write" in error.message
    assert error.details["permission"] == "agents.write"


def test_before_it_is_confirmed_a_plugin_has_no_permission_at_all() -> None:
    world = household()
    waiting = pb.Plugin()
    waiting.CopyFrom(FULL)
    waiting.state = pb.PLUGIN_STATE_AWAITING_CONFIRMATION
    world.change(HOME, plugin=waiting)
    assert "confirmed" in refusal(world, "agents.read").message


def test_a_plugin_sees_its_own_active_agents_and_nobody_else() -> None:
    world = household()
    world.change(HOME, plugin=FULL)
    world.agent("omo-oracle", plugin_id="plg_omo", key="oracle")
    world.agent("omo-waits", plugin_id="plg_omo", key="waits", state=AGENT_STATE_PROVISIONING)
    world.agent("zoo-bear", plugin_id="plg_zoo", key="bear")
    assert world.slugs(PLUGIN) == ["omo-oracle"]
    assert world.view.resolve(PLUGIN, "omo-oracle").key == "oracle"
    answers = set()
    for hidden in ("agt_a", "zoo-bear", "omo-waits", "never"):
        with pytest.raises(HoplineError) as caught:
            world.view.resolve(PLUGIN, hidden)
        answers.add((caught.value.reason, caught.value.message.replace(hidden, "NAME")))
        assert world.view.with_slug(PLUGIN, hidden) is None
    assert len(answers) == 1


def test_an_agent_s_badge_is_the_name_of_its_plugin() -> None:
    world = household()
    world.change(HOME, plugin=FULL)
    world.agent("omo-oracle", plugin_id="plg_omo")
    badges = {each.slug: world.view.plugin_name(each) for each in world.view.agents(HOME)}
    assert badges == {"a": "", "b": "", "c": "", "omo-oracle": "OMO"}
