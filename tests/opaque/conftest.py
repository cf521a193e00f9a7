"""One mesh, and in it somebody who may not know of much."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.opaque.hidden import Asker, hide
from tests.support.mesh_process import MeshProcess, Space, processes


@pytest.fixture(scope="session")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeshProcess]:
    """A mesh for all tests here, each in a workspace of its own."""
    with processes(tmp_path_factory.mktemp("opaque")) as found:
        shared = MeshProcess(found)
        shared.start()
        yield shared
        assert shared.complaints() == []


@pytest.fixture
async def space(mesh: MeshProcess) -> AsyncIterator[Space]:
    """A workspace for one test."""
    async with mesh.space() as found:
        yield found


@pytest.fixture
async def asker(space: Space) -> Asker:
    """An agent and a person that may not know of much."""
    return await hide(space)
