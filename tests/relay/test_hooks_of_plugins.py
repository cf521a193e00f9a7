"""Hooks of installed plugins: asked at their real endpoints, and what they do because of it is counted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hopline.registry.v1.plugin_pb2 import InstallPluginRequest
from hopline.relay.v1 import message_pb2 as pb
from hopline.relay.v1 import plugin_session_pb2
from hopline_client.plugin import Hooked, Plugin, Rewrite, Veto

from tests.support import plugins
from tests.support.relay_mesh import Caller, RelayMesh, until


@asynccontextmanager
async def installed(mesh: RelayMesh, folder: Path, plugin: Plugin) -> AsyncIterator[plugins.Plugin]:
    """Run a plugin, and install it; yields who holds its token."""
    task = asyncio.create_task(plugin.run())
    async with asyncio.timeout(20):
        await plugin.listening.wait()
    manifest = plugin.manifest()
    manifest.endpoint = plugin.address
    request = InstallPluginRequest(manifest=manifest, confirm=True)
    found = await plugins.plugin_service(mesh.admin).InstallPlugin(request)
    (folder / f"{plugin.key}.secret").write_text(found.endpoint_secret)
    yield plugins.Plugin(mesh, found.plugin.id, found.token)
    plugin.stop()
    await task


def made(folder: Path, key: str, **fields: Any) -> Plugin:
    file = folder / f"{key}.secret"
    return Plugin(key, endpoint="127.0.0.1:0", secret_file=file, token="hpl_p_x", **fields)


async def test_an_installed_plugin_is_asked_and_an_uninstalled_one_no_more(
    mesh: RelayMesh, tmp_path: Path
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    plugin = made(tmp_path, "shop")
    seen: list[Hooked] = []

    @plugin.hook("inter_agent_message", fail_mode="fail_closed")
    async def no_prices(message: Hooked) -> Rewrite | Veto | str | None:
        seen.append(message)
        if "EUR" in message.text:
            return Veto("prices stay in the shop")
        if message.payload:
            return Rewrite("see the list", payload_json='{"list": 2}')
        return message.text.replace("pear", "apple")

    async with installed(mesh, tmp_path, plugin):
        assert mesh.relay.hooks.active
        kept = await ada.send(bob, text="a pear is 3 EUR")
        assert kept.deliveries[0].cancel_reason == "prices stay in the shop"
        await ada.send(bob, text="a pear", subject="fruit")
        await ada.send(bob, text="the list", payload_json='{"list": 1}')
        first, second = (await bob.take()).messages
        assert (first.body, first.subject) == ("a apple", "fruit")
        assert (second.body, json.loads(second.payload_json)) == ("see the list", {"list": 2})
        assert (seen[0].agent.id, seen[0].recipient and seen[0].recipient.id) == (ada.id, bob.id)
        assert (seen[0].message_kind, seen[0].generation) == ("message", 0)
        assert seen[0].chat.session_id == ""  # a plugin without the permission `session` is handed none
        await plugins.uninstall(mesh)
        assert not mesh.relay.hooks.active
        assert (await ada.send(bob, text="4 EUR")).message_id
    assert len(seen) == 3


async def test_a_plugin_that_dies_in_the_middle_fails_as_its_manifest_says(
    mesh: RelayMesh, tmp_path: Path
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    plugin = made(tmp_path, "shop")
    asked = asyncio.Event()

    @plugin.hook("inter_agent_message")
    async def hangs(message: Hooked) -> None:
        asked.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(plugin.run())
    await plugin.listening.wait()
    manifest = plugin.manifest()
    manifest.endpoint = plugin.address
    request = InstallPluginRequest(manifest=manifest, confirm=True)
    found = await plugins.plugin_service(mesh.admin).InstallPlugin(request)
    (tmp_path / "shop.secret").write_text(found.endpoint_secret)
    sending = asyncio.create_task(ada.send(bob))
    await asked.wait()
    task.cancel()
    await asyncio.wait({task})
    assert (await sending).message_id
    assert (await ada.send(bob)).message_id  # nobody listens there any more
    assert len(await mesh.events("hook.failed")) == 2


class Echo:
    """A plugin that answers whatever the other one has said with a message of its own."""

    def __init__(self, folder: Path, key: str, other: str, to_session: str) -> None:
        self.plugin = made(folder, key, permissions=["session"])
        self.token: plugins.Plugin
        self.generations: list[int] = []
        self.outcomes: list[plugin_session_pb2.SendPeerResponse] = []

        @self.plugin.hook("inter_agent_message")
        async def react(message: Hooked) -> None:
            if not message.text.startswith(other):
                return
            self.generations.append(message.generation)
            request = plugin_session_pb2.SendPeerRequest(
                session_id=message.chat.session_id, to_session_id=to_session, text=f"{key} reacts"
            )
            self.outcomes.append(await self.token.chat.SendPeer(request))


async def _fed(mesh: RelayMesh, folder: Path) -> tuple[Caller, Caller, Echo, Echo]:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    first = await ada.send(bob, text="hello")
    to_session = first.deliveries[0].session_id
    return ada, bob, Echo(folder, "abe", "zoe", to_session), Echo(folder, "zoe", "abe", to_session)


async def test_two_hooks_that_feed_each_other_die_quietly(mesh: RelayMesh, tmp_path: Path) -> None:
    ada, bob, abe, zoe = await _fed(mesh, tmp_path)
    await mesh.policy(pair_budget="0")
    async with (
        installed(mesh, tmp_path, abe.plugin) as abe.token,
        installed(mesh, tmp_path, zoe.plugin) as zoe.token,
    ):
        session = await mesh.admin.send(ada, text="go")
        (message,) = (await ada.take()).messages
        assert message.id == session.message_id
        sent = await ada.send(bob, text="zoe begins", caller_session_id=session.deliveries[0].session_id)
        assert sent.message_id
        await until(lambda: any(each.is_canceled for each in [*abe.outcomes, *zoe.outcomes]))
    # Five generations of messages, the last of which nobody may react to.
    assert abe.generations == [0, 2, 4]
    assert zoe.generations == [1, 3]
    reactions = [each for each in [*abe.outcomes, *zoe.outcomes] if each.is_delivered]
    assert len(reactions) == 4
    (withheld,) = [each for each in [*abe.outcomes, *zoe.outcomes] if not each.is_delivered]
    assert withheld.is_canceled
    assert "limit is 4" in withheld.cancel_reason
    bodies = [message.body for message in (await bob.take()).messages]
    assert sorted(bodies) == sorted(["hello", "zoe begins", *["abe reacts", "zoe reacts"] * 2])


async def test_a_hook_that_waits_for_what_it_sends_itself_holds_nothing_up(
    mesh: RelayMesh, tmp_path: Path
) -> None:
    ada, bob, abe, _ = await _fed(mesh, tmp_path)
    async with installed(mesh, tmp_path, abe.plugin) as abe.token:
        turn = await mesh.admin.send(ada)
        await ada.take()
        sent = await ada.send(bob, text="zoe asks", caller_session_id=turn.deliveries[0].session_id)
        assert sent.message_id
        assert [each.is_delivered for each in abe.outcomes] == [True]
    assert not await mesh.events("hook.failed")


async def test_what_reacts_once_within_a_turn_is_handed_that_turns_session(
    mesh: RelayMesh, tmp_path: Path
) -> None:
    ada, bob = await mesh.agent("ada"), await mesh.agent("bob")
    plugin = made(tmp_path, "shop", permissions=["session"])
    seen: list[Hooked] = []
    plugin.hook("inter_agent_message")(seen.append)
    async with installed(mesh, tmp_path, plugin):
        worker = await mesh.worker(bob)
        view = await ada.ask(bob)
        turn = await worker.next()
        await worker.end(turn, "so")
    asked, answered = seen
    assert (asked.message_kind, answered.message_kind) == ("ask", "answer")
    assert (answered.chat.session_id, answered.depth) == (turn.session_id, 1)
    assert (await ada.check(view.turn_id)).status == pb.TURN_STATUS_COMPLETED
