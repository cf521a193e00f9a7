"""Plugins: what they were handed, and what they are still to be told of.

Revision ID: 0010
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "plugin_handed",
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("plugin_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.Column("until", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("workspace_id", "plugin_id", "kind", "value"),
        sqlite_with_rowid=False,
    )
    op.create_index("plugin_handed_until", "plugin_handed", ["until"], unique=False)
    op.create_table(
        "plugin_events",
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("plugin_id", sa.String(), nullable=False),
        sa.Column("ordinal", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), server_default="", nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("problem", sa.Text(), server_default="", nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("due_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("workspace_id", "plugin_id", "ordinal"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "plugin_revisions",
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("plugin_id", sa.String(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("workspace_id", "plugin_id"),
        sqlite_with_rowid=False,
    )
