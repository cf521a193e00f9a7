"""What the record says of the things that a batch of calls names, looked up all at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from hopline_rpc.clock import utc_day
from sqlalchemy import Connection, and_, bindparam, or_, select

from hopline_relay.domain.values import REQUEST_SECONDS
from hopline_relay.store.bulk import by_id
from hopline_relay.store.copies import copies_of
from hopline_relay.store.debting import owed_to_turns
from hopline_relay.store.schema import (
    OPEN,
    debts,
    messages,
    participants,
    requests,
    sessions,
    threads,
    turns,
)
from hopline_relay.store.sql import Record, Statement

Key = tuple[str, str]


@dataclass(slots=True)
class Names:
    """What is asked for; every pair begins with the workspace's id."""

    turns: set[Key] = field(default_factory=set)
    sessions: set[Key] = field(default_factory=set)
    threads: set[Key] = field(default_factory=set)
    messages: set[Key] = field(default_factory=set)
    # Whose open debts.
    debtors: set[Key] = field(default_factory=set)
    # Whose open debts that they are working off.
    serving: set[Key] = field(default_factory=set)
    # (workspace, principal, request_id)
    requests: set[tuple[str, str, str]] = field(default_factory=set)

    def __bool__(self) -> bool:
        return bool(
            self.turns or self.sessions or self.threads or self.messages or self.requests or self.serving
        )


@dataclass(slots=True)
class Facts:
    """What was found; what is missing does not exist."""

    turns: dict[Key, Record] = field(default_factory=dict)
    sessions: dict[Key, Record] = field(default_factory=dict)
    threads: dict[Key, Record] = field(default_factory=dict)
    messages: dict[Key, Record] = field(default_factory=dict)
    members: dict[Key, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    deliveries: dict[Key, list[Record]] = field(default_factory=dict)
    # By the turn that owes.
    debts: dict[Key, Record] = field(default_factory=dict)
    # Open debts by thread.
    owed: dict[Key, list[Any]] = field(default_factory=lambda: defaultdict(list))
    # Open debts of turns that run, by who owes them; `cause` is the turn's.
    serving: dict[Key, list[Any]] = field(default_factory=lambda: defaultdict(list))
    # Open debts by (workspace, the turn that waits for it, who owes).
    awaited: dict[tuple[str, str, str], Record] = field(default_factory=dict)
    requests: dict[tuple[str, str, str], Record] = field(default_factory=dict)

    def delivery(self, workspace_id: str, message_id: str, recipient_id: str) -> Record | None:
        """Return a recipient's copy of a message."""
        for row in self.deliveries.get((workspace_id, message_id), ()):
            if row.recipient_id == recipient_id:
                return row
        return None


def look_up(connection: Connection, names: Names, now: float = 0.0) -> Facts:
    """Return what is there of what is named, with what hangs on it; requests of the day before `now`.

    What would hang on a message is asked for also where there is none: somebody else's message takes as long
    to miss as one that never was.
    """
    facts = Facts()
    _requests(connection, names, facts, now)
    facts.sessions = by_id(connection, sessions, names.sessions)
    facts.messages = by_id(connection, messages, names.messages)
    facts.deliveries = copies_of(connection, names.messages)
    running = {(key[0], row.running_turn_id) for key, row in facts.sessions.items()}
    serving = {(key[0], row.turn_id) for key, rows in facts.deliveries.items() for row in rows}
    missing = {key for key, rows in facts.deliveries.items() if not rows}
    wanted = names.turns | running | serving | missing
    facts.turns = by_id(connection, turns, wanted)
    facts.debts = by_id(connection, debts, wanted, debts.c.turn_id)
    _awaited(connection, facts, running)
    facts.threads = by_id(connection, threads, names.threads)
    _members(connection, names, facts)
    _serving(connection, names, facts)
    return facts


_REQUESTS = Statement(
    select(requests).where(
        requests.c.workspace_id == bindparam("workspace"),
        or_(requests.c.day == bindparam("today"), requests.c.day == bindparam("yesterday")),
        requests.c.request_id.in_(bindparam("ids", expanding=True)),
    ),
    "ids",
)


def _requests(connection: Connection, names: Names, facts: Facts, now: float) -> None:
    grouped: dict[str, list[str]] = defaultdict(list)
    for workspace_id, _, request_id in names.requests:
        grouped[workspace_id].append(request_id)
    days = {"today": utc_day(now), "yesterday": utc_day(now - REQUEST_SECONDS)}
    for workspace_id, ids in grouped.items():
        for row in _REQUESTS.all(connection, {"workspace": workspace_id, "ids": ids, **days}):
            if row.created_at <= now - REQUEST_SECONDS:
                continue
            key = (workspace_id, row.principal_id, row.request_id)
            if key in names.requests:
                facts.requests[key] = row
                if row.message_id:
                    names.messages.add((workspace_id, row.message_id))


def _awaited(connection: Connection, facts: Facts, running: Iterable[Key]) -> None:
    for workspace_id, ids in _grouped(key for key in running if key[1]).items():
        for row in owed_to_turns(connection, workspace_id, ids):
            facts.awaited[workspace_id, row.creditor_turn_id, row.debtor_id] = row


_MEMBERS = Statement(
    select(participants.c.thread_id, participants.c.party_id, participants.c.party_kind).where(
        participants.c.workspace_id == bindparam("workspace"),
        participants.c.thread_id.in_(bindparam("ids", expanding=True)),
    ),
    "ids",
)
_OWED = Statement(
    select(debts).where(
        debts.c.workspace_id == bindparam("workspace"),
        debts.c.state == OPEN,
        debts.c.debtor_id.in_(bindparam("debtors", expanding=True)),
    ),
    "debtors",
)


_SERVING = Statement(
    select(debts, turns.c.cause)
    .join(turns, and_(turns.c.workspace_id == debts.c.workspace_id, turns.c.id == debts.c.turn_id))
    .where(
        debts.c.workspace_id == bindparam("workspace"),
        debts.c.state == OPEN,
        debts.c.debtor_id.in_(bindparam("debtors", expanding=True)),
        turns.c.state == "running",
    ),
    "debtors",
)


def _serving(connection: Connection, names: Names, facts: Facts) -> None:
    for workspace_id, ids in _grouped(names.serving).items():
        for row in _SERVING.all(connection, {"workspace": workspace_id, "debtors": ids}):
            facts.serving[workspace_id, row.debtor_id].append(row)


def _members(connection: Connection, names: Names, facts: Facts) -> None:
    for workspace_id, ids in _grouped(facts.threads).items():
        for row in _MEMBERS.all(connection, {"workspace": workspace_id, "ids": ids}):
            facts.members[workspace_id, row.thread_id][row.party_id] = row.party_kind
    for workspace_id, ids in _grouped(names.debtors).items():
        for row in _OWED.all(connection, {"workspace": workspace_id, "debtors": ids}):
            facts.owed[workspace_id, row.thread_id].append(row)


def _grouped(keys: Iterable[Key]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = defaultdict(list)
    for workspace_id, identifier in keys:
        grouped[workspace_id].append(identifier)
    return grouped
