"""The seals of the audit log, and where it begins once older events are deleted.

Revision ID: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create them; what the log holds already is sealed by and by."""
    op.create_table(
        "audit_seals",
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("first_seq", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("last_seq", sa.BigInteger(), nullable=False),
        sa.Column("link", sa.LargeBinary(), nullable=False),
        sa.Column("links", sa.LargeBinary(), nullable=False),
        sa.Column("sealed_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("workspace_id", "first_seq"),
    )
    op.create_table(
        "audit_cuts",
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("link", sa.LargeBinary(), nullable=False),
        sa.Column("cut_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("workspace_id"),
    )
