"""A secret that all processes on one database share, and that nobody has to set."""

from __future__ import annotations

import secrets

from sqlalchemy import Column, LargeBinary, MetaData, Table, Text, select
from sqlalchemy.dialects.postgresql import insert

from hopline_store.database import Database


def secrets_table(metadata: MetaData) -> Table:
    """Return the table in which a service keeps what its replicas share."""
    return Table(
        "secrets",
        metadata,
        Column("name", Text, primary_key=True),
        Column("value", LargeBinary, nullable=False),
    )


def shared_secret(database: Database, table: Table, name: str) -> bytes | None:
    """Return the secret of this name, made by whoever comes first; None where one process has the store."""
    if database.engine.dialect.name == "sqlite":
        return None
    with database.engine.begin() as conn:
        made = insert(table).values(name=name, value=secrets.token_bytes(32))
        conn.execute(made.on_conflict_do_nothing())
        found: bytes = conn.execute(select(table.c.value).where(table.c.name == name)).scalar_one()
        return bytes(found)
