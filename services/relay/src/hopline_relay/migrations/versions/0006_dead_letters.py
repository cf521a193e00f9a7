"""The list of deliveries that the mesh has given up.

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
    """Add the index that the list is read through; it holds only what is in it."""
    op.create_index(
        "deliveries_dead",
        "deliveries",
        ["workspace_id", "state", "ordinal"],
        sqlite_where=sa.text("state = 'dead'"),
        postgresql_where=sa.text("state = 'dead'"),
    )
