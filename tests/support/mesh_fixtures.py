"""Fixtures of meshes as real processes; the `conftest.py` of a folder imports those that it wants."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.mesh_process import MeshProcess, Processes, Space, processes


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Processes]:
    """What starts processes for one test."""
    with processes(tmp_path) as found:
        yield found


@pytest.fixture(scope="session")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeshProcess]:
    """A mesh for all tests of a folder that leave it running, each in a workspace of its own."""
    with processes(tmp_path_factory.mktemp("mesh")) as found:
        shared = MeshProcess(found)
        shared.start()
        yield shared
        assert shared.complaints() == []


@pytest.fixture
async def space(mesh: MeshProcess) -> AsyncIterator[Space]:
    """A workspace of the mesh for one test."""
    async with mesh.space() as found:
        yield found


def mark_as_e2e(items: list[pytest.Item], folder: Path) -> None:
    """Mark the tests of a folder as those that start real processes."""
    for item in items:
        if folder in item.path.parents:
            item.add_marker(pytest.mark.e2e)
