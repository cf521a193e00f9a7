"""The registry's tables. Every key begins with the workspace, but for what belongs to the whole mesh."""

from __future__ import annotations

from typing import Final

from hopline_store.secret import secrets_table
from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
)

metadata: Final = MetaData()

workspaces: Final = Table(
    "workspaces",
    metadata,
    Column("workspace_id", Text, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("created_at", Float, nullable=False),
)

policies: Final = Table(
    "policies",
    metadata,
    Column("workspace_id", Text, primary_key=True),
    Column("keys", JSON, nullable=False),
)

users: Final = Table(
    "users",
    metadata,
    Column("workspace_id", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("name", Text, nullable=False),
    # Where the person hears of what their agents ask, and what signs it; empty for none.
    Column("webhook_url", Text, nullable=False, server_default=""),
    Column("webhook_secret", Text, nullable=False, server_default=""),
    # Whom the identity provider knows them as; null for nobody, since each is linked once.
    Column("login", Text, nullable=True),
    Column("created_at", Float, nullable=False),
    PrimaryKeyConstraint("workspace_id", "id"),
    UniqueConstraint("workspace_id", "name"),
    Index("users_by_login", "workspace_id", "login", unique=True),
)

roles: Final = Table(
    "roles",
    metadata,
    Column("workspace_id", Text, nullable=False),
    Column("user_id", Text, nullable=False),
    # Empty: the whole workspace.
    Column("agent_id", Text, nullable=False),
    Column("role", Integer, nullable=False),
    PrimaryKeyConstraint("workspace_id", "user_id", "agent_id"),
)

agents: Final = Table(
    "agents",
    metadata,
    Column("workspace_id", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("slug", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("owner_id", Text, nullable=False),
    Column("description", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("is_subagent", Boolean, nullable=False),
    Column("parent_agent_id", Text, nullable=False),
    Column("is_group_only_callable", Boolean, nullable=False),
    Column("reply_mode", Text, nullable=False),
    Column("soul", Text, nullable=False),
    Column("instructions", Text, nullable=False),
    Column("model_id", Text, nullable=False),
    Column("thinking_level", Text, nullable=False),
    Column("runtime", Text, nullable=False),
    Column("wake", Text, nullable=False),
    Column("webhook_url", Text, nullable=False),
    Column("reach", JSON, nullable=False),
    Column("tools", JSON, nullable=False),
    Column("labels", JSON, nullable=False),
    Column("is_default", Boolean, nullable=False),
    Column("plugin_id", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("server_tools", JSON, nullable=False),
    Column("created_at", Float, nullable=False),
    # A deleted agent stays, so that its threads can be read and its slug is not given away.
    Column("deleted_at", Float, nullable=True),
    # What the slug looks like (`domain/names.py`), and the names before this one as [name, until].
    Column("slug_look", Text, nullable=False, server_default=""),
    Column("former_names", JSON, nullable=False, server_default="[]"),
    Column("connections", JSON, nullable=False, server_default="[]"),
    # Signs what is sent to `webhook_url`. Read by whoever sends, and in no definition.
    Column("webhook_secret", Text, nullable=False, server_default=""),
    # The crew of its owner that it is a member of; empty for none.
    Column("crew", Text, nullable=False, server_default=""),
    # Made by its plugin's installation, and nobody has said yet what it is.
    Column("awaits_definition", Boolean, nullable=False, server_default=false()),
    PrimaryKeyConstraint("workspace_id", "id"),
    UniqueConstraint("workspace_id", "slug"),
    Index("agents_by_name", "workspace_id", "name"),
    Index("agents_by_look", "workspace_id", "slug_look"),
    Index("agents_by_parent", "workspace_id", "parent_agent_id"),
    Index("agents_by_key", "workspace_id", "key"),
    Index("agents_by_scope", "workspace_id", "plugin_id", "crew", "owner_id"),
)

models: Final = Table(
    "models",
    metadata,
    Column("workspace_id", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("model_identifier", Text, nullable=False),
    Column("display_name", Text, nullable=False),
    # Decimal numbers as text: what they are must not depend on how a database counts. Null: unknown.
    Column("input_usd_per_1m", Text, nullable=True),
    Column("output_usd_per_1m", Text, nullable=True),
    Column("cached_usd_per_1m", Text, nullable=True),
    Column("is_default", Boolean, nullable=False),
    Column("created_at", Float, nullable=False),
    PrimaryKeyConstraint("workspace_id", "id"),
    UniqueConstraint("workspace_id", "model_identifier"),
)

# A plugin that was uninstalled stays while slugs of its agents are reserved.
plugins: Final = Table(
    "plugins",
    metadata,
    Column("workspace_id", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("key", Text, nullable=False),
    # The manifest in force and the one that waits, as JSON of the contract's message.
    Column("manifest", JSON, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("waiting", JSON(none_as_null=True), nullable=True),
    Column("waiting_revision", BigInteger, nullable=False),
    Column("is_confirmed", Boolean, nullable=False),
    Column("installed_by", Text, nullable=False),
    Column("installed_at", Float, nullable=False),
    # By which the mesh proves itself to the plugin's endpoint. Read by whoever calls it, and in no view.
    Column("endpoint_secret", Text, nullable=False),
    Column("uninstalled_at", Float, nullable=True),
    PrimaryKeyConstraint("workspace_id", "id"),
    Index(
        "plugins_by_key",
        "workspace_id",
        "key",
        unique=True,
        sqlite_where=text("uninstalled_at IS NULL"),
        postgresql_where=text("uninstalled_at IS NULL"),
    ),
)

tokens: Final = Table(
    "tokens",
    metadata,
    # Empty for services, which belong to the mesh.
    Column("workspace_id", Text, nullable=False),
    Column("id", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("subject_id", Text, nullable=False),
    Column("name", Text, nullable=False),
    # The start of the hash finds the row, the whole of it is compared in constant time.
    Column("lookup", Text, nullable=False, index=True),
    Column("hash", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float, nullable=True),
    Column("revoked_at", Float, nullable=True),
    Column("installation", Boolean, nullable=False),
    PrimaryKeyConstraint("workspace_id", "id"),
    Index("tokens_by_subject", "workspace_id", "kind", "subject_id"),
)

signing_keys: Final = Table(
    "signing_keys",
    metadata,
    Column("kid", Text, primary_key=True),
    Column("private", LargeBinary, nullable=False),
    Column("public", LargeBinary, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("signs_from", Float, nullable=False),
)

requests: Final = Table(
    "requests",
    metadata,
    Column("workspace_id", Text, nullable=False),
    Column("principal_id", Text, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("result_id", Text, nullable=False),
    Column("created_at", Float, nullable=False, index=True),
    PrimaryKeyConstraint("workspace_id", "principal_id", "request_id"),
)

# One row: the number of the newest change.
feed: Final = Table(
    "feed",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("head", BigInteger, nullable=False),
)

changes: Final = Table(
    "changes",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("workspace_id", Text, nullable=False),
    Column("at", Float, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

# What the registries on one database share, and nobody else knows.
secrets: Final = secrets_table(metadata)
