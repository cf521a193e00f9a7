"""Children of sessions, what agents write as they go, and how many starts of subagents lead to a turn.

Revision ID: 0012
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables; nothing of before was a child, or led from one."""
    op.create_table(
        "children",
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("agent_id", sa.String(), nullable=False),
        sa.Column("parent_session_id", sa.String(), nullable=False),
        sa.Column("parent_agent_id", sa.String(), nullable=False),
        sa.Column("message_id", sa.String(), nullable=False),
        sa.Column("turn_id", sa.String(), nullable=False),
        sa.Column("root_id", sa.String(), nullable=False),
        sa.Column("links", sa.Integer(), nullable=False),
        sa.Column("fire_and_forget", sa.Boolean(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("workspace_id", "session_id"),
    )
    live, closing = sa.text("state = 'live'"), sa.text("state = 'closing'")
    op.create_index(
        "children_live",
        "children",
        ["workspace_id", "state", "parent_session_id"],
        unique=False,
        sqlite_where=live,
        postgresql_where=live,
    )
    op.create_index(
        "children_closing",
        "children",
        ["workspace_id", "state"],
        unique=False,
        sqlite_where=closing,
        postgresql_where=closing,
    )
    op.create_index("children_turn", "children", ["workspace_id", "turn_id"], unique=False)
    op.create_table(
        "outputs",
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("turn_id", sa.String(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("body", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("workspace_id", "turn_id"),
    )
    op.add_column("turns", sa.Column("subagent_links", sa.Integer(), server_default="0", nullable=False))
    op.add_column("messages", sa.Column("owed", sa.Boolean(), server_default=sa.text("0"), nullable=False))
