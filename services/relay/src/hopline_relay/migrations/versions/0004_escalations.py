"""Questions of agents to their owners.

Revision ID: 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "escalations",
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("ordinal", sa.BigInteger(), nullable=False),
        sa.Column("agent_id", sa.String(), nullable=False),
        sa.Column("owner_id", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("message_id", sa.String(), nullable=False),
        sa.Column("thread_id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("turn_id", sa.Text(), server_default="", nullable=False),
        sa.Column("attempt", sa.Integer(), server_default="0", nullable=False),
        sa.Column("depth", sa.Integer(), nullable=False),
        sa.Column("root_id", sa.String(), nullable=False),
        sa.Column("traceparent", sa.Text(), server_default="", nullable=False),
        sa.Column("question", sa.Text(), server_default="", nullable=False),
        sa.Column("options", sa.Text(), server_default="", nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("answer", sa.Text(), server_default="", nullable=False),
        sa.Column("answer_message_id", sa.Text(), server_default="", nullable=False),
        sa.Column("ended_by_kind", sa.Text(), server_default="", nullable=False),
        sa.Column("ended_by_id", sa.Text(), server_default="", nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("workspace_id", "id"),
    )
    op.create_index("escalations_agent", "escalations", ["workspace_id", "agent_id", "ordinal"], unique=False)
    _pending_index("escalations_pending", ["workspace_id", "state", "agent_id", "ordinal"])
    _pending_index("escalations_turn", ["workspace_id", "state", "turn_id"])
    _pending_index("escalations_due", ["state", "expires_at"])


def _pending_index(name: str, columns: list[str]) -> None:
    op.create_index(
        name,
        "escalations",
        columns,
        unique=False,
        sqlite_where=sa.text("state = 'pending'"),
        postgresql_where=sa.text("state = 'pending'"),
    )
