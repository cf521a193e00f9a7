"""Schedules, incoming webhooks, and a way from a session to those that it has opened.

Revision ID: 0008
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables and the index."""
    _schedules()
    _webhooks()
    opened = sa.text("opened_by_session_id <> ''")
    op.create_index(
        "sessions_opened",
        "sessions",
        ["workspace_id", "opened_by_session_id", "ordinal"],
        unique=False,
        sqlite_where=opened,
        postgresql_where=opened,
    )


def _schedules() -> None:
    op.create_table(
        "schedules",
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("ordinal", sa.BigInteger(), nullable=False),
        sa.Column("agent_id", sa.String(), nullable=False),
        sa.Column("author_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("cron", sa.String(), nullable=False),
        sa.Column("timezone", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), server_default="", nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("due_at", sa.Float(), nullable=True),
        sa.Column("set_at", sa.Float(), nullable=False),
        sa.Column("fired", sa.BigInteger(), nullable=False),
        sa.Column("skipped", sa.BigInteger(), nullable=False),
        sa.Column("fired_at", sa.Float(), nullable=True),
        sa.Column("turn_id", sa.Text(), server_default="", nullable=False),
        sa.Column("session_id", sa.Text(), server_default="", nullable=False),
        sa.Column("problem_code", sa.Text(), server_default="", nullable=False),
        sa.Column("problem_message", sa.Text(), server_default="", nullable=False),
        sa.Column("problem_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("workspace_id", "id"),
    )
    op.create_index("schedules_agent", "schedules", ["workspace_id", "agent_id", "ordinal"], unique=False)
    due = sa.text("due_at IS NOT NULL")
    op.create_index(
        "schedules_due", "schedules", ["due_at"], unique=False, sqlite_where=due, postgresql_where=due
    )


def _webhooks() -> None:
    op.create_table(
        "incoming_webhooks",
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("agent_id", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("ordinal", sa.BigInteger(), nullable=False),
        sa.Column("author_id", sa.String(), nullable=False),
        sa.Column("secret", sa.Text(), server_default="", nullable=False),
        sa.Column("old_secret", sa.Text(), server_default="", nullable=False),
        sa.Column("old_until", sa.Float(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("rotated_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("workspace_id", "agent_id", "name"),
    )
    op.create_index("incoming_webhooks_id", "incoming_webhooks", ["workspace_id", "id"], unique=True)
    op.create_index(
        "incoming_webhooks_agent",
        "incoming_webhooks",
        ["workspace_id", "agent_id", "ordinal"],
        unique=False,
    )
