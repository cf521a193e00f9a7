"""What is asked of people and posted to them."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, Index, Integer, LargeBinary, Table, text

from hopline_relay.store.schema.columns import id_column, key_column, metadata, number_column, text_column

# Questions of agents to their owners. `state`: `pending`, `answered`, `expired` or `withdrawn`. Question and
# answer are messages of a thread as well.
escalations = Table(
    "escalations",
    metadata,
    key_column("workspace_id"),
    key_column("id"),
    Column("ordinal", BigInteger, nullable=False),
    id_column("agent_id"),
    id_column("owner_id"),
    id_column("state"),
    id_column("message_id"),
    id_column("thread_id"),
    # From where it was asked: into this session the answer comes.
    id_column("session_id"),
    # The turn that asked (of a pull the one that stands for all of it), and which attempt of it.
    text_column("turn_id"),
    number_column("attempt"),
    Column("depth", Integer, nullable=False),
    id_column("root_id"),
    text_column("traceparent"),
    text_column("question"),
    # JSON.
    text_column("options"),
    # Of question and options: who asks the same again means this one.
    Column("digest", LargeBinary, nullable=False),
    text_column("answer"),
    text_column("answer_message_id"),
    text_column("ended_by_kind"),
    text_column("ended_by_id"),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
    Column("ended_at", Float),
    Index("escalations_agent", "workspace_id", "agent_id", "ordinal"),
    Index(
        "escalations_pending",
        "workspace_id",
        "state",
        "agent_id",
        "ordinal",
        sqlite_where=text("state = 'pending'"),
        postgresql_where=text("state = 'pending'"),
    ),
    Index(
        "escalations_turn",
        "workspace_id",
        "state",
        "turn_id",
        sqlite_where=text("state = 'pending'"),
        postgresql_where=text("state = 'pending'"),
    ),
    Index(
        "escalations_due",
        "state",
        "expires_at",
        sqlite_where=text("state = 'pending'"),
        postgresql_where=text("state = 'pending'"),
    ),
)

# What is still to be posted under a signature: a row goes once it was taken, or given up. `kind`:
# `escalation`, `root`, `wake_failed`, `hook` or `todos_asleep` to an owner, `wake` to what starts an agent's
# worker. An agent has one wake, which stays while it has work and no tunnel; given up, it has an `ended_at`
# and is due no more.
posts = Table(
    "posts",
    metadata,
    key_column("workspace_id"),
    key_column("id"),
    id_column("kind"),
    # The question, the root, the agent, the session.
    id_column("subject_id"),
    # The owner, or the agent that is woken.
    id_column("recipient_id"),
    number_column("attempts"),
    # Why the last attempt was not taken.
    text_column("problem"),
    Column("due_at", Float),
    Column("ended_at", Float),
    Index(
        "posts_due",
        "due_at",
        sqlite_where=text("due_at IS NOT NULL"),
        postgresql_where=text("due_at IS NOT NULL"),
    ),
    Index(
        "posts_wake",
        "workspace_id",
        "kind",
        "subject_id",
        unique=True,
        sqlite_where=text("kind = 'wake'"),
        postgresql_where=text("kind = 'wake'"),
    ),
)
