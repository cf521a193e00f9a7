"""The relay's tables.

`workspace_id` comes first in every key, so that the record can be split by workspace. Times are unix
seconds; `ordinal` counts up within a workspace (one row of `heads`), in the order of commits, and is what
queues, lists and transcripts are ordered by. Every list that grows is read through an index that ends in it.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    literal_column,
    text,
)

metadata = MetaData()

# Written out where an index covers only rows in that state: a bound value would not match its condition.
# Such an index holds the state as well, or the planner would take a longer one that begins alike.
QUEUED = literal_column("'queued'", String)
RUNNING = literal_column("'running'", String)
OPEN = literal_column("'open'", String)
LIVE = literal_column("'live'", String)
CLOSING = literal_column("'closing'", String)
PENDING = literal_column("'pending'", String)
DEAD = literal_column("'dead'", String)
EMPTY = literal_column("''", String)
WAKE = literal_column("'wake'", String)


def _id(name: str, **more: Any) -> Column[str]:
    return Column(name, String, nullable=False, **more)


def _key(name: str) -> Column[str]:
    return Column(name, String, primary_key=True, nullable=False)


def _text(name: str) -> Column[str]:
    return Column(name, Text, nullable=False, server_default="")


def _number(name: str) -> Column[int]:
    return Column(name, Integer, nullable=False, server_default="0")


# The counters' epoch that this record goes with, and the processes that write here. A batch is committed
# only while both rows are what its author believes them to be.
quota_epochs = Table(
    "quota_epochs",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("epoch", BigInteger, nullable=False),
    Column("seeded_at", Float, nullable=False),
)

instances = Table(
    "instances",
    metadata,
    _key("id"),
    Column("started_at", Float, nullable=False),
    Column("ended_at", Float),
)

# The counters of a workspace: the last ordinal and the last number of its audit log.
heads = Table(
    "heads",
    metadata,
    _key("workspace_id"),
    Column("ordinal", BigInteger, nullable=False),
    Column("audit_seq", BigInteger, nullable=False),
)

# What the turns of a workspace were charged in all, in millionths of a credit; written where they cost any.
credit_accounts = Table(
    "credit_accounts",
    metadata,
    _key("workspace_id"),
    Column("charged", BigInteger, nullable=False),
)

# What is known of a root beside its turns; most have no row. `agent_id`: the agent it began with.
roots = Table(
    "roots",
    metadata,
    _key("workspace_id"),
    _key("id"),
    _id("agent_id"),
    # What people granted it on top of the policy.
    Column("extra_turns", Integer, nullable=False),
    # When it was first refused a turn since it was last extended.
    Column("exhausted_at", Float),
    Index(
        "roots_exhausted",
        "workspace_id",
        "exhausted_at",
        "id",
        sqlite_where=text("exhausted_at IS NOT NULL"),
        postgresql_where=text("exhausted_at IS NOT NULL"),
    ),
)

# What a caller's request_id stands for, for 24 h.
requests = Table(
    "requests",
    metadata,
    _key("workspace_id"),
    # The UTC day it was made on: a request is looked for on two, and whole days are forgotten.
    _key("day"),
    # Before the caller, since it is unique but for a caller that copies another's.
    _key("request_id"),
    _key("principal_id"),
    Column("digest", LargeBinary, nullable=False),
    _id("message_id"),
    Column("created_at", Float, nullable=False),
    # Where hooks let nobody have it, and there is no message: JSON of whom it was to and why.
    Column("kept", Text),
    sqlite_with_rowid=False,
)

threads = Table(
    "threads",
    metadata,
    _key("workspace_id"),
    _key("id"),
    _text("subject"),
    Column("message_count", Integer, nullable=False),
    # Places kept for recipients of a fan-out that have not answered.
    Column("reserved", Integer, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("last_at", Float, nullable=False),
    Column("last_ordinal", BigInteger, nullable=False),
    Index("threads_recent", "workspace_id", "last_ordinal"),
)

participants = Table(
    "participants",
    metadata,
    _key("workspace_id"),
    _key("thread_id"),
    _key("party_id"),
    _id("party_kind"),
    # The ordinal of the thread's newest message.
    Column("last_ordinal", BigInteger, nullable=False),
    Index("participants_recent", "workspace_id", "party_id", "last_ordinal"),
    sqlite_with_rowid=False,
)

messages = Table(
    "messages",
    metadata,
    _key("workspace_id"),
    _key("id"),
    Column("ordinal", BigInteger, nullable=False),
    _id("thread_id"),
    Column("seq", Integer, nullable=False),
    # `message`, `ask`, `prompt`, `reply`, `answer`, `notice` (of the mesh itself), `question` (to an owner),
    # `owner_answer`, `tool` (a call; its subject is the tool, its body the arguments), `task` (of a child),
    # `peer` (in a standing conversation, or into a session), `report`, or a note of the mesh itself that
    # wakes: `todo`, `timer` or `draft`.
    _id("kind"),
    _id("from_kind"),
    _id("from_id"),
    _text("from_session_id"),
    _text("from_turn_id"),
    _text("subject"),
    _text("body"),
    _text("payload"),
    _text("in_reply_to"),
    Column("depth", Integer, nullable=False),
    # The depth at which an answer to this message runs, and the root it belongs to.
    Column("from_depth", Integer, nullable=False),
    _id("root_id"),
    _number("hook_generation"),
    # How it was admitted (`start`, `answer`, `person`, `wake`) and the UTC day it was charged to.
    _id("admitted_as"),
    _id("day"),
    _text("traceparent"),
    Column("created_at", Float, nullable=False),
    # Whether an answer is owed for it, where its kind does not say.
    Column("owed", Boolean, nullable=False, server_default=text("0")),
    Index("messages_thread", "workspace_id", "thread_id", "seq", unique=True),
    Index(
        "messages_session",
        "workspace_id",
        "from_session_id",
        "ordinal",
        sqlite_where=text("from_session_id <> ''"),
        postgresql_where=text("from_session_id <> ''"),
    ),
)

deliveries = Table(
    "deliveries",
    metadata,
    _key("workspace_id"),
    _key("message_id"),
    _key("recipient_id"),
    _id("recipient_kind"),
    _text("session_id"),
    _text("turn_id"),
    _id("state"),
    # True while the thread keeps a place for this recipient's first answer.
    Column("place", Boolean, nullable=False),
    Column("ordinal", BigInteger, nullable=False),
    # JSON of what hooks have made of it for this recipient, where that is not what the message says: its
    # words, or why it was kept back.
    Column("shaped", Text),
    Index(
        "deliveries_session",
        "workspace_id",
        "session_id",
        "ordinal",
        sqlite_where=text("session_id <> ''"),
        postgresql_where=text("session_id <> ''"),
    ),
    # What the mesh has given up.
    Index(
        "deliveries_dead",
        "workspace_id",
        "state",
        "ordinal",
        sqlite_where=text("state = 'dead'"),
        postgresql_where=text("state = 'dead'"),
    ),
    sqlite_with_rowid=False,
)

sessions = Table(
    "sessions",
    metadata,
    _key("workspace_id"),
    _key("id"),
    _id("agent_id"),
    _id("title"),
    # `relay`, `mcp`, `human`, `schedule` or `webhook`.
    _id("channel"),
    # The agent and for whom it is, `B/A`, and which of theirs: `From A`, `From A (2)`; 0 for a session that
    # is asked for by its id.
    _text("pair"),
    _number("number"),
    # True once closed.
    Column("closed", Boolean, nullable=False),
    # The turn that runs in it, and whether one ever did.
    _text("running_turn_id"),
    Column("used", Boolean, nullable=False),
    _id("opened_by_kind"),
    _id("opened_by_id"),
    _text("opened_by_session_id"),
    # True while it has open todos. Whatever frees it then says when (`todos_due_at`: they are to be looked
    # at), and which turn it was, unless the todos have brought it about.
    Column("todos", Boolean, nullable=False, server_default=text("0")),
    Column("todos_due_at", Float),
    _text("todos_turn_id"),
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
    _key("workspace_id"),
    _key("id"),
    Column("ordinal", BigInteger, nullable=False),
    _id("agent_id"),
    _id("session_id"),
    # `queued`, `running`, `completed`, `failed` or `canceled`.
    _id("state"),
    # What kind of message it serves.
    _id("cause"),
    _id("message_id"),
    _id("thread_id"),
    _id("caused_by_kind"),
    _id("caused_by_id"),
    _text("parent_turn_id"),
    _id("root_id"),
    Column("depth", Integer, nullable=False),
    _number("hook_generation"),
    # The agents of the chain, root first, this turn's last; ids between spaces.
    _text("chain"),
    _number("attempt"),
    # Set while it runs: the first turn of the pull or worker's batch it is in (empty for one that a worker
    # runs alone), the tunnel's epoch, its process.
    _text("batch_id"),
    # The session in which a pulled turn runs; empty for a worker's.
    _text("run_session_id"),
    Column("epoch", BigInteger, nullable=False, server_default="0"),
    _text("instance_id"),
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
    _text("error_code"),
    _text("error_message"),
    # Where it comes from, and the span of its run.
    _text("traceparent"),
    _text("span"),
    # What it was charged when it was queued, in millionths of a credit; one that never ran was given it back.
    Column("price", BigInteger, nullable=False, server_default="0"),
    # How many starts of subagents lead to it, down the chain that it goes on with.
    _number("subagent_links"),
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
    _key("workspace_id"),
    # The turn that owes.
    _key("turn_id"),
    _id("message_id"),
    _id("thread_id"),
    _id("debtor_id"),
    _id("creditor_kind"),
    _id("creditor_id"),
    _text("creditor_session_id"),
    _text("creditor_turn_id"),
    _id("state"),
    _text("reply_message_id"),
    _text("error_code"),
    _text("error_message"),
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
    _key("workspace_id"),
    _key("session_id"),
    _id("agent_id"),
    _id("parent_session_id"),
    _id("parent_agent_id"),
    _id("message_id"),
    # The turn of its task.
    _id("turn_id"),
    _id("root_id"),
    # How many starts of subagents lead to it, this one included.
    Column("links", Integer, nullable=False),
    Column("fire_and_forget", Boolean, nullable=False),
    _id("state"),
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
    _key("workspace_id"),
    _key("turn_id"),
    # Another attempt begins anew.
    Column("attempt", Integer, nullable=False),
    _text("body"),
)

# Answers to people that are held (`domain/holds.py`): the turn that owes each, and its newest draft.
holds = Table(
    "holds",
    metadata,
    _key("workspace_id"),
    # The turn of the prompt.
    _key("turn_id"),
    Column("ordinal", BigInteger, nullable=False),
    _id("agent_id"),
    # The session that was prompted, and the one in which the agent works for it.
    _id("session_id"),
    _id("seat_id"),
    # To which the turns go back that go on with it.
    _id("root_id"),
    _id("message_id"),
    _id("thread_id"),
    # `held`, `woken` (its agent, with it) or `going` (as it is).
    _id("state"),
    # The newest draft; empty where none was written yet.
    _text("body"),
    _text("wake_turn_id"),
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
    _key("workspace_id"),
    _key("id"),
    # Or the question to an owner.
    _id("turn_id"),
    _id("instance_id"),
    _id("waiter_kind"),
    _id("waiter_id"),
    _text("waiter_turn_id"),
    Column("created_at", Float, nullable=False),
    sqlite_with_rowid=False,
)

# Questions of agents to their owners. `state`: `pending`, `answered`, `expired` or `withdrawn`. Question and
# answer are messages of a thread as well.
escalations = Table(
    "escalations",
    metadata,
    _key("workspace_id"),
    _key("id"),
    Column("ordinal", BigInteger, nullable=False),
    _id("agent_id"),
    _id("owner_id"),
    _id("state"),
    _id("message_id"),
    _id("thread_id"),
    # From where it was asked: into this session the answer comes.
    _id("session_id"),
    # The turn that asked (of a pull the one that stands for all of it), and which attempt of it.
    _text("turn_id"),
    _number("attempt"),
    Column("depth", Integer, nullable=False),
    _id("root_id"),
    _text("traceparent"),
    _text("question"),
    # JSON.
    _text("options"),
    # Of question and options: who asks the same again means this one.
    Column("digest", LargeBinary, nullable=False),
    _text("answer"),
    _text("answer_message_id"),
    _text("ended_by_kind"),
    _text("ended_by_id"),
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
    _key("workspace_id"),
    _key("id"),
    _id("kind"),
    # The question, the root, the agent, the session.
    _id("subject_id"),
    # The owner, or the agent that is woken.
    _id("recipient_id"),
    _number("attempts"),
    # Why the last attempt was not taken.
    _text("problem"),
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

# What agents are told at the times of a cron expression. `state`: `active`, `paused` or `stopped`.
schedules = Table(
    "schedules",
    metadata,
    _key("workspace_id"),
    _key("id"),
    Column("ordinal", BigInteger, nullable=False),
    _id("agent_id"),
    # In whose name it fires.
    _id("author_id"),
    _id("name"),
    _id("cron"),
    _id("timezone"),
    _text("body"),
    _id("state"),
    Column("created_at", Float, nullable=False),
    # Its next time, while it is active; the transaction that writes the turn moves it on. And what the clock
    # said when it was worked out.
    Column("due_at", Float),
    Column("set_at", Float, nullable=False),
    Column("fired", BigInteger, nullable=False),
    Column("skipped", BigInteger, nullable=False),
    # Of the last firing.
    Column("fired_at", Float),
    _text("turn_id"),
    _text("session_id"),
    # Why the last time was skipped, if it was.
    _text("problem_code"),
    _text("problem_message"),
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
    _key("workspace_id"),
    _key("id"),
    Column("ordinal", BigInteger, nullable=False),
    _id("session_id"),
    _id("agent_id"),
    _text("body"),
    _id("state"),
    # The first of those that one call has noted.
    _id("batch_id"),
    # Where it was noted: wakes for it run there.
    _text("turn_id"),
    Column("depth", Integer, nullable=False),
    _id("root_id"),
    _text("traceparent"),
    _number("hook_generation"),
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
    _key("workspace_id"),
    _key("session_id"),
    _id("agent_id"),
    _text("reason"),
    # How many wakes in a row nothing has come of, the turn of the last one, and the last turn of the session
    # that was taken note of.
    _number("wakes"),
    _text("wake_turn_id"),
    _text("seen_turn_id"),
    Column("asleep_at", Float),
    Index("todo_lists_agent", "workspace_id", "agent_id"),
    sqlite_with_rowid=False,
)

# What sessions wake themselves with; the transaction that writes the wake takes the row off.
timers = Table(
    "timers",
    metadata,
    _key("workspace_id"),
    _key("id"),
    Column("ordinal", BigInteger, nullable=False),
    _id("session_id"),
    _id("agent_id"),
    _text("body"),
    _text("turn_id"),
    Column("depth", Integer, nullable=False),
    _id("root_id"),
    _text("traceparent"),
    _number("hook_generation"),
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
    _key("workspace_id"),
    _key("agent_id"),
    _key("name"),
    _id("id"),
    Column("ordinal", BigInteger, nullable=False),
    # In whose name it works.
    _id("author_id"),
    _text("secret"),
    _text("old_secret"),
    Column("old_until", Float),
    Column("created_at", Float, nullable=False),
    Column("rotated_at", Float),
    Index("incoming_webhooks_id", "workspace_id", "id", unique=True),
    Index("incoming_webhooks_agent", "workspace_id", "agent_id", "ordinal"),
)

# How often a worker of the agent has attached: part of what makes old frames stale.
attachments = Table(
    "attachments",
    metadata,
    _key("workspace_id"),
    _key("agent_id"),
    Column("epoch", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

audit_events = Table(
    "audit_events",
    metadata,
    _key("workspace_id"),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("at", Float, nullable=False),
    _id("action"),
    _id("actor_kind"),
    _id("actor_id"),
    _text("actor_name"),
    _text("agent_id"),
    _text("thread_id"),
    _text("message_id"),
    _text("turn_id"),
    _text("session_id"),
    # JSON.
    _text("details"),
    _text("trace_id"),
    Index("audit_events_agent", "workspace_id", "agent_id", "seq"),
    # What an agent does in a turn of its own stands under `agent_id` already.
    Index(
        "audit_events_actor",
        "workspace_id",
        "actor_id",
        "seq",
        sqlite_where=text("actor_id <> agent_id"),
        postgresql_where=text("actor_id <> agent_id"),
    ),
)

# How far the registry's own changes have been taken over into the log.
audit_sources = Table(
    "audit_sources",
    metadata,
    _key("source"),
    Column("seq", BigInteger, nullable=False),
)

# The seals of the log: the links of its chain (`domain/chain.py`) for events that follow each other, and
# the last of them once more.
audit_seals = Table(
    "audit_seals",
    metadata,
    _key("workspace_id"),
    Column("first_seq", BigInteger, primary_key=True, autoincrement=False),
    Column("last_seq", BigInteger, nullable=False),
    Column("link", LargeBinary, nullable=False),
    Column("links", LargeBinary, nullable=False),
    Column("sealed_at", Float, nullable=False),
)

# Where the log begins, once retention has deleted what came before: the newest deleted event and its link.
audit_cuts = Table(
    "audit_cuts",
    metadata,
    _key("workspace_id"),
    Column("seq", BigInteger, nullable=False),
    Column("link", LargeBinary, nullable=False),
    Column("cut_at", Float, nullable=False),
)

# What plugins were handed, with until when it counts. `kind`: `session`, `generation`, `depth` or `root`.
plugin_handed = Table(
    "plugin_handed",
    metadata,
    _key("workspace_id"),
    _key("plugin_id"),
    _key("kind"),
    _key("value"),
    Column("until", Float, nullable=False),
    Index("plugin_handed_until", "until"),
    sqlite_with_rowid=False,
)

# What plugins are still to be told of, each in the order of `ordinal`; a row goes once it was taken, or given
# up. `kind`: `plugin_installed`, `plugin_updated` or `session_started`.
plugin_events = Table(
    "plugin_events",
    metadata,
    _key("workspace_id"),
    _key("plugin_id"),
    Column("ordinal", BigInteger, primary_key=True, autoincrement=False),
    _id("id"),
    _id("kind"),
    # JSON.
    _text("body"),
    _number("attempts"),
    _text("problem"),
    Column("created_at", Float, nullable=False),
    Column("due_at", Float, nullable=False),
    sqlite_with_rowid=False,
)

# The revision and the version of each plugin that it was told of.
plugin_revisions = Table(
    "plugin_revisions",
    metadata,
    _key("workspace_id"),
    _key("plugin_id"),
    Column("revision", BigInteger, nullable=False),
    _text("version"),
    sqlite_with_rowid=False,
)
