"""The quota service's only table: what was paid in. Everything else is rebuilt from the relay's record."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Column, Float, Index, MetaData, String, Table, Text, text

metadata: Final = MetaData()

deposits: Final = Table(
    "deposits",
    metadata,
    Column("workspace_id", String, primary_key=True),
    Column("id", String, primary_key=True),
    # In millionths of a credit.
    Column("amount", BigInteger, nullable=False),
    Column("note", Text, nullable=False),
    Column("user_id", String, nullable=False),
    Column("user_name", String, nullable=False),
    # What a repeated call is known by; empty where it came without.
    Column("request_id", String, nullable=False),
    Column("created_at", Float, nullable=False),
    Index(
        "deposits_request",
        "workspace_id",
        "user_id",
        "request_id",
        unique=True,
        sqlite_where=text("request_id <> ''"),
        postgresql_where=text("request_id <> ''"),
    ),
)
