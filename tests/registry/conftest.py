from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.registry.builders import Rig, copied


@pytest.fixture(scope="session")
def started(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder after its first start, made once: the migrations take a while."""
    folder = tmp_path_factory.mktemp("registry") / "data"

    async def start() -> None:
        rig = await Rig.open(folder)
        await rig.registry.close()

    asyncio.run(start())
    return folder


@pytest.fixture
def data(request: pytest.FixtureRequest, tmp_path: Path, store_url: str) -> Path:
    """Where a registry of the test keeps its files."""
    folder = tmp_path / "data"
    return folder if store_url else copied(request.getfixturevalue("started"), folder)


@pytest.fixture
async def rig(data: Path, store_url: str) -> AsyncIterator[Rig]:
    made = await Rig.open(data, database_url=store_url)
    yield made
    await made.registry.close()
