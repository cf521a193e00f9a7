"""Which crew an agent is a member of, and the workspaces' catalogues of models.

Revision ID: 0007
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the crew, by which nobody is found yet, and the catalogue, which is empty."""
    op.add_column("agents", sa.Column("crew", sa.Text, nullable=False, server_default=""))
    op.create_index("agents_by_key", "agents", ["workspace_id", "key"])
    op.create_table(
        "models",
        sa.Column("workspace_id", sa.Text, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("model_identifier", sa.Text, nullable=False),
        sa.Column("display_name", sa.Text, nullable=False),
        sa.Column("input_usd_per_1m", sa.Text, nullable=True),
        sa.Column("output_usd_per_1m", sa.Text, nullable=True),
        sa.Column("cached_usd_per_1m", sa.Text, nullable=True),
        sa.Column("is_default", sa.Boolean, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("workspace_id", "id"),
        sa.UniqueConstraint("workspace_id", "model_identifier"),
    )
