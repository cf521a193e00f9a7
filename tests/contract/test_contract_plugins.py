"""The limits of a plugin's manifest, one below, at, and one above."""

from __future__ import annotations

from typing import Any

import pytest
from hopline.registry.v1 import plugin_pb2 as pb
from hopline_rpc.errors import HoplineError
from hopline_rpc.validation import check

PERMISSIONS = [
    "agents.read",
    "agents.write",
    "models.read",
    "session",
    "todo.read",
    "todo.write",
    "notify.write",
]


def manifest(**fields: Any) -> pb.InstallPluginRequest:
    values = {"key": "omo", "name": "Oh My", "version": "1", **fields}
    return pb.InstallPluginRequest(manifest=pb.PluginManifest(**values))


def passes(**fields: Any) -> None:
    check(manifest(**fields))


def refused(**fields: Any) -> str:
    with pytest.raises(HoplineError) as caught:
        check(manifest(**fields))
    assert caught.value.reason == "invalid_argument"
    return caught.value.message


@pytest.mark.parametrize("key", ["a", "omo", "oh-my-agents", "a1", "a" * 32])
def test_a_key_is_a_word_that_slugs_and_tools_can_begin_with(key: str) -> None:
    passes(key=key)


@pytest.mark.parametrize("key", ["", "1a", "-a", "a-", "a--b", "a_b", "A", "é", "a" * 33, "a b"])
def test_any_other_key_is_refused_by_name(key: str) -> None:
    assert "manifest.key" in refused(key=key)


@pytest.mark.parametrize("count", [0, 1, 19, 20])
def test_up_to_twenty_agents_pass(count: int) -> None:
    passes(agents=[pb.PluginAgent(key=str(number), name="x") for number in range(count)])


def test_the_twenty_first_agent_is_one_too_many() -> None:
    assert "agents" in refused(agents=[pb.PluginAgent(key=str(number), name="x") for number in range(21)])


@pytest.mark.parametrize(("size", "good"), [(0, False), (1, True), (199, True), (200, True), (201, False)])
def test_the_key_of_an_agent_has_1_to_200_characters(size: int, *, good: bool) -> None:
    agents = [pb.PluginAgent(key="é" * size, name="x")]
    if good:
        passes(agents=agents)
    else:
        assert "agents[0].key" in refused(agents=agents)


def test_two_of_one_name_are_refused_saying_where() -> None:
    twice: dict[str, list[Any]] = {
        "agents": [pb.PluginAgent(key="a", name="x")] * 2,
        "tools": [pb.PluginTool(name="a", description="x")] * 2,
        "skills": [pb.PluginSkill(name="a", description="x", text="x")] * 2,
        "commands": [pb.PluginCommand(name="a", agent_key="x")] * 2,
        "hooks": [pb.PluginHook(kind="todo_added")] * 2,
    }
    for field, entries in twice.items():
        passes(**{field: entries[:1]})
        assert f"{field}: two have the same" in refused(**{field: entries})


def test_permissions_are_a_closed_list_and_each_stands_once() -> None:
    passes(permissions=PERMISSIONS)
    for bad in (["agents.delete"], [""], ["session", "session"]):
        assert "permissions" in refused(permissions=bad)


@pytest.mark.parametrize("size", [1, 29, 30])
def test_a_tool_s_name_leaves_room_for_the_plugin_s_before_it(size: int) -> None:
    passes(tools=[pb.PluginTool(name="t" * size, description="x")])
    assert len("k" * 32 + "__" + "t" * 30) == 64


@pytest.mark.parametrize("name", ["", "t" * 31, "Tool", "a b", "1a", "a.b"])
def test_any_other_name_of_a_tool_is_refused(name: str) -> None:
    assert "tools[0].name" in refused(tools=[pb.PluginTool(name=name, description="x")])


@pytest.mark.parametrize(
    "endpoint", ["", "127.0.0.1:7500", "localhost:1", "[::1]:7500", "plugin.example:65535", "a:80"]
)
def test_an_endpoint_is_a_host_and_a_port(endpoint: str) -> None:
    passes(endpoint=endpoint)


@pytest.mark.parametrize(
    "endpoint", ["localhost", ":7500", "http://a:80", "a:0", "a:123456", "a b:80", "a:80/x", "unix:/tmp/x"]
)
def test_any_other_endpoint_is_refused(endpoint: str) -> None:
    assert "endpoint" in refused(endpoint=endpoint)


def test_hooks_are_the_five_with_an_order_and_a_fail_mode() -> None:
    kinds = ["inter_agent_message", "todo_added", "notify_scheduled", "notify_delivered", "system_prompt"]
    passes(hooks=[pb.PluginHook(kind=kind, fail_mode="fail_closed") for kind in kinds])
    for order in (-1000, 0, 1000):
        passes(hooks=[pb.PluginHook(kind="todo_added", order=order)])
    for bad in (
        pb.PluginHook(kind="sent"),
        pb.PluginHook(kind="todo_added", order=-1001),
        pb.PluginHook(kind="todo_added", order=1001),
        pb.PluginHook(kind="todo_added", fail_mode="open"),
    ):
        assert "hooks[0]" in refused(hooks=[bad])


@pytest.mark.parametrize(("size", "good"), [(65_535, True), (65_536, True), (65_537, False)])
def test_a_skill_is_a_text_of_up_to_64_kib(size: int, *, good: bool) -> None:
    skills = [pb.PluginSkill(name="method", description="x", text="x" * size)]
    if good:
        passes(skills=skills)
    else:
        assert "skills[0].text" in refused(skills=skills)
