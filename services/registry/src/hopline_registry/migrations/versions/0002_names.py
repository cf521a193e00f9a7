"""What a slug looks like, and the names that agents had before.

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
    """Add them; slugs that there are keep their place, also where two look alike."""
    op.add_column("agents", sa.Column("slug_look", sa.Text, nullable=False, server_default=""))
    op.add_column("agents", sa.Column("former_names", sa.JSON, nullable=False, server_default="[]"))
    agents = sa.table(
        "agents", sa.column("workspace_id"), sa.column("id"), sa.column("slug"), sa.column("slug_look")
    )
    connection = op.get_bind()
    for row in connection.execute(sa.select(agents.c.workspace_id, agents.c.id, agents.c.slug)).all():
        connection.execute(
            sa.update(agents)
            .where(agents.c.workspace_id == row.workspace_id, agents.c.id == row.id)
            .values(slug_look=_look(row.slug))
        )
    op.create_index("agents_by_look", "agents", ["workspace_id", "slug_look"])


def _look(slug: str) -> str:
    for alike, one in (("0", "o"), ("1", "l"), ("i", "l"), ("rn", "m"), ("vv", "w")):
        slug = slug.replace(alike, one)
    return slug
