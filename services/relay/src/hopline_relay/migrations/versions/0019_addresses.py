"""Where relays that share a record reach each other.

Revision ID: 0019
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; a relay that lives fills it in by itself."""
    op.add_column("instances", sa.Column("address", sa.Text(), nullable=False, server_default=""))
