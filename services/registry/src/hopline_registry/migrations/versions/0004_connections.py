"""Other agents under names of an agent's own.

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
    """Add them; no agent has one."""
    op.add_column("agents", sa.Column("connections", sa.JSON, nullable=False, server_default="[]"))
