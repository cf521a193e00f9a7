"""One outbox for everything that is posted: what owners are told, and what wakes agents.

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
    """Create the table; what owners were still to be told goes over into it."""
    op.create_table(
        "posts",
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("subject_id", sa.String(), nullable=False),
        sa.Column("recipient_id", sa.String(), nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("problem", sa.Text(), server_default="", nullable=False),
        sa.Column("due_at", sa.Float(), nullable=True),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("workspace_id", "id"),
    )
    due, wake = sa.text("due_at IS NOT NULL"), sa.text("kind = 'wake'")
    op.create_index("posts_due", "posts", ["due_at"], unique=False, sqlite_where=due, postgresql_where=due)
    op.create_index(
        "posts_wake",
        "posts",
        ["workspace_id", "kind", "subject_id"],
        unique=True,
        sqlite_where=wake,
        postgresql_where=wake,
    )
    op.execute(
        "INSERT INTO posts (workspace_id, id, kind, subject_id, recipient_id, attempts, due_at)"
        " SELECT workspace_id, id, 'escalation', escalation_id, owner_id, attempts, due_at FROM notices"
    )
    op.drop_table("notices")
