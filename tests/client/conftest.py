"""A whole mesh for workers and clients, over both kinds of channels."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.relay_mesh import relay_mesh
from tests.support.stage import Stage


@pytest.fixture(params=["in process", "socket"])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    async with relay_mesh(tmp_path) as mesh:
        running = Stage(mesh, socket=request.param == "socket")
        await running.listen()
        yield running
        await running.close()
