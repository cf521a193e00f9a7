"""The audit log and its seals."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, Index, LargeBinary, Table, text

from hopline_relay.store.schema.columns import id_column, key_column, metadata, text_column

audit_events = Table(
    "audit_events",
    metadata,
    key_column("workspace_id"),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("at", Float, nullable=False),
    id_column("action"),
    id_column("actor_kind"),
    id_column("actor_id"),
    text_column("actor_name"),
    text_column("agent_id"),
    text_column("thread_id"),
    text_column("message_id"),
    text_column("turn_id"),
    text_column("session_id"),
    # JSON.
    text_column("details"),
    text_column("trace_id"),
    Index("audit_events_agent", "workspace_id", "agent_id", "seq"),
    # What an agent does in a turn of its own stands under `agent_id` already.
    Index(
        "audit_events_actor",
        "workspace_id",
        "actor_id",
        "seq",
        sqlite_where=text("actor_id <> agent_id"),
        postgresql_where=text("actor_id <> agent_id"),
    ),
)

# How far the registry's own changes have been taken over into the log.
audit_sources = Table(
    "audit_sources",
    metadata,
    key_column("source"),
    Column("seq", BigInteger, nullable=False),
)

# The seals of the log: the links of its chain (`domain/chain.py`) for events that follow each other, and
# the last of them once more.
audit_seals = Table(
    "audit_seals",
    metadata,
    key_column("workspace_id"),
    Column("first_seq", BigInteger, primary_key=True, autoincrement=False),
    Column("last_seq", BigInteger, nullable=False),
    Column("link", LargeBinary, nullable=False),
    Column("links", LargeBinary, nullable=False),
    Column("sealed_at", Float, nullable=False),
)

# Where the log begins, once retention has deleted what came before: the newest deleted event and its link.
audit_cuts = Table(
    "audit_cuts",
    metadata,
    key_column("workspace_id"),
    Column("seq", BigInteger, nullable=False),
    Column("link", LargeBinary, nullable=False),
    Column("cut_at", Float, nullable=False),
)
