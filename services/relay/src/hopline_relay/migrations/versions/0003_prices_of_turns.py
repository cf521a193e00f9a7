"""What turns cost.

Revision ID: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the price of each turn, and the sum of a workspace's."""
    op.add_column("turns", sa.Column("price", sa.BigInteger(), nullable=False, server_default="0"))
    op.create_table(
        "credit_accounts",
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("charged", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("workspace_id"),
    )
