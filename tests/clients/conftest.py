"""A mesh for foreign harnesses and clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.mesh_fixtures import mark_as_e2e, mesh, space, started

__all__ = ["mesh", "space", "started"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_as_e2e(items, Path(__file__).parent)
