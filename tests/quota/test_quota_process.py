"""The service in a process of its own, found over real addresses."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hopline.quota.v1 import admission_pb2 as pb
from hopline.quota.v1.admission_pb2_grpc import AdmissionServiceStub
from hopline_registry.app import SERVICE as REGISTRY
from hopline_registry.app import Registry
from hopline_rpc.channels import bearer, dial
from hopline_rpc.service import Wiring


@pytest.fixture
async def registry(tmp_path: Path) -> AsyncIterator[Registry]:
    registry = await REGISTRY.open(Wiring(data_dir=tmp_path / "registry", embedded=True))
    yield registry
    await registry.close()


async def start(**environment: str) -> asyncio.subprocess.Process:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOPLINE_")}
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "hopline_quota",
        env={**kept, **{f"HOPLINE_{name}": value for name, value in environment.items()}},
        stderr=asyncio.subprocess.PIPE,
    )


async def test_it_serves_on_its_own_and_leaves_when_told_to(registry: Registry, tmp_path: Path) -> None:
    token = tmp_path / "quota.token"
    token.write_text(await registry.service_token("quota"))
    address = await registry.server.start("127.0.0.1:0")
    bind = f"unix:{tmp_path / 'quota.sock'}"
    process = await start(REGISTRY=address, SERVICE_TOKEN_FILE=str(token), BIND=bind)
    try:
        async with dial(bind, credentials=bearer(await registry.service_token("relay"))) as channel:
            stub = AdmissionServiceStub(channel)
            seeded = await stub.Seed(pb.SeedRequest(epoch=4), wait_for_ready=True, timeout=30)
            assert (seeded.accepted, seeded.epoch) == (True, 4)
            assert not (await stub.Refund(pb.RefundRequest(epoch=4))).counters_lost
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 30) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_it_says_in_one_line_that_its_token_is_missing(tmp_path: Path) -> None:
    for environment in ({}, {"SERVICE_TOKEN_FILE": str(tmp_path / "nothing")}):
        process = await start(**environment)
        _, said = await asyncio.wait_for(process.communicate(), 30)
        assert process.returncode == 1
        assert said.decode().count("\n") == 1
        assert "HOPLINE_SERVICE_TOKEN_FILE" in said.decode()


async def test_it_can_be_stopped_while_the_registry_is_out_of_reach(tmp_path: Path) -> None:
    token = tmp_path / "quota.token"
    token.write_text("hpl_s_nothing")
    nowhere = f"unix:{tmp_path / 'nobody.sock'}"
    bind = f"unix:{tmp_path / 'quota.sock'}"
    process = await start(REGISTRY=nowhere, SERVICE_TOKEN_FILE=str(token), BIND=bind, LOG_LEVEL="debug")
    assert process.stderr is not None
    try:
        # It has tried once, so its signal handlers stand.
        while b"the stream of changes ended" not in await asyncio.wait_for(process.stderr.readline(), 30):
            pass
        process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.communicate(), 30)
        assert process.returncode == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
