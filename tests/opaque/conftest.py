"""One mesh, and in it somebody who may not know of much."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.opaque.hidden import Asker, hide
from tests.support.mesh_fixtures import mark_as_e2e, mesh, space
from tests.support.mesh_process import Space

__all__ = ["mesh", "space"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_as_e2e(items, Path(__file__).parent)


@pytest.fixture
async def asker(space: Space) -> Asker:
    """An agent and a person that may not know of much."""
    return await hide(space)
