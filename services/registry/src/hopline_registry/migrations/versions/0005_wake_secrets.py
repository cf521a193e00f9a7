"""The secrets that sign what wakes agents.

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
    """Add the secret; nobody has one."""
    op.add_column("agents", sa.Column("webhook_secret", sa.Text, nullable=False, server_default=""))
