from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.gateway.builders import LEGACY, MODERN, Rig, running


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    async with running() as found:
        yield found


@pytest.fixture(params=[LEGACY, MODERN])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)
