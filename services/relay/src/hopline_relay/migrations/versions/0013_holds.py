"""Answers to people that are held, with their newest drafts.

Revision ID: 0013
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table; no answer of before was held."""
    op.create_table(
        "holds",
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("turn_id", sa.String(), nullable=False),
        sa.Column("ordinal", sa.BigInteger(), nullable=False),
        sa.Column("agent_id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("seat_id", sa.String(), nullable=False),
        sa.Column("root_id", sa.String(), nullable=False),
        sa.Column("message_id", sa.String(), nullable=False),
        sa.Column("thread_id", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), server_default="", nullable=False),
        sa.Column("wake_turn_id", sa.Text(), server_default="", nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("written_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("workspace_id", "turn_id"),
    )
    for name, column in (("agent", "agent_id"), ("session", "session_id"), ("seat", "seat_id")):
        op.create_index(f"holds_{name}", "holds", ["workspace_id", column, "ordinal"], unique=False)
