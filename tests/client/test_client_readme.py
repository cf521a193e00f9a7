"""The examples of the README run as they are written, as programs of their own."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from hopline_client import Mesh, Turn, Worker

from tests.support.relay_mesh import Caller, RelayMesh, relay_mesh, until

README = Path(__file__).parents[2] / "libs/client/README.md"
# What a program that only talks to the mesh has no use for, and would wait for at every start.
HEAVY = (
    "sqlalchemy",
    "alembic",
    "mcp",
    "pydantic",
    "protovalidate",
    "jwt",
    "cryptography",
    "aiohttp",
    "opentelemetry",
)


def example(containing: str) -> str:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    return str(next(block for block in blocks if containing in block))


@pytest.fixture
async def mesh(tmp_path: Path) -> AsyncIterator[RelayMesh]:
    async with relay_mesh(tmp_path / "data") as opened:
        yield opened


@pytest.fixture
async def url(mesh: RelayMesh) -> AsyncIterator[str]:
    """A gateway as far as finding the mesh goes."""
    body = json.dumps(await mesh.listen()).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def environment(url: str, agent: Caller, folder: Path) -> dict[str, str]:
    file = folder / f"{agent.id}.token"
    file.write_text(agent.token)
    return {**os.environ, "HOPLINE_URL": url, "HOPLINE_TOKEN_FILE": str(file)}


async def test_the_tools_of_a_worker_are_called(mesh: RelayMesh, url: str, tmp_path: Path) -> None:
    eve, shop, supplier = [await mesh.agent(name) for name in ("eve", "shop", "supplier")]

    async def supply(turn: Turn) -> str:
        return turn.text.upper()

    other = Worker(url, supply, token=supplier.token)
    running = asyncio.create_task(other.run())
    script = [sys.executable, "-c", example("ToolContext")]
    process = await asyncio.create_subprocess_exec(*script, env=environment(url, shop, tmp_path))
    try:
        presence = mesh.relay.dispatcher.presence
        await until(lambda: presence(mesh.workspace_id, shop.id), "the shop")
        async with Mesh(url, token=eve.token) as client:
            assert (await client.call_tool("shop", "stock", {"item": "apples"})).value == 3
            failed = await client.call_tool("shop", "stock", {"item": "pears"})
            assert failed.error == "pears is not in the catalogue"
            ordered = await client.call_tool("shop", "order", {"item": "pears", "count": 2})
        assert ordered.value == "2 PEARS, PLEASE; EVE (FOR ADMIN) WANTS THEM"
    finally:
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
        await other.stop()
        await running


async def test_the_worker_answers_and_leaves_on_sigterm(mesh: RelayMesh, url: str, tmp_path: Path) -> None:
    eve, planner, reviewer = [await mesh.agent(name) for name in ("eve", "planner", "reviewer")]

    async def review(turn: Turn) -> str:
        return f"quite sound ({turn.text})"

    worker = Worker(url, review, token=reviewer.token)
    reviewing = asyncio.create_task(worker.run())
    await worker.ready()
    script = [sys.executable, "-c", example("run_forever")]
    process = await asyncio.create_subprocess_exec(*script, env=environment(url, planner, tmp_path))
    try:
        found = await eve.ask(planner, "2 + 2 = 4", wait=50)
        assert found.reply == "The reviewer says: quite sound (Is this sound? 2 + 2 = 4)"
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
    gone = mesh.relay.dispatcher.presence
    await until(lambda: gone(mesh.workspace_id, planner.id) is None, "the end of the tunnel")
    await worker.stop()
    await reviewing


async def test_the_client_lists_and_asks(mesh: RelayMesh, url: str, tmp_path: Path) -> None:
    eve, reviewer = await mesh.agent("eve"), await mesh.agent("reviewer")

    async def review(turn: Turn) -> str:
        return "yes"

    worker = Worker(url, review, token=reviewer.token)
    reviewing = asyncio.create_task(worker.run())
    await worker.ready()
    script = [sys.executable, "-c", example("async with Mesh()")]
    process = await asyncio.create_subprocess_exec(
        *script, env=environment(url, eve, tmp_path), stdout=subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert out.decode() == "reviewer idle\nyes\n"
    await worker.stop()
    await reviewing


def test_importing_the_client_pulls_in_nothing_heavy() -> None:
    found = "import hopline_client, sys; print([name for name in sys.argv[1:] if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", found, *HEAVY], check=True, stdout=subprocess.PIPE, text=True
    )
    assert done.stdout.strip() == "[]"
