"""What agents have sent and received is found by agent and by words.

Revision ID: 0016
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables, and the words in full text; what there is already is put in by the relay."""
    op.create_index("messages_ordinal", "messages", ["workspace_id", "ordinal"])
    op.create_table(
        "exchanges",
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("agent_id", sa.String(), nullable=False),
        sa.Column("ordinal", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("message_id", sa.String(), nullable=False),
        sa.PrimaryKeyConstraint("workspace_id", "agent_id", "ordinal"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "exchange_marks",
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("through", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("workspace_id"),
        sqlite_with_rowid=False,
    )
    if op.get_bind().dialect.name == "sqlite":
        op.execute(
            "CREATE VIRTUAL TABLE message_words USING fts5("
            "workspace UNINDEXED, ordinal UNINDEXED, message UNINDEXED, place, words,"
            " tokenize='unicode61 remove_diacritics 2')"
        )
    else:
        op.execute(
            "CREATE INDEX messages_words ON messages USING gin"
            " (to_tsvector('simple', subject || ' ' || body))"
        )
