"""The first tables.

Revision ID: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create them."""
    _create_quota_epochs()
    _create_instances()
    _create_heads()
    _create_requests()
    _create_threads()
    _create_participants()
    _create_messages()
    _create_deliveries()
    _create_sessions()
    _create_turns()
    _create_debts()
    _create_waits()
    _create_attachments()
    _create_audit_events()
    _create_audit_sources()


def _create_quota_epochs() -> None:
    op.create_table(
        "quota_epochs",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("seeded_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )


def _create_instances() -> None:
    op.create_table(
        "instances",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=False),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )


def _create_heads() -> None:
    op.create_table(
        "heads",
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("ordinal", sa.BigInteger(), nullable=False),
        sa.Column("audit_seq", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("workspace_id"),
    )


def _create_requests() -> None:
    op.create_table(
        "requests",
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("day", sa.String(), nullable=False),
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("principal_id", sa.String(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("message_id", sa.String(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("workspace_id", "day", "request_id", "principal_id"),
        sqlite_with_rowid=False,
    )


def _create_threads() -> None:
    op.create_table(
        "threads",
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("subject", sa.Text(), server_default="", nullable=False),
        sa.Column("message_count", sa.Integer(), nullable=False),
        sa.Column("reserved", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("last_at", sa.Float(), nullable=False),
        sa.Column("last_ordinal", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("workspace_id", "id"),
    )
    op.create_index("threads_recent", "threads", ["workspace_id", "last_ordinal"], unique=False)


def _create_participants() -> None:
    op.create_table(
        "participants",
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("thread_id", sa.String(), nullable=False),
        sa.Column("party_id", sa.String(), nullable=False),
        sa.Column("party_kind", sa.String(), nullable=False),
        sa.Column("last_ordinal", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("workspace_id", "thread_id", "party_id"),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "participants_recent", "participants", ["workspace_id", "party_id", "last_ordinal"], unique=False
    )


def _create_messages() -> None:
    op.create_table(
        "messages",
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("ordinal", sa.BigInteger(), nullable=False),
        sa.Column("thread_id", sa.String(), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("from_kind", sa.String(), nullable=False),
        sa.Column("from_id", sa.String(), nullable=False),
        sa.Column("from_session_id", sa.Text(), server_default="", nullable=False),
        sa.Column("from_turn_id", sa.Text(), server_default="", nullable=False),
        sa.Column("subject", sa.Text(), server_default="", nullable=False),
        sa.Column("body", sa.Text(), server_default="", nullable=False),
        sa.Column("payload", sa.Text(), server_default="", nullable=False),
        sa.Column("in_reply_to", sa.Text(), server_default="", nullable=False),
        sa.Column("depth", sa.Integer(), nullable=False),
        sa.Column("from_depth", sa.Integer(), nullable=False),
        sa.Column("root_id", sa.String(), nullable=False),
        sa.Column("hook_generation", sa.Integer(), server_default="0", nullable=False),
        sa.Column("admitted_as", sa.String(), nullable=False),
        sa.Column("day", sa.String(), nullable=False),
        sa.Column("traceparent", sa.Text(), server_default="", nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("workspace_id", "id"),
    )
    op.create_index(
        "messages_session",
        "messages",
        ["workspace_id", "from_session_id", "ordinal"],
        unique=False,
        sqlite_where=sa.text("from_session_id <> ''"),
        postgresql_where=sa.text("from_session_id <> ''"),
    )
    op.create_index("messages_thread", "messages", ["workspace_id", "thread_id", "seq"], unique=True)


def _create_deliveries() -> None:
    op.create_table(
        "deliveries",
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("message_id", sa.String(), nullable=False),
        sa.Column("recipient_id", sa.String(), nullable=False),
        sa.Column("recipient_kind", sa.String(), nullable=False),
        sa.Column("session_id", sa.Text(), server_default="", nullable=False),
        sa.Column("turn_id", sa.Text(), server_default="", nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("place", sa.Boolean(), nullable=False),
        sa.Column("ordinal", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("workspace_id", "message_id", "recipient_id"),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "deliveries_session",
        "deliveries",
        ["workspace_id", "session_id", "ordinal"],
        unique=False,
        sqlite_where=sa.text("session_id <> ''"),
        postgresql_where=sa.text("session_id <> ''"),
    )


def _create_sessions() -> None:
    op.create_table(
        "sessions",
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("agent_id", sa.String(), nullable=False),
        sa.Column("title", sa.String(), nullable=False),
        sa.Column("channel", sa.String(), nullable=False),
        sa.Column("pair", sa.Text(), server_default="", nullable=False),
        sa.Column("number", sa.Integer(), server_default="0", nullable=False),
        sa.Column("closed", sa.Boolean(), nullable=False),
        sa.Column("running_turn_id", sa.Text(), server_default="", nullable=False),
        sa.Column("used", sa.Boolean(), nullable=False),
        sa.Column("opened_by_kind", sa.String(), nullable=False),
        sa.Column("opened_by_id", sa.String(), nullable=False),
        sa.Column("opened_by_session_id", sa.Text(), server_default="", nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("ordinal", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("workspace_id", "id"),
    )
    op.create_index("sessions_agent", "sessions", ["workspace_id", "agent_id", "ordinal"], unique=False)
    op.create_index("sessions_opener", "sessions", ["workspace_id", "opened_by_id", "ordinal"], unique=False)
    op.create_index(
        "sessions_peer",
        "sessions",
        ["workspace_id", "channel", "pair", "number"],
        unique=True,
        sqlite_where=sa.text("number > 0"),
        postgresql_where=sa.text("number > 0"),
    )


def _create_turns() -> None:
    op.create_table(
        "turns",
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("ordinal", sa.BigInteger(), nullable=False),
        sa.Column("agent_id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("cause", sa.String(), nullable=False),
        sa.Column("message_id", sa.String(), nullable=False),
        sa.Column("thread_id", sa.String(), nullable=False),
        sa.Column("caused_by_kind", sa.String(), nullable=False),
        sa.Column("caused_by_id", sa.String(), nullable=False),
        sa.Column("parent_turn_id", sa.Text(), server_default="", nullable=False),
        sa.Column("root_id", sa.String(), nullable=False),
        sa.Column("depth", sa.Integer(), nullable=False),
        sa.Column("hook_generation", sa.Integer(), server_default="0", nullable=False),
        sa.Column("chain", sa.Text(), server_default="", nullable=False),
        sa.Column("attempt", sa.Integer(), server_default="0", nullable=False),
        sa.Column("batch_id", sa.Text(), server_default="", nullable=False),
        sa.Column("run_session_id", sa.Text(), server_default="", nullable=False),
        sa.Column("epoch", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("instance_id", sa.Text(), server_default="", nullable=False),
        sa.Column("slot", sa.Boolean(), server_default=sa.text("0"), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("started_at", sa.Float(), nullable=True),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.Column("lease_until", sa.Float(), nullable=True),
        sa.Column("deadline_at", sa.Float(), nullable=False),
        sa.Column("due_at", sa.Float(), nullable=True),
        sa.Column("error_code", sa.Text(), server_default="", nullable=False),
        sa.Column("error_message", sa.Text(), server_default="", nullable=False),
        sa.Column("traceparent", sa.Text(), server_default="", nullable=False),
        sa.Column("span", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("workspace_id", "id"),
    )
    op.create_index(
        "turns_agent",
        "turns",
        ["workspace_id", "agent_id", "state", "ordinal", "session_id", "id"],
        unique=False,
    )
    op.create_index(
        "turns_batch",
        "turns",
        ["workspace_id", "batch_id", "state"],
        unique=False,
        sqlite_where=sa.text("batch_id <> ''"),
        postgresql_where=sa.text("batch_id <> ''"),
    )
    op.create_index(
        "turns_due",
        "turns",
        ["due_at"],
        unique=False,
        sqlite_where=sa.text("due_at IS NOT NULL"),
        postgresql_where=sa.text("due_at IS NOT NULL"),
    )
    op.create_index(
        "turns_ended",
        "turns",
        ["workspace_id", "ended_at"],
        unique=False,
        sqlite_where=sa.text("ended_at IS NOT NULL"),
        postgresql_where=sa.text("ended_at IS NOT NULL"),
    )
    op.create_index("turns_root", "turns", ["workspace_id", "root_id", "ordinal"], unique=False)


def _create_debts() -> None:
    op.create_table(
        "debts",
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("turn_id", sa.String(), nullable=False),
        sa.Column("message_id", sa.String(), nullable=False),
        sa.Column("thread_id", sa.String(), nullable=False),
        sa.Column("debtor_id", sa.String(), nullable=False),
        sa.Column("creditor_kind", sa.String(), nullable=False),
        sa.Column("creditor_id", sa.String(), nullable=False),
        sa.Column("creditor_session_id", sa.Text(), server_default="", nullable=False),
        sa.Column("creditor_turn_id", sa.Text(), server_default="", nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("reply_message_id", sa.Text(), server_default="", nullable=False),
        sa.Column("error_code", sa.Text(), server_default="", nullable=False),
        sa.Column("error_message", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("workspace_id", "turn_id"),
    )
    op.create_index(
        "debts_creditor_turn",
        "debts",
        ["workspace_id", "state", "creditor_turn_id"],
        unique=False,
        sqlite_where=sa.text("state = 'open' AND creditor_turn_id <> ''"),
        postgresql_where=sa.text("state = 'open' AND creditor_turn_id <> ''"),
    )
    op.create_index(
        "debts_debtor",
        "debts",
        ["workspace_id", "state", "debtor_id"],
        unique=False,
        sqlite_where=sa.text("state = 'open'"),
        postgresql_where=sa.text("state = 'open'"),
    )


def _create_waits() -> None:
    op.create_table(
        "waits",
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("turn_id", sa.String(), nullable=False),
        sa.Column("instance_id", sa.String(), nullable=False),
        sa.Column("waiter_kind", sa.String(), nullable=False),
        sa.Column("waiter_id", sa.String(), nullable=False),
        sa.Column("waiter_turn_id", sa.Text(), server_default="", nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("workspace_id", "id"),
        sqlite_with_rowid=False,
    )


def _create_attachments() -> None:
    op.create_table(
        "attachments",
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("agent_id", sa.String(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("workspace_id", "agent_id"),
        sqlite_with_rowid=False,
    )


def _create_audit_events() -> None:
    op.create_table(
        "audit_events",
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("action", sa.String(), nullable=False),
        sa.Column("actor_kind", sa.String(), nullable=False),
        sa.Column("actor_id", sa.String(), nullable=False),
        sa.Column("actor_name", sa.Text(), server_default="", nullable=False),
        sa.Column("agent_id", sa.Text(), server_default="", nullable=False),
        sa.Column("thread_id", sa.Text(), server_default="", nullable=False),
        sa.Column("message_id", sa.Text(), server_default="", nullable=False),
        sa.Column("turn_id", sa.Text(), server_default="", nullable=False),
        sa.Column("session_id", sa.Text(), server_default="", nullable=False),
        sa.Column("details", sa.Text(), server_default="", nullable=False),
        sa.Column("trace_id", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("workspace_id", "seq"),
    )
    op.create_index(
        "audit_events_actor",
        "audit_events",
        ["workspace_id", "actor_id", "seq"],
        unique=False,
        sqlite_where=sa.text("actor_id <> agent_id"),
        postgresql_where=sa.text("actor_id <> agent_id"),
    )
    op.create_index("audit_events_agent", "audit_events", ["workspace_id", "agent_id", "seq"], unique=False)


def _create_audit_sources() -> None:
    op.create_table(
        "audit_sources",
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("source"),
    )
