"""The first tables.

Revision ID: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create them."""
    _create_people()
    _create_agents()
    _create_credentials()
    _create_feed()
    op.create_index("agents_by_name", "agents", ["workspace_id", "name"])
    op.create_index("agents_by_parent", "agents", ["workspace_id", "parent_agent_id"])
    op.create_index("ix_tokens_lookup", "tokens", ["lookup"])
    op.create_index("tokens_by_subject", "tokens", ["workspace_id", "kind", "subject_id"])
    op.create_index("ix_requests_created_at", "requests", ["created_at"])
    op.execute("INSERT INTO feed (id, head) VALUES (1, 0)")


def _create_people() -> None:
    op.create_table(
        "workspaces",
        sa.Column("workspace_id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False, unique=True),
        sa.Column("created_at", sa.Float, nullable=False),
    )
    op.create_table(
        "policies",
        sa.Column("workspace_id", sa.Text, primary_key=True),
        sa.Column("keys", sa.JSON, nullable=False),
    )
    op.create_table(
        "users",
        sa.Column("workspace_id", sa.Text, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("workspace_id", "id"),
        sa.UniqueConstraint("workspace_id", "name"),
    )
    op.create_table(
        "roles",
        sa.Column("workspace_id", sa.Text, nullable=False),
        sa.Column("user_id", sa.Text, nullable=False),
        sa.Column("agent_id", sa.Text, nullable=False),
        sa.Column("role", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("workspace_id", "user_id", "agent_id"),
    )


def _create_agents() -> None:
    op.create_table(
        "agents",
        sa.Column("workspace_id", sa.Text, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("slug", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("owner_id", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("is_subagent", sa.Boolean, nullable=False),
        sa.Column("parent_agent_id", sa.Text, nullable=False),
        sa.Column("is_group_only_callable", sa.Boolean, nullable=False),
        sa.Column("reply_mode", sa.Text, nullable=False),
        sa.Column("soul", sa.Text, nullable=False),
        sa.Column("instructions", sa.Text, nullable=False),
        sa.Column("model_id", sa.Text, nullable=False),
        sa.Column("thinking_level", sa.Text, nullable=False),
        sa.Column("runtime", sa.Text, nullable=False),
        sa.Column("wake", sa.Text, nullable=False),
        sa.Column("webhook_url", sa.Text, nullable=False),
        sa.Column("reach", sa.JSON, nullable=False),
        sa.Column("tools", sa.JSON, nullable=False),
        sa.Column("labels", sa.JSON, nullable=False),
        sa.Column("is_default", sa.Boolean, nullable=False),
        sa.Column("plugin_id", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("server_tools", sa.JSON, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("deleted_at", sa.Float, nullable=True),
        sa.PrimaryKeyConstraint("workspace_id", "id"),
        sa.UniqueConstraint("workspace_id", "slug"),
    )


def _create_credentials() -> None:
    op.create_table(
        "tokens",
        sa.Column("workspace_id", sa.Text, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("subject_id", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("lookup", sa.Text, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("expires_at", sa.Float, nullable=True),
        sa.Column("revoked_at", sa.Float, nullable=True),
        sa.Column("installation", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("workspace_id", "id"),
    )
    op.create_table(
        "signing_keys",
        sa.Column("kid", sa.Text, primary_key=True),
        sa.Column("private", sa.LargeBinary, nullable=False),
        sa.Column("public", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.Column("signs_from", sa.Float, nullable=False),
    )


def _create_feed() -> None:
    op.create_table(
        "requests",
        sa.Column("workspace_id", sa.Text, nullable=False),
        sa.Column("principal_id", sa.Text, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("result_id", sa.Text, nullable=False),
        sa.Column("created_at", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("workspace_id", "principal_id", "request_id"),
    )
    op.create_table(
        "feed",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("head", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "changes",
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("workspace_id", sa.Text, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )


def downgrade() -> None:
    """Drop them."""
    for table in (
        "changes",
        "feed",
        "requests",
        "signing_keys",
        "tokens",
        "agents",
        "roles",
        "users",
        "policies",
        "workspaces",
    ):
        op.drop_table(table)
