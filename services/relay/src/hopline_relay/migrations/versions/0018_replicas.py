"""What relays that share a record know of each other: who lives, and whose tunnels are where.

Revision ID: 0018
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add what a relay says of itself, and the tables that several fill."""
    op.add_column("instances", sa.Column("seen_at", sa.Float(), nullable=True))
    op.add_column("instances", sa.Column("tunnels", sa.BigInteger(), nullable=False, server_default="0"))
    op.create_table(
        "open_tunnels",
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("agent_id", sa.String(), nullable=False),
        sa.Column("instance_id", sa.String(), nullable=False),
        sa.Column("places", sa.Integer(), nullable=False),
        sa.Column("held", sa.Integer(), nullable=False),
        sa.Column("isolation", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("workspace_id", "agent_id", "instance_id"),
    )
    op.create_table(
        "secrets",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("value", sa.LargeBinary, nullable=False),
    )
