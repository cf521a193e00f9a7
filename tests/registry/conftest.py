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
async def rig(started: Path, tmp_path: Path) -> AsyncIterator[Rig]:
    made = await Rig.open(copied(started, tmp_path / "data"))
    yield made
    await made.registry.close()
