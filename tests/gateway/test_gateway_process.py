"""The gateway as a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import httpx2


async def start(environment: dict[str, str]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "hopline_gateway",
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


async def said(process: asyncio.subprocess.Process) -> str:
    output, _ = await asyncio.wait_for(process.communicate(), 120)
    return output.decode()


async def test_without_a_credential_it_says_so_in_one_line() -> None:
    process = await start({"HOPLINE_SERVICE_TOKEN_FILE": "/nowhere/token"})
    lines = (await said(process)).splitlines()
    assert process.returncode == 1
    assert len(lines) == 1
    assert "/nowhere/token" in lines[0]


async def test_a_port_in_use_is_one_line_and_status_1(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("x")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        process = await start(
            {"HOPLINE_SERVICE_TOKEN_FILE": str(tmp_path / "token"), "HOPLINE_BIND": bind, **NOBODY}
        )
        lines = (await said(process)).splitlines()
    assert process.returncode == 1
    assert lines == [f"hopline_gateway: {bind} is in use by another process; stop it or choose another port"]


NOBODY = {f"HOPLINE_{name}": "127.0.0.1:9" for name in ("REGISTRY", "RELAY", "QUOTA")}


async def test_it_starts_without_a_registry_says_it_is_not_ready_and_ends_at_sigterm(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("x")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        bind = f"127.0.0.1:{probe.getsockname()[1]}"
    process = await start(
        {"HOPLINE_SERVICE_TOKEN_FILE": str(tmp_path / "token"), "HOPLINE_BIND": bind, **NOBODY}
    )
    try:
        async with httpx2.AsyncClient(base_url=f"http://{bind}") as client:
            ready = await once_up(client)
        assert ready.status_code == 503
    finally:
        process.send_signal(signal.SIGTERM)
        await said(process)
    assert process.returncode == 0


async def once_up(client: httpx2.AsyncClient) -> httpx2.Response:
    async with asyncio.timeout(120):
        while True:
            try:
                return await client.get("/readyz")
            except httpx2.TransportError:
                await asyncio.sleep(0.05)  # it is still starting
