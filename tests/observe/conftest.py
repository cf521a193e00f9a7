"""What operators see: scrapes, health, traces, of meshes as real processes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.mesh_fixtures import mark_as_e2e, mesh, space, started
from tests.support.mesh_process import MeshProcess, Processes, Space

__all__ = ["mesh", "space", "started"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_as_e2e(items, Path(__file__).parent)


@pytest.fixture
def own_mesh(started: Processes) -> MeshProcess:
    """A mesh for a test that stops, breaks or restarts it."""
    mesh = MeshProcess(started)
    mesh.start()
    return mesh


@pytest.fixture
async def own_space(own_mesh: MeshProcess) -> AsyncIterator[Space]:
    """A workspace of the test's own mesh."""
    async with own_mesh.space() as found:
        yield found
