"""A message to a sleeping agent wakes it and is answered: by a supervisor, and by a signed call."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import re
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from aiohttp import web
from hopline.registry.v1 import agent_pb2
from hopline.registry.v1.agent_pb2 import Wake
from hopline.registry.v1.identity_pb2 import ListTokensRequest

from tests.support.mesh_process import HOPLINE, ROOT, Agent, MeshProcess, Process, Space, ended, shout, until

SECRET = "what wakes is signed"
EXEC = Wake(kind=agent_pb2.WAKE_KIND_EXEC)


class Supervisor:
    """`hopline supervise` of one agent."""

    def __init__(self, space: Space, folder: Path, agent: Agent, **fields: Any) -> None:
        self._space = space
        file = folder / "agents.yaml"
        file.write_text(json.dumps({"agents": {agent.id: fields}}))
        words = ("supervise", str(file), "--data", str(space.mesh.data), "--workspace", space.name)
        self.process: Process = space.mesh.processes.start("supervise", HOPLINE, *words)

    @property
    def family(self) -> list[int]:
        """Everything that it has started, and what that has."""
        return [each.pid for each in psutil.Process(self.process.pid).children(recursive=True)]

    async def says(self, words: str, count: int = 1) -> None:
        def there() -> bool:
            assert self.process.is_running, self.process.said
            return self.process.said.count(words) >= count

        await until(there, f"{words!r} of the supervisor")


class Receiver:
    """What a wake's webhook calls: it checks the signature and does as the test says."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.status = 204
        self.url = ""
        self._runner: web.AppRunner

    async def start(self, port: int = 0) -> None:
        app = web.Application()
        app.router.add_post("/wake", self._post)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/wake"

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _post(self, request: web.Request) -> web.Response:
        body = await request.read()
        parts = dict(part.split("=", 1) for part in request.headers["Hopline-Signature"].split(","))
        expected = hmac.new(SECRET.encode(), f"{parts['t']}.".encode() + body, hashlib.sha256).hexdigest()
        assert hmac.compare_digest(expected, parts["v1"])
        assert abs(time.time() - int(parts["t"])) < 300
        self.told.append(json.loads(body))
        return web.Response(status=self.status)


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    await receiver.start()
    yield receiver
    await receiver.stop()


def webhook(receiver: Receiver) -> Wake:
    return Wake(kind=agent_pb2.WAKE_KIND_WEBHOOK, webhook_url=receiver.url, webhook_secret=SECRET)


async def tokens(space: Space, agent: Agent) -> list[Any]:
    """Return the tokens of an agent that were minted by supervisors."""
    found = await space.admin.identities.ListTokens(ListTokensRequest(agent=agent.id))
    return [each for each in found.tokens if each.name.startswith("supervise ")]


async def test_a_supervisor_starts_a_worker_for_a_message_and_ends_it_when_there_is_nothing_to_do(
    space: Space, tmp_path: Path
) -> None:
    ada = await space.agent("ada")
    bob = await space.agent("bob", wake=EXEC)
    assert await space.presence(bob) == "sleeping"
    command = ["sh", "-c", 'echo "$(cat) by $HOPLINE_FROM"']
    supervisor = Supervisor(space, tmp_path, bob, command=command, prompt="raw", idle_seconds=1)
    client = space.client(ada)
    answer = await client.wait(await client.ask("bob", "tea"))
    assert answer.text == "tea by ada (for admin)", supervisor.process.said
    assert await space.presence(bob) == "idle"
    await supervisor.says("its worker has ended")
    assert await space.presence(bob) == "sleeping"
    assert supervisor.family == []
    [token] = await tokens(space, bob)
    assert token.expires_at.seconds - token.created_at.seconds <= 600
    await until(lambda: revoked(space, bob), "the end of the token")
    again = await client.wait(await client.ask("bob", "more"))
    assert again.text == "more by ada (for admin)"
    supervisor.process.terminate()
    assert await supervisor.process.ended() == 0
    assert len(await tokens(space, bob)) == 2
    assert await revoked(space, bob)


async def revoked(space: Space, agent: Agent) -> bool:
    return all(each.HasField("revoked_at") for each in await tokens(space, agent))


async def test_work_that_waited_before_the_supervisor_came_is_done(space: Space, tmp_path: Path) -> None:
    ada = await space.agent("ada")
    bob = await space.agent("bob", wake=EXEC)
    client = space.client(ada)
    asked = await client.ask("bob", "tea", wait_seconds=0)
    Supervisor(space, tmp_path, bob, command=["cat"], prompt="raw", idle_seconds=60)
    assert (await client.wait(asked)).text == "tea"


async def test_a_worker_that_is_killed_is_started_again_for_what_waits(space: Space, tmp_path: Path) -> None:
    ada = await space.agent("ada")
    bob = await space.agent("bob", wake=EXEC)
    stay = tmp_path / "stay"
    stay.touch()
    # The first turn stays for as long as the file does.
    command = [
        "sh",
        "-c",
        f'read text; [ "$text" = stay ] && while [ -e {stay} ]; do sleep 0.05; done; echo $text',
    ]
    supervisor = Supervisor(space, tmp_path, bob, command=command, prompt="raw", max_turns=1, idle_seconds=60)
    client = space.client(ada)
    await client.send("bob", "stay")
    await supervisor.says("started")
    await until(lambda: busy(space, bob), "the first turn")
    asked = await client.ask("bob", "next", wait_seconds=0)
    [attach] = psutil.Process(supervisor.process.pid).children()
    family = [each.pid for each in attach.children(recursive=True)]
    attach.kill()
    await until(lambda: all(ended(pid) for pid in family), "the end of what it ran")
    await supervisor.says("started", count=2)
    stay.unlink()
    assert (await client.wait(asked)).text == "next"


