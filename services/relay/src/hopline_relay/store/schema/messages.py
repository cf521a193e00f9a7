"""Messages: threads, who takes part in them, and the copies of their recipients."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Float, Index, Integer, Table, Text, text

from hopline_relay.store.schema.columns import id_column, key_column, metadata, number_column, text_column

threads = Table(
    "threads",
    metadata,
    key_column("workspace_id"),
    key_column("id"),
    text_column("subject"),
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
    key_column("workspace_id"),
    key_column("thread_id"),
    key_column("party_id"),
    id_column("party_kind"),
    # The ordinal of the thread's newest message.
    Column("last_ordinal", BigInteger, nullable=False),
    Index("participants_recent", "workspace_id", "party_id", "last_ordinal"),
    sqlite_with_rowid=False,
)

messages = Table(
    "messages",
    metadata,
    key_column("workspace_id"),
    key_column("id"),
    Column("ordinal", BigInteger, nullable=False),
    id_column("thread_id"),
    Column("seq", Integer, nullable=False),
    # `message`, `ask`, `prompt`, `reply`, `answer`, `notice` (of the mesh itself), `question` (to an owner),
    # `owner_answer`, `tool` (a call; its subject is the tool, its body the arguments), `task` (of a child),
    # `peer` (in a standing conversation, or into a session), `report`, or a note of the mesh itself that
    # wakes: `todo`, `timer` or `draft`.
    id_column("kind"),
    id_column("from_kind"),
    id_column("from_id"),
    text_column("from_session_id"),
    text_column("from_turn_id"),
    text_column("subject"),
    text_column("body"),
    text_column("payload"),
    text_column("in_reply_to"),
    Column("depth", Integer, nullable=False),
    # The depth at which an answer to this message runs, and the root it belongs to.
    Column("from_depth", Integer, nullable=False),
    id_column("root_id"),
    number_column("hook_generation"),
    # How it was admitted (`start`, `answer`, `person`, `wake`) and the UTC day it was charged to.
    id_column("admitted_as"),
    id_column("day"),
    text_column("traceparent"),
    Column("created_at", Float, nullable=False),
    # Whether an answer is owed for it, where its kind does not say.
    Column("owed", Boolean, nullable=False, server_default=text("0")),
    Index("messages_thread", "workspace_id", "thread_id", "seq", unique=True),
    Index("messages_ordinal", "workspace_id", "ordinal"),
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
    key_column("workspace_id"),
    key_column("message_id"),
    key_column("recipient_id"),
    id_column("recipient_kind"),
    text_column("session_id"),
    text_column("turn_id"),
    id_column("state"),
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
