"""Every store passes the same tests: a further one is a further name in `STORES`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import cast

import pytest
from hopline_quota.store import Store
from hopline_quota.store.memory import MemoryStore

from tests.quota.builders import Desk, HandClock
from tests.quota.mesh import Mesh

STORES: dict[str, Callable[[HandClock], Store]] = {"memory": MemoryStore}


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture(params=STORES)
def make_store(request: pytest.FixtureRequest) -> Callable[[HandClock], Store]:
    return STORES[cast(str, request.param)]


@pytest.fixture
def store(make_store: Callable[[HandClock], Store], clock: HandClock) -> Store:
    return make_store(clock)


@pytest.fixture
async def desk(store: Store, clock: HandClock) -> Desk:
    """A desk at a store that holds nothing, in epoch 1."""
    desk = Desk(store, clock)
    await desk.seed(1)
    return desk


@pytest.fixture
async def mesh(tmp_path: Path) -> AsyncIterator[Mesh]:
    """A registry and a quota service whose counters nobody has seeded."""
    mesh = await Mesh.open(tmp_path)
    yield mesh
    await mesh.close()