async def busy(space: Space, agent: Agent) -> bool:
    return await space.presence(agent) == "busy"


async def test_a_supervisor_that_is_killed_leaves_nothing_running_and_no_token_for_long(
    space: Space, tmp_path: Path
) -> None:
    ada = await space.agent("ada")
    bob = await space.agent("bob", wake=EXEC)
    supervisor = Supervisor(space, tmp_path, bob, command=["sleep", "1000"], idle_seconds=60)
    await space.client(ada).send("bob", "sleep")
    await until(lambda: busy(space, bob), "the turn")
    await until(lambda: len(supervisor.family) >= 3, "attach, its watchdog and the command")
    family = supervisor.family
    supervisor.process.kill()
    await until(lambda: all(ended(pid) for pid in family), "the end of what it has started")
    [token] = await tokens(space, bob)
    assert not token.HasField("revoked_at")
    assert token.expires_at.seconds - time.time() <= 600


async def test_a_mesh_that_is_started_again_is_found_by_its_supervisor(
    own_mesh: MeshProcess, tmp_path: Path
) -> None:
    async with own_mesh.space() as space:
        ada = await space.agent("ada")
        bob = await space.agent("bob", wake=EXEC)
        supervisor = Supervisor(space, tmp_path, bob, command=["cat"], prompt="raw", idle_seconds=60)
        await until(lambda: supervisor.process.is_running, "it")
        client = space.client(ada)
        asked = await client.ask("bob", "one")
        assert (await client.wait(asked)).text == "one"
        own_mesh.kill()
        await supervisor.says("the mesh is not heard")
        await own_mesh.restart()
        await supervisor.says("the mesh is heard again")
        assert (await client.wait(await client.ask("bob", "two"))).text == "two"


async def test_a_webhook_is_called_for_a_message_and_whoever_it_starts_answers(
    space: Space, receiver: Receiver
) -> None:
    ada = await space.agent("ada")
    bob = await space.agent("bob", wake=webhook(receiver))
    assert await space.presence(bob) == "sleeping"
    client = space.client(ada)
    asked = await client.ask("bob", "tea", wait_seconds=0)
    await until(lambda: receiver.told, "the call")
    assert receiver.told[0]["agent"]["id"] == bob.id
    assert "tea" not in str(receiver.told)
    await space.work(bob, shout)
    assert (await client.wait(asked)).text == "TEA"
    assert len(receiver.told) == 1
    actions = [event.action for event in await space.events("wake.")]
    assert actions == ["wake.called"]


async def test_the_mesh_may_die_between_the_call_and_the_worker(
    own_mesh: MeshProcess, receiver: Receiver
) -> None:
    async with own_mesh.space() as space:
        ada = await space.agent("ada")
        bob = await space.agent("bob", wake=webhook(receiver))
        asked = await space.client(ada).ask("bob", "tea", wait_seconds=0)
        await until(lambda: receiver.told, "the call")
        own_mesh.kill()
        await own_mesh.restart()
        await space.work(bob, shout)
        assert (await space.client(ada).wait(asked)).text == "TEA"


async def test_a_call_that_could_not_be_made_before_the_mesh_died_is_made_by_the_next_one(
    own_mesh: MeshProcess, unused_tcp_port: int
) -> None:
    receiver = Receiver()
    receiver.url = f"http://127.0.0.1:{unused_tcp_port}/wake"
    async with own_mesh.space() as space:
        ada = await space.agent("ada")
        bob = await space.agent("bob", wake=webhook(receiver))
        asked = await space.client(ada).ask("bob", "tea", wait_seconds=0)

        async def tried() -> bool:
            return bool(own_mesh.rows("SELECT 1 FROM posts WHERE kind = 'wake' AND attempts > 0"))

        await until(tried, "the first attempt")
        own_mesh.kill()
        await receiver.start(unused_tcp_port)
        try:
            await own_mesh.restart()
            await until(lambda: receiver.told, "the call")
            await space.work(bob, shout)
            assert (await space.client(ada).wait(asked)).text == "TEA"
        finally:
            await receiver.stop()


async def test_the_receiver_of_the_documentation_starts_a_worker(
    space: Space, tmp_path: Path, unused_tcp_port: int
) -> None:
    page = (ROOT / "docs" / "sandbox.md").read_text()
    [code] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    script = tmp_path / "receiver.py"
    script.write_text(code.replace("8900", str(unused_tcp_port)))
    wake = Wake(
        kind=agent_pb2.WAKE_KIND_WEBHOOK,
        webhook_url=f"http://127.0.0.1:{unused_tcp_port}/",
        webhook_secret=SECRET,
    )
    ada, bob = await space.agent("ada"), await space.agent("bob", wake=wake)
    start = tmp_path / "start-worker.sh"
    words = f"attach --agent {bob.id} --token-file {bob.token_file} --data {space.mesh.data}"
    start.write_text(f"#!/bin/sh\nexec {HOPLINE} {words} -- echo done\n")
    start.chmod(0o755)
    receiver = space.mesh.processes.start(
        "receiver", sys.executable, str(script), cwd=tmp_path, env={"SECRET": SECRET}
    )
    await until(lambda: is_open(unused_tcp_port), "the receiver")
    try:
        client = space.client(ada)
        answer = await client.wait(await client.ask("bob", "tea"))
        assert answer.text == "done", receiver.said
    finally:
        receiver.kill_with_children()


async def is_open(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
