"""An index for the agents of a crew, and of a plugin.

Revision ID: 0008
"""

from __future__ import annotations

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add it: crews are looked up inside the one transaction that writes."""
    op.create_index("agents_by_scope", "agents", ["workspace_id", "plugin_id", "crew", "owner_id"])
