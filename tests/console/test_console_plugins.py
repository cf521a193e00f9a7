"""Plugins and hooks: what is installed, what waits, and what goes when it goes."""

from __future__ import annotations

from typing import Any

from hopline.registry.v1 import agent_pb2, identity_pb2
from hopline.registry.v1 import plugin_pb2 as pb

from tests.support.forms import done, fill, form, send
from tests.support.mesh_process import Space
from tests.support.pages import visitor


def _manifest(version: str = "1", **more: Any) -> pb.PluginManifest:
    return pb.PluginManifest(
        key="shop",
        name="Shop",
        version=version,
        description="Sells pears.",
        agents=[pb.PluginAgent(key="seller", name="Seller")],
        **more,
    )


async def _install(space: Space, manifest: pb.PluginManifest, *, confirm: bool = True) -> pb.Plugin:
    request = pb.InstallPluginRequest(manifest=manifest, confirm=confirm)
    return (await space.admin.plugins.InstallPlugin(request)).plugin


HOOKS: dict[str, Any] = {
    "endpoint": "127.0.0.1:1",
    "hooks": [
        pb.PluginHook(kind="todo_added", order=7),
        pb.PluginHook(kind="inter_agent_message", order=-3, fail_mode="fail_closed"),
    ],
    "tools": [pb.PluginTool(name="stock", description="Says how many there are.")],
    "permissions": ["session"],
}


async def test_an_installed_plugin_is_shown_with_all_that_it_brings(space: Space) -> None:
    plugin = await _install(space, _manifest(**HOOKS))
    async with visitor(space) as admin:
        text = (await admin.get("/plugins")).text
        for said in ("Shop", "shop", "active", "1 agent", "session"):
            assert said in text
        text = (await admin.get(f"/plugins/{plugin.id}")).text
        for said in ("Sells pears.", "shop__stock", "Seller", "127.0.0.1:1", "fail_closed", "order -3"):
            assert said in text
        badge = (await admin.get("/agents")).html.split("Seller")[1].split("</th>")[0]
        assert '<span class="badge plugin">Shop</span>' in badge
        hooks = (await admin.get("/hooks")).text
        assert "inter_agent_message -3 Shop" in hooks
        assert "the item is dropped (fail_closed) in use" in hooks
        assert "todo_added 7 Shop" in hooks


async def test_an_installation_that_waits_is_agreed_to_as_it_was_seen(space: Space) -> None:
    plugin = await _install(space, _manifest(), confirm=False)
    at = f"/plugins/{plugin.id}"
    async with visitor(space) as admin:
        page = await admin.get(at)
        assert "Its installation waits for an OK" in page.text
        assert "It asks for: agent seller" in page.text
        seen = form(page, f"{at}/confirm")
        assert "is in force" in await done(admin, await send(admin, seen, f"{at}/confirm"))
        assert "waits for an OK" not in (await admin.get(at)).text


async def test_a_version_that_asks_for_more_is_agreed_to_or_declined_and_none_that_nobody_saw(
    space: Space,
) -> None:
    plugin = await _install(space, _manifest())
    at = f"/plugins/{plugin.id}"

    async def update(version: str) -> None:
        more = _manifest(version, permissions=["agents.read"])
        await space.admin.plugins.UpdatePlugin(pb.UpdatePluginRequest(plugin="shop", manifest=more))

    async with visitor(space) as admin:
        await update("2")
        page = await admin.get(at)
        assert "Version 2 waits for an OK" in page.text
        assert "permission agents.read" in page.text
        await update("3")
        stale = await send(admin, form(page, f"{at}/confirm"), f"{at}/confirm")
        assert stale.status == 409
        declined = form(await admin.get(at), f"{at}/decline")
        assert "stays at 1" in await done(admin, await send(admin, declined, f"{at}/decline"))
        await update("4")
        agreed = form(await admin.get(at), f"{at}/confirm")
        assert "Shop 4 is in force" in await done(admin, await send(admin, agreed, f"{at}/confirm"))


async def test_a_plugin_is_uninstalled_behind_words_that_say_what_goes_with_it(space: Space) -> None:
    plugin = await _install(space, _manifest())
    at = f"/plugins/{plugin.id}"
    async with visitor(space) as admin:
        page = await admin.get(at)
        assert (
            "With it go its tokens, with all that they opened, and Seller with their sessions." in page.text
        )
        fields = form(page, f"{at}/uninstall")
        assert "1 agent went with it" in await done(admin, await send(admin, fields, f"{at}/uninstall"))
        assert (await admin.get(at)).status == 404
    assert not (await space.admin.agents.ListAgents(agent_pb2.ListAgentsRequest())).agents


async def test_a_new_secret_of_an_endpoint_is_shown_once(space: Space) -> None:
    plugin = await _install(space, _manifest(**HOOKS))
    at = f"/plugins/{plugin.id}/secret"
    async with visitor(space) as admin:
        fields = form(await admin.get(f"/plugins/{plugin.id}"), at)
        shown = await send(admin, fields, at)
        assert shown.status == 200
        assert "has a new secret" in shown.text
        again = await send(admin, fields, at)
        assert again.status == 409
        assert 'class="secret"' not in again.html


