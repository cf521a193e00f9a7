"""On PostgreSQL the words of messages stand in a table of their own, which no send waits for.

Revision ID: 0017
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import TSVECTOR

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table; what there is already is put in again by the relay. SQLite has such a table."""
    if op.get_bind().dialect.name == "sqlite":
        return
    op.drop_index("messages_words", "messages")
    op.create_table(
        "message_words",
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("message_id", sa.String(), nullable=False),
        sa.Column("ordinal", sa.BigInteger(), nullable=False),
        sa.Column("words", TSVECTOR(), nullable=False),
        sa.PrimaryKeyConstraint("workspace_id", "message_id"),
    )
    op.create_index("message_words_words", "message_words", ["words"], postgresql_using="gin")
    op.execute("DELETE FROM exchanges")
    op.execute("DELETE FROM exchange_marks")
