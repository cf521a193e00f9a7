"""The relay's tables.

`workspace_id` comes first in every key, so that the record can be split by workspace. Times are unix
seconds; `ordinal` counts up within a workspace (one row of `heads`), in the order of commits, and is what
queues, lists and transcripts are ordered by. Every list that grows is read through an index that ends in it.
"""

from hopline_relay.store.schema.auditing import audit_cuts, audit_events, audit_seals, audit_sources
from hopline_relay.store.schema.columns import (
    CLOSING,
    DEAD,
    EMPTY,
    LIVE,
    OPEN,
    PENDING,
    QUEUED,
    RUNNING,
    WAKE,
    metadata,
)
from hopline_relay.store.schema.counters import (
    credit_accounts,
    heads,
    instances,
    open_tunnels,
    quota_epochs,
    requests,
    roots,
    secrets,
)
from hopline_relay.store.schema.messages import deliveries, messages, participants, threads
from hopline_relay.store.schema.people import escalations, posts
from hopline_relay.store.schema.plugins import plugin_events, plugin_handed, plugin_revisions
from hopline_relay.store.schema.searching import exchange_marks, exchanges
from hopline_relay.store.schema.turns import (
    attachments,
    children,
    debts,
    holds,
    outputs,
    sessions,
    turns,
    waits,
)
from hopline_relay.store.schema.waking import incoming_webhooks, schedules, timers, todo_lists, todos

__all__ = [
    "CLOSING",
    "DEAD",
    "EMPTY",
    "LIVE",
    "OPEN",
    "PENDING",
    "QUEUED",
    "RUNNING",
    "WAKE",
    "attachments",
    "audit_cuts",
    "audit_events",
    "audit_seals",
    "audit_sources",
    "children",
    "credit_accounts",
    "debts",
    "deliveries",
    "escalations",
    "exchange_marks",
    "exchanges",
    "heads",
    "holds",
    "incoming_webhooks",
    "instances",
    "messages",
    "metadata",
    "open_tunnels",
    "outputs",
    "participants",
    "plugin_events",
    "plugin_handed",
    "plugin_revisions",
    "posts",
    "quota_epochs",
    "requests",
    "roots",
    "schedules",
    "secrets",
    "sessions",
    "threads",
    "timers",
    "todo_lists",
    "todos",
    "turns",
    "waits",
]
