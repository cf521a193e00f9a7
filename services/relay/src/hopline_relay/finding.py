"""Finding what can be claimed: the next turns of agents, what may ride along, and what they are about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import Connection

from hopline_relay.domain.batches import MAX_BATCH
from hopline_relay.domain.values import QUESTIONS
from hopline_relay.held import ClaimWish
from hopline_relay.store import newer, queues
from hopline_relay.store.batches import waiting_in
from hopline_relay.store.bulk import by_id
from hopline_relay.store.copies import copies_of
from hopline_relay.store.schema import debts, messages, sessions
from hopline_relay.store.sources import authors_of
from hopline_relay.store.sql import Record

_MOST: Final = 1000


@dataclass(slots=True)
class Found:
    """Queued turns and what they are about."""

    turns: list[tuple[ClaimWish, Record]] = field(default_factory=list)
    sessions: dict[tuple[str, str], Record] = field(default_factory=dict)
    messages: dict[tuple[str, str], Record] = field(default_factory=dict)
    copies: dict[tuple[str, str], list[Record]] = field(default_factory=dict)
    # By the turn that owes.
    debts: dict[tuple[str, str], Record] = field(default_factory=dict)
    # What may ride along, by the turn it waits behind.
    behind: dict[str, list[Record]] = field(default_factory=dict)
    # In whose name the schedules and webhooks among the senders speak.
    authors: dict[tuple[str, str], str] = field(default_factory=dict)
    # What waits in the sessions of these turns, where that is more than one.
    queues: dict[str, Sequence[Record]] = field(default_factory=dict)


def find(connection: Connection, wishes: Sequence[ClaimWish], batching: set[tuple[str, str]]) -> Found:
    """Find the next turns; for the agents that take batches also what waits behind them in their sessions."""
    found = Found()
    room: dict[str, dict[str, int]] = {}
    for wish in wishes:
        agents = room.setdefault(wish.workspace_id, {})
        agents[wish.agent_id] = min(agents.get(wish.agent_id, 0) + wish.capacity, _MOST)
    waiting, crowded = {}, set[str]()
    for workspace_id, agents in room.items():
        waiting[workspace_id], more = queues.next_of(connection, workspace_id, agents)
        crowded |= more
    for wish in wishes:
        queue = waiting[wish.workspace_id].get(wish.agent_id, [])
        found.turns.extend((wish, row) for row in queue[: wish.capacity])
        del queue[: wish.capacity]
    if batching:
        _find_behind(connection, found, batching)
    if crowded:
        _find_queues(connection, found, crowded)
    load(
        connection,
        found,
        [row for _, row in found.turns] + [row for rows in found.behind.values() for row in rows],
    )
    owing = {(row.workspace_id, row.id) for _, row in found.turns if row.cause in QUESTIONS}
    found.debts = by_id(connection, debts, owing, debts.c.turn_id)
    return found


def _find_behind(connection: Connection, found: Found, batching: set[tuple[str, str]]) -> None:
    """Find what waits behind the next turns of agents; those turns get the sizes of their messages, too."""
    leading: dict[tuple[str, str], dict[str, int]] = {}
    for index, (_, row) in enumerate(found.turns):
        if (row.workspace_id, row.agent_id) in batching:
            leading.setdefault((row.workspace_id, row.agent_id), {})[row.session_id] = index
    for (workspace_id, agent_id), numbers in leading.items():
        for session_id, rows in waiting_in(connection, workspace_id, agent_id, list(numbers)).items():
            wish, row = found.turns[numbers[session_id]]
            found.queues[session_id] = rows
            if rows[0].id == row.id:
                found.turns[numbers[session_id]] = (wish, rows[0])
                found.behind[row.id] = rows[1:MAX_BATCH]


def _find_queues(connection: Connection, found: Found, crowded: set[str]) -> None:
    """Find what waits in the sessions in which more than the next turn does."""
    sought: dict[tuple[str, str], list[str]] = {}
    for _, row in found.turns:
        if row.session_id in crowded and row.session_id not in found.queues:
            sought.setdefault((row.workspace_id, row.agent_id), []).append(row.session_id)
    for (workspace_id, agent_id), session_ids in sought.items():
        queued: dict[str, list[Record]] = {}
        for each in newer.in_sessions(connection, workspace_id, agent_id, session_ids):
            queued.setdefault(each.session_id, []).append(each)
        found.queues.update(queued)


def load(connection: Connection, found: Found, rows: Sequence[Record]) -> None:
    """Add the sessions and messages that turns are about."""
    found.sessions = by_id(connection, sessions, {(row.workspace_id, row.session_id) for row in rows})
    found.messages = by_id(connection, messages, {(row.workspace_id, row.message_id) for row in rows})
    found.copies = copies_of(connection, found.messages)
    found.authors = authors_of(connection, found.messages.values())
