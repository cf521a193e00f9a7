"""The tables of every service, on both databases: what the migrations make is what the statements expect."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from hopline_store import migrate, open_engine
from sqlalchemy import Boolean, Connection, String, inspect, text

from tests.support import postgres, stores

SERVICES = ("registry", "quota", "relay")


@pytest.fixture(params=[stores.SQLITE, stores.POSTGRESQL])
def place(request: pytest.FixtureRequest) -> Iterator[str]:
    """An empty database."""
    if request.param == stores.SQLITE:
        yield "sqlite://"
        return
    with postgres.database() as url:
        yield url


def metadata_of(service: str) -> Any:
    return importlib.import_module(f"hopline_{service}.store.schema").metadata


@pytest.fixture(params=SERVICES)
def migrated(request: pytest.FixtureRequest, place: str) -> Iterator[tuple[str, Connection]]:
    """A service, and a connection to a database that its migrations have brought to the newest revision."""
    engine = open_engine(place, request.param)
    migrate(engine, f"hopline_{request.param}.migrations")
    with engine.connect() as conn:
        yield request.param, conn
    engine.dispose()


def test_the_migrations_make_the_tables_that_the_statements_are_for(
    migrated: tuple[str, Connection],
) -> None:
    service, conn = migrated

    # Full text is a database's own: a virtual table with its shadows on SQLite, word vectors on PostgreSQL.
    def ours(_: object, name: str | None, *_rest: object) -> bool:
        return not (name or "").startswith(("message_words", "messages_words"))

    context = MigrationContext.configure(conn, opts={"compare_type": True, "include_object": ours})
    assert compare_metadata(context, metadata_of(service)) == []


@pytest.mark.parametrize("service", SERVICES)
def test_on_postgresql_text_is_ordered_by_its_bytes_and_truth_is_a_boolean(service: str) -> None:
    query = text(
        "SELECT table_name || '.' || column_name, data_type, collation_name, column_default"
        " FROM information_schema.columns WHERE table_schema = :schema"
        " AND table_name NOT IN ('alembic_version', 'message_words')"
    )
    with postgres.database() as url:
        engine = open_engine(url, service)
        migrate(engine, f"hopline_{service}.migrations")
        with engine.connect() as conn:
            found = {row[0]: row[1:] for row in conn.execute(query, {"schema": f"hopline_{service}"})}
        engine.dispose()
    columns = [column for table in metadata_of(service).tables.values() for column in table.columns]
    assert sorted(found) == sorted(f"{column.table.name}.{column.name}" for column in columns)
    for column in columns:
        kind, collation, default = found[f"{column.table.name}.{column.name}"]
        if isinstance(column.type, String):
            assert kind in ("text", "character varying"), column
            assert collation == "C", column
        if isinstance(column.type, Boolean):
            assert (kind, default) in {("boolean", None), ("boolean", "false"), ("boolean", "true")}, column


def test_each_service_keeps_its_tables_in_a_schema_of_its_own() -> None:
    with postgres.database(stores.migrated()) as url:
        engine = open_engine(url)
        found = {schema for schema in inspect(engine).get_schema_names() if schema.startswith("hopline_")}
        assert found == {"hopline_registry", "hopline_quota", "hopline_relay"}
        assert inspect(engine).get_table_names("public") == []
        engine.dispose()
