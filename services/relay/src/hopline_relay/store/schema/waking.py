"""What gives sessions turns by itself: schedules, todos, timers, incoming webhooks."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Float, Index, Integer, Table, text

from hopline_relay.store.schema.columns import id_column, key_column, metadata, number_column, text_column

# What agents are told at the times of a cron expression. `state`: `active`, `paused` or `stopped`.
schedules = Table(
    "schedules",
    metadata,
    key_column("workspace_id"),
    key_column("id"),
    Column("ordinal", BigInteger, nullable=False),
    id_column("agent_id"),
    # In whose name it fires.
    id_column("author_id"),
    id_column("name"),
    id_column("cron"),
    id_column("timezone"),
    text_column("body"),
    id_column("state"),
    Column("created_at", Float, nullable=False),
    # Its next time, while it is active; the transaction that writes the turn moves it on. And what the clock
    # said when it was worked out.
    Column("due_at", Float),
    Column("set_at", Float, nullable=False),
    Column("fired", BigInteger, nullable=False),
    Column("skipped", BigInteger, nullable=False),
    # Of the last firing.
    Column("fired_at", Float),
    text_column("turn_id"),
    text_column("session_id"),
    # Why the last time was skipped, if it was.
    text_column("problem_code"),
    text_column("problem_message"),
    Column("problem_at", Float),
    Index("schedules_agent", "workspace_id", "agent_id", "ordinal"),
    Index(
        "schedules_due",
        "due_at",
        sqlite_where=text("due_at IS NOT NULL"),
        postgresql_where=text("due_at IS NOT NULL"),
    ),
)

# What sessions have left to do, as their agents noted it. `state`: `open`, `done` or `dropped`.
todos = Table(
    "todos",
    metadata,
    key_column("workspace_id"),
    key_column("id"),
    Column("ordinal", BigInteger, nullable=False),
    id_column("session_id"),
    id_column("agent_id"),
    text_column("body"),
    id_column("state"),
    # The first of those that one call has noted.
    id_column("batch_id"),
    # Where it was noted: wakes for it run there.
    text_column("turn_id"),
    Column("depth", Integer, nullable=False),
    id_column("root_id"),
    text_column("traceparent"),
    number_column("hook_generation"),
    Column("created_at", Float, nullable=False),
    # While it rests: until when, and what the clock said when that was worked out.
    Column("snoozed_until", Float),
    Column("snoozed_at", Float),
    Column("ended_at", Float),
    Index("todos_session", "workspace_id", "session_id", "ordinal"),
    Index(
        "todos_snoozed",
        "snoozed_until",
        sqlite_where=text("snoozed_until IS NOT NULL"),
        postgresql_where=text("snoozed_until IS NOT NULL"),
    ),
    Index(
        "todos_ended",
        "workspace_id",
        "ended_at",
        sqlite_where=text("ended_at IS NOT NULL"),
        postgresql_where=text("ended_at IS NOT NULL"),
    ),
)

# Whether the open todos of a session wake it: a row while there are some. `reason`: why they sleep; empty
# while they are awake.
todo_lists = Table(
    "todo_lists",
    metadata,
    key_column("workspace_id"),
    key_column("session_id"),
    id_column("agent_id"),
    text_column("reason"),
    # How many wakes in a row nothing has come of, the turn of the last one, and the last turn of the session
    # that was taken note of.
    number_column("wakes"),
    text_column("wake_turn_id"),
    text_column("seen_turn_id"),
    Column("asleep_at", Float),
    Index("todo_lists_agent", "workspace_id", "agent_id"),
    sqlite_with_rowid=False,
)

# What sessions wake themselves with; the transaction that writes the wake takes the row off.
timers = Table(
    "timers",
    metadata,
    key_column("workspace_id"),
    key_column("id"),
    Column("ordinal", BigInteger, nullable=False),
    id_column("session_id"),
    id_column("agent_id"),
    text_column("body"),
    text_column("turn_id"),
    Column("depth", Integer, nullable=False),
    id_column("root_id"),
    text_column("traceparent"),
    number_column("hook_generation"),
    Column("created_at", Float, nullable=False),
    # For when it was set; when it is looked at (later, where it was put off), and what the clock said when
    # that was worked out.
    Column("fires_at", Float, nullable=False),
    Column("due_at", Float, nullable=False),
    Column("set_at", Float, nullable=False),
    Index("timers_session", "workspace_id", "session_id", "fires_at", "id"),
    Index("timers_agent", "workspace_id", "agent_id"),
    Index("timers_due", "due_at", "workspace_id", "id"),
)

# Where agents are given turns from outside. Signatures are made with the secrets, so that they stand as they
# are; the one before is valid until `old_until`.
incoming_webhooks = Table(
    "incoming_webhooks",
    metadata,
    key_column("workspace_id"),
    key_column("agent_id"),
    key_column("name"),
    id_column("id"),
    Column("ordinal", BigInteger, nullable=False),
    # In whose name it works.
    id_column("author_id"),
    text_column("secret"),
    text_column("old_secret"),
    Column("old_until", Float),
    Column("created_at", Float, nullable=False),
    Column("rotated_at", Float),
    Index("incoming_webhooks_id", "workspace_id", "id", unique=True),
    Index("incoming_webhooks_agent", "workspace_id", "agent_id", "ordinal"),
)
