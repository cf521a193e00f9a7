"""Todos and timers: what sessions have left to themselves, and when it is looked at.

Revision ID: 0011
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables, and what sessions say of their todos."""
    op.add_column("sessions", sa.Column("todos", sa.Boolean(), server_default=sa.text("0"), nullable=False))
    op.add_column("sessions", sa.Column("todos_due_at", sa.Float(), nullable=True))
    op.add_column("sessions", sa.Column("todos_turn_id", sa.Text(), server_default="", nullable=False))
    _index("sessions_todos_due", "sessions", ["todos_due_at"], "todos_due_at IS NOT NULL")
    op.create_table(
        "todos",
        *_noted(),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("batch_id", sa.String(), nullable=False),
        sa.Column("snoozed_until", sa.Float(), nullable=True),
        sa.Column("snoozed_at", sa.Float(), nullable=True),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("workspace_id", "id"),
    )
    op.create_index("todos_session", "todos", ["workspace_id", "session_id", "ordinal"])
    _index("todos_snoozed", "todos", ["snoozed_until"], "snoozed_until IS NOT NULL")
    _index("todos_ended", "todos", ["workspace_id", "ended_at"], "ended_at IS NOT NULL")
    op.create_table(
        "todo_lists",
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("agent_id", sa.String(), nullable=False),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("wakes", sa.Integer(), server_default="0", nullable=False),
        sa.Column("wake_turn_id", sa.Text(), server_default="", nullable=False),
        sa.Column("seen_turn_id", sa.Text(), server_default="", nullable=False),
        sa.Column("asleep_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("workspace_id", "session_id"),
        sqlite_with_rowid=False,
    )
    op.create_index("todo_lists_agent", "todo_lists", ["workspace_id", "agent_id"])
    op.create_table(
        "timers",
        *_noted(),
        sa.Column("fires_at", sa.Float(), nullable=False),
        sa.Column("due_at", sa.Float(), nullable=False),
        sa.Column("set_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("workspace_id", "id"),
    )
    op.create_index("timers_session", "timers", ["workspace_id", "session_id", "fires_at", "id"])
    op.create_index("timers_agent", "timers", ["workspace_id", "agent_id"])
    op.create_index("timers_due", "timers", ["due_at", "workspace_id", "id"])


def _noted() -> list[sa.Column[Any]]:
    """Return the columns that both have: what was noted, and where."""
    return [
        sa.Column("workspace_id", sa.String(), nullable=False),
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("ordinal", sa.BigInteger(), nullable=False),
        sa.Column("session_id", sa.String(), nullable=False),
        sa.Column("agent_id", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), server_default="", nullable=False),
        sa.Column("turn_id", sa.Text(), server_default="", nullable=False),
        sa.Column("depth", sa.Integer(), nullable=False),
        sa.Column("root_id", sa.String(), nullable=False),
        sa.Column("traceparent", sa.Text(), server_default="", nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
    ]


def _index(name: str, table: str, columns: list[str], where: str) -> None:
    condition = sa.text(where)
    op.create_index(name, table, columns, sqlite_where=condition, postgresql_where=condition)
