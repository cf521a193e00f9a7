"""Plugins, and the agents that their installations make.

Revision ID: 0006
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add them; there are none."""
    op.add_column(
        "agents", sa.Column("awaits_definition", sa.Boolean, nullable=False, server_default=sa.false())
    )
    op.create_table(
        "plugins",
        sa.Column("workspace_id", sa.Text, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("manifest", sa.JSON, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("waiting", sa.JSON, nullable=True),
        sa.Column("waiting_revision", sa.BigInteger, nullable=False),
        sa.Column("is_confirmed", sa.Boolean, nullable=False),
        sa.Column("installed_by", sa.Text, nullable=False),
        sa.Column("installed_at", sa.Float, nullable=False),
        sa.Column("endpoint_secret", sa.Text, nullable=False),
        sa.Column("uninstalled_at", sa.Float, nullable=True),
        sa.PrimaryKeyConstraint("workspace_id", "id"),
    )
    op.create_index(
        "plugins_by_key",
        "plugins",
        ["workspace_id", "key"],
        unique=True,
        sqlite_where=sa.text("uninstalled_at IS NULL"),
        postgresql_where=sa.text("uninstalled_at IS NULL"),
    )
