"""Whom an identity provider knows people as.

Revision ID: 0009
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column, empty for everybody; two people of a workspace are never the same one."""
    op.add_column("users", sa.Column("login", sa.Text, nullable=True))
    op.create_index("users_by_login", "users", ["workspace_id", "login"], unique=True)
