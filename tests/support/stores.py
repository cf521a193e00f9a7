"""Which store a test runs on: the fixture `store_url` gives the address, empty for SQLite.

A module says `pytestmark = pytest.mark.both_stores` and runs on SQLite and PostgreSQL; a test that looks into
the one or the other says `@pytest.mark.sqlite_only("why")`. With `HOPLINE_TEST_STORE=postgresql` all tests
that can run on PostgreSQL alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hopline_store import open_engine
from hopline_store.migrations import migrate

from tests.support import postgres

SQLITE, POSTGRESQL = "sqlite", "postgresql"
_SERVICES = ("registry", "quota", "relay")


def stores_of(definition: pytest.Item) -> list[str]:
    """Return the stores that a test runs on."""
    if definition.get_closest_marker("sqlite_only"):
        return [SQLITE]
    if chosen := os.environ.get("HOPLINE_TEST_STORE"):
        return [chosen]
    return [SQLITE, POSTGRESQL] if definition.get_closest_marker("both_stores") else [SQLITE]


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Run a test that asks for the store once on each of its stores."""
    if "store_url" in metafunc.fixturenames:
        metafunc.parametrize("store_url", stores_of(metafunc.definition), indirect=True)


@pytest.fixture
def store_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of the store; empty for files of SQLite."""
    if request.param == SQLITE:
        yield ""
        return
    with postgres.database(migrated()) as url:
        yield url


def migrated() -> str:
    """Return the name of a database in which every service has its tables."""
    return postgres.template("migrated", _migrate)


def _migrate(url: str) -> None:
    for name in _SERVICES:
        engine = open_engine(url, name)
        migrate(engine, f"hopline_{name}.migrations")
        engine.dispose()
