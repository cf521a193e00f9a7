"""What a command under `hopline attach` can get hold of: its own session, for as long as its turn."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import psutil
import pytest
from hopline_client import Answer
from hopline_client import Mesh as Client

from tests.support.mesh_process import HOPLINE, Process, Space, ended, until

TOKEN = re.compile(rb"hpl_[a-z]_[A-Za-z0-9_-]{43}")

# Says where it runs, leaves a process in the background, and waits for the test.
COMMAND = """
import json, os, subprocess, sys
from pathlib import Path
folder = Path(sys.argv[1])
left = subprocess.Popen(["sleep", "1000"])
pipe = subprocess.Popen([sys.argv[2], "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
facts = {"pid": os.getpid(), "left": left.pid, "pipe": pipe.pid, "socket": os.environ["HOPLINE_SOCKET"]}
(folder / "facts.new").write_text(json.dumps(facts))
(folder / "facts.new").rename(folder / "facts")
(folder / "go").read_text()
print("done")
"""


@dataclass
class Stage:
    """A command in the middle of its turn."""

    daemon: Process
    client: Client
    asked: Answer
    socket: Path
    pids: set[int]
    go: Path

    async def let_go(self) -> str:
        """Let the command end, and return its answer."""
        await asyncio.to_thread(self.go.write_text, "on")
        return (await self.client.wait(self.asked)).text


@pytest.fixture
async def stage(space: Space, tmp_path: Path) -> Stage:
    ada, bob = await space.agents("ada", "bob")
    script = tmp_path / "command.py"
    script.write_text(COMMAND)
    go, facts = tmp_path / "go", tmp_path / "facts"
    os.mkfifo(go)
    daemon = await space.attach(bob, sys.executable, str(script), str(tmp_path), HOPLINE)
    client = space.client(ada)
    asked = await client.ask("bob", "tea", wait_seconds=0)
    await until(facts.exists, "the command")
    found = json.loads(facts.read_text())
    socket = Path(found.pop("socket"))
    return Stage(daemon, client, asked, socket, set(found.values()), go)


def seen_of(pid: int) -> Iterator[tuple[str, bytes]]:
    """Yield what every process of the same user may read of a process."""
    for name in ("environ", "cmdline"):
        yield f"{name} of {pid}", Path(f"/proc/{pid}/{name}").read_bytes()


async def test_no_token_is_in_any_environment_argument_or_file_of_an_attached_command(stage: Stage) -> None:
    daemon = psutil.Process(stage.daemon.pid)
    family = [daemon.pid, *(child.pid for child in daemon.children(recursive=True))]
    assert stage.pids < set(family)
    seen = [piece for pid in family for piece in seen_of(pid)]
    folder = stage.socket.parent
    seen += [(str(file), file.read_bytes()) for file in folder.parent.rglob("*") if file.is_file()]
    seen.append(("the daemon's output", stage.daemon.log.read_bytes()))
    assert len(seen) > 2 * len(family)
    assert [where for where, content in seen if TOKEN.search(content)] == []
    assert await stage.let_go() == "done"


async def test_what_a_command_leaves_behind_ends_with_its_turn_and_its_socket_with_it(stage: Stage) -> None:
    connector = aiohttp.UnixConnector(str(stage.socket))
    ping = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    headers = {"Accept": "application/json, text/event-stream"}
    async with aiohttp.ClientSession("http://localhost", connector=connector, headers=headers) as kept:
        async with kept.post("/mcp", json=ping) as answer:
            assert answer.status == 200
            await answer.read()
        assert await stage.let_go() == "done"
        await until(lambda: all(ended(pid) for pid in stage.pids), "the end of what was left")
        assert not stage.socket.parent.exists()
        with pytest.raises(aiohttp.ClientError):
            await kept.post("/mcp", json=ping)
    with pytest.raises((ConnectionRefusedError, FileNotFoundError)):
        await asyncio.open_unix_connection(str(stage.socket))
    assert stage.daemon.is_running
