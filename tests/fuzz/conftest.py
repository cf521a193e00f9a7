"""One mesh for all inputs of a session."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fuzz.ground import Ground, ground


@pytest.fixture(scope="session")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """A mesh that no input may harm."""
    with ground(tmp_path_factory.mktemp("fuzz")) as found:
        yield found
        found.serves()
