"""Finding and making the sessions that messages go to and come from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, bindparam, literal_column, select

from hopline_relay.domain.sources import SOURCES, standing_title
from hopline_relay.domain.values import lowest_free, session_title
from hopline_relay.store import plugin_events
from hopline_relay.store.book import Book
from hopline_relay.store.schema import sessions
from hopline_relay.store.sql import Record, Statement, insert, record

_OF_PAIRS = Statement(
    select(sessions).where(
        sessions.c.workspace_id == bindparam("workspace"),
        sessions.c.channel == bindparam("channel"),
        sessions.c.pair.in_(bindparam("pairs", expanding=True)),
        sessions.c.number > literal_column("0"),
    ),
    "pairs",
)


# How the pair of a standing conversation's end is told from others.
STANDING: Final = "/standing"


@dataclass(slots=True, kw_only=True)
class SessionWish:
    """Where a message to `agent_id` from `peer_id` is to go; `id` and `found` become the session's.

    `fresh_id` is the id of a new one, for the case that none is free. An inbox session has no peer.
    """

    workspace_id: str
    fresh_id: str
    id: str = ""
    found: Record = None
    agent_id: str
    channel: str = "relay"
    peer_id: str = ""
    peer_name: str = ""
    opener_kind: str
    opener_id: str
    opener_session_id: str = ""
    # A session of its own, with this title, which is found by its id alone.
    title: str = ""
    # That of the calls of its tools, beside the one for messages.
    tools: bool = False
    # The plugins that are told where it is made, and where what opens it stands.
    tells: tuple[str, ...] = ()
    depth: int = 0
    root_id: str = ""
    # Its end of the one conversation that the two have: whatever comes waits there, in order.
    standing: bool = False

    @property
    def pair(self) -> str:
        """The agent and for whom the session is."""
        pair = f"{self.agent_id}/{self.peer_id}"
        return f"{pair}/tools" if self.tools else f"{pair}{STANDING}" if self.standing else pair


def settle(book: Book, wishes: Sequence[SessionWish]) -> None:
    """Give every wish the lowest-numbered session of its pair in which no turn runs, made where missing."""
    groups: dict[tuple[str, str], list[SessionWish]] = defaultdict(list)
    for wish in wishes:
        groups[wish.workspace_id, wish.channel].append(wish)
    fresh: list[dict[str, Any]] = []
    told: list[SessionWish] = []
    for (workspace_id, channel), group in groups.items():
        known = _known(book.connection, workspace_id, channel, group)
        for wish in group:
            if wish.title:
                fresh.append(_row(book, wish, wish.title, 0))
                told.append(wish)
                wish.found = record(sessions, fresh[-1])
            else:
                numbers = known[wish.pair]
                number = lowest_free({number: _taken(wish, row) for number, row in numbers.items()})
                if number not in numbers:
                    fresh.append(_row(book, wish, _title(wish, number), number))
                    told.append(wish)
                    numbers[number] = record(sessions, fresh[-1])
                wish.found = numbers[number]
            wish.id = wish.found.id
    insert(book.connection, sessions, fresh)
    if any(wish.tells for wish in told):
        plugin_events.sessions_started(book, told)


def standing_of(connection: Connection, workspace_id: str, agent_id: str, peer_id: str) -> str:
    """Return an agent's end of its standing conversation with another; empty without one."""
    pair = f"{agent_id}/{peer_id}{STANDING}"
    values = {"workspace": workspace_id, "channel": "relay", "pairs": [pair]}
    found = _OF_PAIRS.one(connection, values)
    return str(found.id) if found is not None else ""


def inbox_of(connection: Connection, workspace_id: str, agent_id: str) -> Record | None:
    """Return an agent's inbox session; None while it has none."""
    query = select(sessions).where(
        sessions.c.workspace_id == workspace_id,
        sessions.c.agent_id == agent_id,
        sessions.c.channel == "mcp",
        sessions.c.number == 1,
    )
    return connection.execute(query).first()


def _title(wish: SessionWish, number: int) -> str:
    if wish.channel in SOURCES:
        return standing_title(wish.channel, wish.peer_name)
    if wish.channel == "mcp":
        return "Inbox"
    return session_title(wish.peer_name, number, tools=wish.tools, standing=wish.standing)


def _taken(wish: SessionWish, session: Record) -> bool:
    """Tell whether nothing new goes into a session; of some there is one alone, whatever runs in it."""
    if session.channel == "mcp" or wish.standing:
        return False
    return bool(session.closed or (session.running_turn_id and session.channel not in SOURCES))


def _row(book: Book, wish: SessionWish, title: str, number: int) -> dict[str, Any]:
    """Return a new session's row."""
    return {
        "workspace_id": wish.workspace_id,
        "id": wish.fresh_id,
        "agent_id": wish.agent_id,
        "title": title,
        "channel": wish.channel,
        "pair": wish.pair,
        "number": number,
        "closed": False,
        "running_turn_id": "",
        "used": False,
        "opened_by_kind": wish.opener_kind,
        "opened_by_id": wish.opener_id,
        "opened_by_session_id": wish.opener_session_id,
        "todos": False,
        "todos_due_at": None,
        "todos_turn_id": "",
        "created_at": book.now,
        "ordinal": book.ordinal(wish.workspace_id),
    }


def _known(
    connection: Connection, workspace_id: str, channel: str, wishes: Iterable[SessionWish]
) -> dict[str, dict[int, Record]]:
    """Return the sessions of the pairs by number."""
    known: dict[str, dict[int, Record]] = {wish.pair: {} for wish in wishes}
    values = {"workspace": workspace_id, "channel": channel, "pairs": sorted(known)}
    for row in _OF_PAIRS.all(connection, values):
        known[row.pair][row.number] = row
    return known
