"""What plugins were handed, and what they are still to be told."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, Index, Table

from hopline_relay.store.schema.columns import id_column, key_column, metadata, number_column, text_column

# What plugins were handed, with until when it counts. `kind`: `session`, `generation`, `depth` or `root`.
plugin_handed = Table(
    "plugin_handed",
    metadata,
    key_column("workspace_id"),
    key_column("plugin_id"),
    key_column("kind"),
    key_column("value"),
    Column("until", Float, nullable=False),
    Index("plugin_handed_until", "until"),
    sqlite_with_rowid=False,
)

# What plugins are still to be told of, each in the order of `ordinal`; a row goes once it was taken, or given
# up. `kind`: `plugin_installed`, `plugin_updated` or `session_started`.
plugin_events = Table(
    "plugin_events",
    metadata,
    key_column("workspace_id"),
    key_column("plugin_id"),
    Column("ordinal", BigInteger, primary_key=True, autoincrement=False),
    id_column("id"),
    id_column("kind"),
    # JSON.
    text_column("body"),
    number_column("attempts"),
    text_column("problem"),
    Column("created_at", Float, nullable=False),
    Column("due_at", Float, nullable=False),
    sqlite_with_rowid=False,
)

# The revision and the version of each plugin that it was told of.
plugin_revisions = Table(
    "plugin_revisions",
    metadata,
    key_column("workspace_id"),
    key_column("plugin_id"),
    Column("revision", BigInteger, nullable=False),
    text_column("version"),
    sqlite_with_rowid=False,
)
