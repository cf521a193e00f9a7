"""What is counted and who writes: epochs, processes, heads, credits, roots, requests."""

from __future__ import annotations

from hopline_store.secret import secrets_table
from sqlalchemy import BigInteger, Column, Float, Index, Integer, LargeBinary, Table, Text, text

from hopline_relay.store.schema.columns import id_column, key_column, metadata, text_column

# The counters' epoch that this record goes with, and the processes that write here. A batch is committed
# only while both rows are what its author believes them to be.
quota_epochs = Table(
    "quota_epochs",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("epoch", BigInteger, nullable=False),
    Column("seeded_at", Float, nullable=False),
)

instances = Table(
    "instances",
    metadata,
    key_column("id"),
    Column("started_at", Float, nullable=False),
    Column("ended_at", Float),
    # Where several share the record: when it was alive last, by the database's clock, and how often what it
    # says of its tunnels has changed.
    Column("seen_at", Float),
    Column("tunnels", BigInteger, nullable=False, server_default="0"),
    # Where the others reach it; empty before it listens.
    text_column("address"),
)

# The tunnels that are open at each of several relays, an agent's together.
open_tunnels = Table(
    "open_tunnels",
    metadata,
    key_column("workspace_id"),
    key_column("agent_id"),
    key_column("instance_id"),
    Column("places", Integer, nullable=False),
    Column("held", Integer, nullable=False),
    id_column("isolation"),
)

# What the relays on one record share, and nobody else knows.
secrets = secrets_table(metadata)

# The counters of a workspace: the last ordinal and the last number of its audit log.
heads = Table(
    "heads",
    metadata,
    key_column("workspace_id"),
    Column("ordinal", BigInteger, nullable=False),
    Column("audit_seq", BigInteger, nullable=False),
)

# What the turns of a workspace were charged in all, in millionths of a credit; written where they cost any.
credit_accounts = Table(
    "credit_accounts",
    metadata,
    key_column("workspace_id"),
    Column("charged", BigInteger, nullable=False),
)

# What is known of a root beside its turns; most have no row. `agent_id`: the agent it began with.
roots = Table(
    "roots",
    metadata,
    key_column("workspace_id"),
    key_column("id"),
    id_column("agent_id"),
    # What people granted it on top of the policy.
    Column("extra_turns", Integer, nullable=False),
    # When it was first refused a turn since it was last extended.
    Column("exhausted_at", Float),
    Index(
        "roots_exhausted",
        "workspace_id",
        "exhausted_at",
        "id",
        sqlite_where=text("exhausted_at IS NOT NULL"),
        postgresql_where=text("exhausted_at IS NOT NULL"),
    ),
)

# What a caller's request_id stands for, for 24 h.
requests = Table(
    "requests",
    metadata,
    key_column("workspace_id"),
    # The UTC day it was made on: a request is looked for on two, and whole days are forgotten.
    key_column("day"),
    # Before the caller, since it is unique but for a caller that copies another's.
    key_column("request_id"),
    key_column("principal_id"),
    Column("digest", LargeBinary, nullable=False),
    id_column("message_id"),
    Column("created_at", Float, nullable=False),
    # Where hooks let nobody have it, and there is no message: JSON of whom it was to and why.
    Column("kept", Text),
    sqlite_with_rowid=False,
)
