"""What hooks have made of messages: for single recipients, and for requests that became none.

Revision ID: 0014
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    op.add_column("deliveries", sa.Column("shaped", sa.Text(), nullable=True))
    op.add_column("requests", sa.Column("kept", sa.Text(), nullable=True))
