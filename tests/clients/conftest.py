"""A mesh for foreign harnesses and clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import node
from tests.support.mesh_fixtures import mark_as_e2e, mesh, space, started

__all__ = ["mesh", "space", "started"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_as_e2e(items, Path(__file__).parent)


@pytest.fixture(scope="session", autouse=True)
def npm_packages(request: pytest.FixtureRequest) -> None:
    """Have the npm packages there before a test, and let it be seen when that takes a while."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        node.installed()