async def test_a_form_that_does_not_say_what_it_agrees_to_agrees_to_nothing(space: Space) -> None:
    plugin = await _install(space, _manifest(**HOOKS), confirm=False)
    async with visitor(space) as admin:
        for revision in ("", "0", "x", "9" * 40):
            refused = await admin.post(f"/plugins/{plugin.id}/confirm", {"revision": revision})
            assert refused.status == 409, revision
        assert "waits for an OK" in (await admin.get(f"/plugins/{plugin.id}")).text


async def test_a_viewer_sees_plugins_and_hooks_and_may_change_none(space: Space) -> None:
    plugin = await _install(space, _manifest(**HOOKS), confirm=False)
    token = await space.person("vera", identity_pb2.ROLE_VIEWER)
    nobody = await space.person("zoe")
    at = f"/plugins/{plugin.id}"
    async with visitor(space, token) as vera, visitor(space, nobody) as zoe:
        page = await vera.get(at)
        assert "waits for an OK" in page.text
        assert "<form" not in page.html.split("<main")[1]
        for act in ("confirm", "uninstall", "secret"):
            refused = await vera.post(f"{at}/{act}", {"revision": "1"})
            assert refused.status == 403, act
        assert (await vera.get("/hooks")).status == 200
        assert (await zoe.get(at)).status == 404
        assert "Shop" not in (await zoe.get("/plugins")).text
        assert (await zoe.get("/hooks")).status == 403


async def test_a_hook_that_kept_failing_is_shown_as_suspended_with_why(space: Space) -> None:
    await _install(space, _manifest(**HOOKS))
    planner, _ = await space.agents("planner", "writer")
    client = space.client(planner)
    for _ in range(6):
        await client.send("writer", "hello")
    async with visitor(space) as admin:
        row = (await admin.get("/hooks")).text.split("inter_agent_message")[1].split("todo_added")[0]
        assert "suspended" in row
        assert "tried again" in row


async def test_what_is_built_in_is_shown_as_the_policy_switches_it(space: Space) -> None:
    async with visitor(space) as admin:
        assert "Take credentials out of what agents say off" in (await admin.get("/hooks")).text
        await done(admin, await fill(admin, "/policy", "/policy", redact_credentials="1"))
        assert "Take credentials out of what agents say on" in (await admin.get("/hooks")).text


FILE = """\
key: shop
name: Shop
version: "{version}"
permissions: [agents.read]
agents:
  - {{key: seller, name: "Seller <b>"}}
{more}"""


async def test_a_plugin_is_installed_from_its_file_as_it_was_shown_and_given_a_new_version(
    space: Space,
) -> None:
    async with visitor(space) as admin:
        shown = await fill(admin, "/plugins", "/plugins/install/plan", text=FILE.format(version="1", more=""))
        assert shown.status == 200, shown.text
        for said in ("Shop: what it brings", "agents.read", "Seller <b>"):
            assert said in shown.text
        assert not (await space.admin.plugins.ListPlugins(pb.ListPluginsRequest())).plugins
        made = await send(admin, form(shown, "/plugins/install"), "/plugins/install")
        assert "hpl_p_" in made.text
        again = await send(admin, form(shown, "/plugins/install"), "/plugins/install")
        assert "installed already" in again.text
        assert "hpl_p_" not in again.text
        [plugin] = (await space.admin.plugins.ListPlugins(pb.ListPluginsRequest())).plugins
        assert plugin.state == pb.PLUGIN_STATE_ACTIVE
        more = "hooks: [{kind: todo_added, order: 7}]\nendpoint: 127.0.0.1:1\n"
        at = f"/plugins/{plugin.id}"
        shown = await fill(admin, at, f"{at}/update/plan", text=FILE.format(version="2", more=more))
        assert "2, in place of 1" in shown.text
        assert "todo_added" in shown.text
        text = await done(admin, await send(admin, form(shown, f"{at}/update"), f"{at}/update"))
        assert "Shop 2 is in force." in text


async def test_what_is_wrong_with_a_plugins_file_is_said_by_its_line(space: Space) -> None:
    laughs = "".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9) if n else '1'}]\n" for n in range(9))
    tool = "tools:\n- name: stock\n  description: x\n  input_schema:\n    "
    schema = tool + laughs.replace("\n", "\n    ")
    async with visitor(space) as admin:
        for more, said in (
            ("colour: red\n", "plugin.yaml:7: the file has no field 'colour'"),
            (schema, "input_schema is longer than 256 KiB"),
        ):
            text = FILE.format(version="1", more=more)
            refused = await fill(admin, "/plugins", "/plugins/install/plan", text=text)
            assert refused.status == 400
            assert said in refused.text
        await _install(space, _manifest())
        shown = await fill(admin, "/plugins", "/plugins/install/plan", text=FILE.format(version="2", more=""))
        refused = await send(admin, form(shown, "/plugins/install"), "/plugins/install")
        assert "hpl_p_" not in refused.text
        assert refused.status == 409
