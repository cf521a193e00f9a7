"""What people granted roots.

Revision ID: 0005
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "roots",
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("agent_id", sa.String(), nullable=False),
        sa.Column("extra_turns", sa.Integer(), nullable=False),
        sa.Column("exhausted_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("workspace_id", "id"),
    )
    op.create_index(
        "roots_exhausted",
        "roots",
        ["workspace_id", "exhausted_at", "id"],
        sqlite_where=sa.text("exhausted_at IS NOT NULL"),
        postgresql_where=sa.text("exhausted_at IS NOT NULL"),
    )
