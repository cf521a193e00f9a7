"""Sessions, the turns that run in them, and what these owe, write and wait for."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Float, Index, Integer, Table, text

from hopline_relay.store.schema.columns import id_column, key_column, metadata, number_column, text_column

sessions = Table(
    "sessions",
    metadata,
    key_column("workspace_id"),
    key_column("id"),
    id_column("agent_id"),
    id_column("title"),
    # `relay`, `mcp`, `human`, `schedule` or `webhook`.
    id_column("channel"),
    # The agent and for whom it is, `B/A`, and which of theirs: `From A`, `From A (2)`; 0 for a session that
    # is asked for by its id.
    text_column("pair"),
    number_column("number"),
    # True once closed.
    Column("closed", Boolean, nullable=False),
    # The turn that runs in it, and whether one ever did.
    text_column("running_turn_id"),
    Column("used", Boolean, nullable=False),
    id_column("opened_by_kind"),
    id_column("opened_by_id"),
    text_column("opened_by_session_id"),
    # True while it has open todos. Whatever frees it then says when (`todos_due_at`: they are to be looked
    # at), and which turn it was, unless the todos have brought it about.
    Column("todos", Boolean, nullable=False, server_default=text("0")),
    Column("todos_due_at", Float),
    text_column("todos_turn_id"),
    Column("created_at", Float, nullable=False),
    Column("ordinal", BigInteger, nullable=False),
    Index(
        "sessions_todos_due",
        "todos_due_at",
        sqlite_where=text("todos_due_at IS NOT NULL"),
        postgresql_where=text("todos_due_at IS NOT NULL"),
    ),
    Index("sessions_agent", "workspace_id", "agent_id", "ordinal"),
    Index("sessions_opener", "workspace_id", "opened_by_id", "ordinal"),
    Index(
        "sessions_opened",
        "workspace_id",
        "opened_by_session_id",
        "ordinal",
        sqlite_where=text("opened_by_session_id <> ''"),
        postgresql_where=text("opened_by_session_id <> ''"),
    ),
    Index(
        "sessions_peer",
        "workspace_id",
        "channel",
        "pair",
        "number",
        unique=True,
        sqlite_where=text("number > 0"),
        postgresql_where=text("number > 0"),
    ),
)

turns = Table(
    "turns",
    metadata,
    key_column("workspace_id"),
    key_column("id"),
    Column("ordinal", BigInteger, nullable=False),
    id_column("agent_id"),
    id_column("session_id"),
    # `queued`, `running`, `completed`, `failed` or `canceled`.
    id_column("state"),
    # What kind of message it serves.
    id_column("cause"),
    id_column("message_id"),
    id_column("thread_id"),
    id_column("caused_by_kind"),
    id_column("caused_by_id"),
    text_column("parent_turn_id"),
    id_column("root_id"),
    Column("depth", Integer, nullable=False),
    number_column("hook_generation"),
    # The agents of the chain, root first, this turn's last; ids between spaces.
    text_column("chain"),
    number_column("attempt"),
    # Set while it runs: the first turn of the pull or worker's batch it is in (empty for one that a worker
    # runs alone), the tunnel's epoch, its process.
    text_column("batch_id"),
    # The session in which a pulled turn runs; empty for a worker's.
    text_column("run_session_id"),
    Column("epoch", BigInteger, nullable=False, server_default="0"),
    text_column("instance_id"),
    # True while it holds a run slot of its workspace.
    Column("slot", Boolean, nullable=False, server_default=text("0")),
    Column("created_at", Float, nullable=False),
    Column("started_at", Float),
    Column("ended_at", Float),
    Column("lease_until", Float),
    # When it has run, or waited, for too long.
    Column("deadline_at", Float, nullable=False),
    # When the sweep has to look at it: the earlier of the two above; empty once it has ended.
    Column("due_at", Float),
    text_column("error_code"),
    text_column("error_message"),
    # Where it comes from, and the span of its run.
    text_column("traceparent"),
    text_column("span"),
    # What it was charged when it was queued, in millionths of a credit; one that never ran was given it back.
    Column("price", BigInteger, nullable=False, server_default="0"),
    # How many starts of subagents lead to it, down the chain that it goes on with.
    number_column("subagent_links"),
    # Queues, what runs, and lists: a list merges the five states.
    Index("turns_agent", "workspace_id", "agent_id", "state", "ordinal", "session_id", "id"),
    Index("turns_root", "workspace_id", "root_id", "ordinal"),
    Index(
        "turns_batch",
        "workspace_id",
        "batch_id",
        "state",
        sqlite_where=text("batch_id <> ''"),
        postgresql_where=text("batch_id <> ''"),
    ),
    Index(
        "turns_due",
        "due_at",
        sqlite_where=text("due_at IS NOT NULL"),
        postgresql_where=text("due_at IS NOT NULL"),
    ),
    Index(
        "turns_ended",
        "workspace_id",
        "ended_at",
        sqlite_where=text("ended_at IS NOT NULL"),
        postgresql_where=text("ended_at IS NOT NULL"),
    ),
)

# The answer that the turn of an ask owes to whoever asked. `state`: `open`, `answered`, `failed` or
# `canceled`.
debts = Table(
    "debts",
    metadata,
    key_column("workspace_id"),
    # The turn that owes.
    key_column("turn_id"),
    id_column("message_id"),
    id_column("thread_id"),
    id_column("debtor_id"),
    id_column("creditor_kind"),
    id_column("creditor_id"),
    text_column("creditor_session_id"),
    text_column("creditor_turn_id"),
    id_column("state"),
    text_column("reply_message_id"),
    text_column("error_code"),
    text_column("error_message"),
    Index(
        "debts_creditor_turn",
        "workspace_id",
        "state",
        "creditor_turn_id",
        sqlite_where=text("state = 'open' AND creditor_turn_id <> ''"),
        postgresql_where=text("state = 'open' AND creditor_turn_id <> ''"),
    ),
    Index(
        "debts_debtor",
        "workspace_id",
        "state",
        "debtor_id",
        sqlite_where=text("state = 'open'"),
        postgresql_where=text("state = 'open'"),
    ),
)

# Sessions that were started as somebody's children. `state`: `live` until the turn of the task has ended,
# then `ended`; `closing`, and then `closed`, once it was closed. What a child owes is the debt of that turn.
children = Table(
    "children",
    metadata,
    key_column("workspace_id"),
    key_column("session_id"),
    id_column("agent_id"),
    id_column("parent_session_id"),
    id_column("parent_agent_id"),
    id_column("message_id"),
    # The turn of its task.
    id_column("turn_id"),
    id_column("root_id"),
    # How many starts of subagents lead to it, this one included.
    Column("links", Integer, nullable=False),
    Column("fire_and_forget", Boolean, nullable=False),
    id_column("state"),
    Column("created_at", Float, nullable=False),
    Index(
        "children_live",
        "workspace_id",
        "state",
        "parent_session_id",
        sqlite_where=text("state = 'live'"),
        postgresql_where=text("state = 'live'"),
    ),
    Index(
        "children_closing",
        "workspace_id",
        "state",
        sqlite_where=text("state = 'closing'"),
        postgresql_where=text("state = 'closing'"),
    ),
    Index("children_turn", "workspace_id", "turn_id"),
)

# What a turn of an agent in reply mode `all` has written so far; with its end it becomes the answer.
outputs = Table(
    "outputs",
    metadata,
    key_column("workspace_id"),
    key_column("turn_id"),
    # Another attempt begins anew.
    Column("attempt", Integer, nullable=False),
    text_column("body"),
)

# Answers to people that are held (`domain/holds.py`): the turn that owes each, and its newest draft.
holds = Table(
    "holds",
    metadata,
    key_column("workspace_id"),
    # The turn of the prompt.
    key_column("turn_id"),
    Column("ordinal", BigInteger, nullable=False),
    id_column("agent_id"),
    # The session that was prompted, and the one in which the agent works for it.
    id_column("session_id"),
    id_column("seat_id"),
    # To which the turns go back that go on with it.
    id_column("root_id"),
    id_column("message_id"),
    id_column("thread_id"),
    # `held`, `woken` (its agent, with it) or `going` (as it is).
    id_column("state"),
    # The newest draft; empty where none was written yet.
    text_column("body"),
    text_column("wake_turn_id"),
    Column("created_at", Float, nullable=False),
    Column("written_at", Float),
    Index("holds_agent", "workspace_id", "agent_id", "ordinal"),
    Index("holds_session", "workspace_id", "session_id", "ordinal"),
    Index("holds_seat", "workspace_id", "seat_id", "ordinal"),
)

# Calls that wait for a turn right now. One that outlives its process tells what was never handed over.
waits = Table(
    "waits",
    metadata,
    key_column("workspace_id"),
    key_column("id"),
    # Or the question to an owner.
    id_column("turn_id"),
    id_column("instance_id"),
    id_column("waiter_kind"),
    id_column("waiter_id"),
    text_column("waiter_turn_id"),
    Column("created_at", Float, nullable=False),
    sqlite_with_rowid=False,
)

# How often a worker of the agent has attached: part of what makes old frames stale.
attachments = Table(
    "attachments",
    metadata,
    key_column("workspace_id"),
    key_column("agent_id"),
    Column("epoch", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
