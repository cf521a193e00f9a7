"""Where people hear of what their agents ask them.

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
    """Add the address and the secret; nobody has one."""
    op.add_column("users", sa.Column("webhook_url", sa.Text, nullable=False, server_default=""))
    op.add_column("users", sa.Column("webhook_secret", sa.Text, nullable=False, server_default=""))
