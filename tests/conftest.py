"""What holds for all tests."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from tests.support import stores
from tests.support.stores import store_url

__all__ = ["store_url"]

# A property is judged by what it finds, never by how busy the machine is.
settings.register_profile("hopline", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("hopline")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what runs on several stores on each of them."""
    stores.parametrize(metafunc)
