"""A mesh for every test: real registry, quota and relay on a clock moved by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.relay_mesh import RelayMesh, relay_mesh


@pytest.fixture
async def mesh(tmp_path: Path, store_url: str) -> AsyncIterator[RelayMesh]:
    async with relay_mesh(tmp_path, store_url=store_url) as opened:
        yield opened
