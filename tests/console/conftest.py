"""What the console's tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.browser import browser
from tests.support.mesh_fixtures import space, started
from tests.support.mesh_process import MeshProcess, Processes, processes

__all__ = ["browser", "space", "started"]
# Tests sign in from one address, and often wrongly.
PATIENT = {"HOPLINE_CONSOLE_SIGNINS_PER_ADDRESS": "1000", "HOPLINE_CONSOLE_SIGNINS": "1000"}


@pytest.fixture(scope="session")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeshProcess]:
    """A mesh for all tests that leave it running, each in a workspace of its own."""
    with processes(tmp_path_factory.mktemp("mesh")) as found:
        shared = MeshProcess(found, env=PATIENT)
        shared.start()
        yield shared
        assert shared.complaints() == []


@pytest.fixture
def own_mesh(started: Processes) -> MeshProcess:
    """A mesh of the test's own, to restart."""
    found = MeshProcess(started)
    found.start()
    return found
