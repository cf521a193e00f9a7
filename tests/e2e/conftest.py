"""Meshes as real processes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.support.mesh_process import MeshProcess, Processes, Space, processes

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.e2e)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Processes]:
    """What starts processes for one test."""
    with processes(tmp_path) as found:
        yield found


@pytest.fixture
def own_mesh(started: Processes) -> Iterator[MeshProcess]:
    """A mesh for a test that stops or kills it."""
    mesh = MeshProcess(started)
    mesh.start()
    yield mesh
    assert mesh.complaints() == []


@pytest.fixture(scope="session")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeshProcess]:
    """A mesh for all tests that leave it running, each in a workspace of its own."""
    with processes(tmp_path_factory.mktemp("mesh")) as found:
        shared = MeshProcess(found)
        shared.start()
        yield shared
        assert shared.complaints() == []


@pytest.fixture
async def space(mesh: MeshProcess) -> AsyncIterator[Space]:
    """A workspace of the shared mesh for one test."""
    async with mesh.space() as found:
        yield found


@pytest.fixture
async def own_space(own_mesh: MeshProcess) -> AsyncIterator[Space]:
    """A workspace of the test's own mesh."""
    async with own_mesh.space() as found:
        yield found
