"""What the console's tests share."""

from __future__ import annotations

import pytest

from tests.support.browser import browser
from tests.support.mesh_fixtures import mesh, space, started
from tests.support.mesh_process import MeshProcess, Processes

__all__ = ["browser", "mesh", "space", "started"]


@pytest.fixture
def own_mesh(started: Processes) -> MeshProcess:
    """A mesh of the test's own, to restart."""
    found = MeshProcess(started)
    found.start()
    return found
