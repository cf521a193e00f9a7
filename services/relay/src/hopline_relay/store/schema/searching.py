"""What is found by agent and by words; made in the background from messages, and can be made anew."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Table

from hopline_relay.store.schema.columns import id_column, key_column, metadata

# The messages that an agent has sent or received. Beside it, in full text, stands what they say: in
# `message_words`, on SQLite a virtual table, on PostgreSQL one with an index of its own.
exchanges = Table(
    "exchanges",
    metadata,
    key_column("workspace_id"),
    key_column("agent_id"),
    Column("ordinal", BigInteger, primary_key=True, nullable=False, autoincrement=False),
    id_column("message_id"),
    sqlite_with_rowid=False,
)

# Up to which message of a workspace that is done.
exchange_marks = Table(
    "exchange_marks",
    metadata,
    key_column("workspace_id"),
    Column("through", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
