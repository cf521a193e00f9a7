"""A plugin as a process of its own: installed from its own manifest, killed, and found again."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hopline_client import Mesh as Client
from hopline_client import Turn
from hopline_rpc.errors import HoplineError

from tests.support import shop_plugin
from tests.support.mesh_process import (
    BIN,
    ROOT,
    Agent,
    MeshProcess,
    Process,
    Space,
    call,
    refused,
    until,
)

PLUGIN = Path(shop_plugin.__file__)


class Shop:
    """The plugin's process, on a port of its own."""

    def __init__(self, mesh: MeshProcess, space: Space) -> None:
        self._mesh = mesh
        self._space = space
        self._folder = mesh.processes.folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._endpoint = f"127.0.0.1:{self._port}"
        self.process: Process

    @property
    def _env(self) -> dict[str, str]:
        return {
            "SHOP_ENDPOINT": self._endpoint,
            "HOPLINE_DATA": str(self._mesh.data),
            "HOPLINE_TOKEN_FILE": str(self._folder / "shop.token"),
            "HOPLINE_PLUGIN_SECRET_FILE": str(self._folder / "shop.secret"),
            "PYTHONPATH": str(ROOT),
        }

    async def install(self) -> None:
        """Install it from the manifest that it prints itself."""
        words = (str(BIN / "python"), str(PLUGIN), "manifest")
        printed = await asyncio.to_thread(self._mesh.processes.run, *words, env=self._env)
        assert printed.returncode == 0, printed.stderr
        manifest = self._folder / "shop.yaml"
        manifest.write_text(printed.stdout)
        files = (
            "--token-file",
            str(self._folder / "shop.token"),
            "--secret-file",
            str(self._folder / "shop.secret"),
        )
        await self.cli("plugin", "install", str(manifest), "--yes", *files)

    async def cli(self, *words: str) -> Any:
        return await self._mesh.cli(*words, "--workspace", self._space.name)

    async def start(self) -> None:
        """Start it, and wait until it listens."""
        words = (str(BIN / "python"), str(PLUGIN), "serve")
        self.process = self._mesh.processes.start("shop", *words, env=self._env)

        async def listens() -> bool:
            assert self.process.is_running, self.process.said
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self._port)
            except OSError:
                return False
            writer.close()
            return True

        await until(listens, "the plugin's endpoint")

    async def librarian(self) -> Agent:
        """Return its agent, with a token of its own."""
        made = await self.cli("token", "create", "--agent", "shop-librarian")
        found = await self.cli("agent", "list")
        (agent,) = [each for each in found["agents"] if each["slug"] == "shop-librarian"]
        return Agent(agent["id"], agent["name"], made["token"], self._folder / "none")


@pytest.fixture
async def shop(own_mesh: MeshProcess, own_space: Space) -> AsyncIterator[Shop]:
    found = Shop(own_mesh, own_space)
    await found.install()
    await found.start()
    yield found
    assert "Traceback" not in found.process.said


async def look_up(turn: Turn) -> str:
    return f"I looked up: {turn.text}"


def said(turn: Turn) -> str:
    return turn.messages[0].body


async def test_its_tools_its_skill_and_its_command_work_for_an_agent_and_a_person(
    own_space: Space, shop: Shop
) -> None:
    lead = await own_space.agent("lead")
    await own_space.work(await shop.librarian(), look_up)
    async with own_space.mcp_over_http(lead) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert {"shop__stock", "shop__research", "shop__consult", "use_skill"} <= set(names)
        assert await call(client, "shop__stock", item="pear") == {"status": "completed", "result": 3}
        error, _ = await refused(client, "shop__stock", items="pear")
        assert error["code"] == "invalid_argument"
        consulted = await call(client, "shop__consult", question="quanta?")
        assert consulted["result"]["reply"] == "I looked up: quanta?"
        assert "Smile" in (await call(client, "use_skill", name="selling"))["text"]
    answered = await shop.cli("chat", "lead", "/research quantum")
    assert answered["reply"] == "I looked up: quantum"
    installed = await own_space.events("plugin.tool_called")
    assert len(installed) == 2


async def test_it_starts_work_in_a_session_that_begins_and_the_answer_wakes_that_session(
    own_space: Space, shop: Shop
) -> None:
    lead, seen = await own_space.agent("lead"), []

    async def conduct(turn: Turn) -> str:
        seen.append(said(turn))
        return f"thanks for {said(turn)!r}"

    await own_space.work(await shop.librarian(), look_up)
    await own_space.work(lead, conduct)
    await shop.cli("chat", "lead", "what is new?")
    await until(lambda: "I looked up: what is new today?" in seen, "the report of the plugin's subagent")


async def test_what_was_said_while_it_was_dead_is_told_when_it_is_back(
    own_mesh: MeshProcess, own_space: Space, shop: Shop
) -> None:
    lead, seen = await own_space.agent("lead"), []

    async def conduct(turn: Turn) -> str:
        seen.append(said(turn))
        return "yes"

    await own_space.work(await shop.librarian(), look_up)
    await own_space.work(lead, conduct)
    shop.process.kill()
    await shop.cli("chat", "lead", "what is new?")
    async with own_space.mcp_over_http(lead) as client:
        error, _ = await refused(client, "shop__stock", item="pear")
    assert (error["code"], error["details"]["may_have_run"]) == ("unavailable", False)
    own_mesh.kill()
    await own_mesh.restart()
    await shop.start()
    await until(lambda: "I looked up: what is new today?" in seen, "what it was told late")


async def test_with_the_plugin_goes_all_that_it_added(own_space: Space, shop: Shop) -> None:
    lead = await own_space.agent("lead")
    async with own_space.mcp_over_http(lead) as client:
        await call(client, "shop__stock", item="pear")
        await shop.cli("plugin", "uninstall", "shop")

        async def gone() -> bool:
            return not any("shop" in tool.name for tool in (await client.list_tools()).tools)

        await until(gone, "a list without its tools")
    token = (own_space.mesh.processes.folder / "shop.token").read_text().strip()
    async with Client(own_space.mesh.data, token=token) as plugin:
        with pytest.raises(HoplineError) as caught:
            await plugin.list_agents()
    assert caught.value.reason == "unauthenticated"
