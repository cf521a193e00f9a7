"""Todos and timers know how many reactions of plugins they are away from what began it.

Revision ID: 0015
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    for table in ("todos", "timers"):
        column = sa.Column("hook_generation", sa.Integer(), server_default="0", nullable=False)
        op.add_column(table, column)
