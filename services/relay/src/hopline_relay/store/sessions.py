"""Finding and making the sessions that messages go to and come from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, literal_column, select

from hopline_relay.domain.values import lowest_free, session_title
from hopline_relay.store.book import Book
from hopline_relay.store.schema import sessions
from hopline_relay.store.sql import Statement, insert

_OF_PAIRS = Statement(
    select(
        sessions.c.id,
        sessions.c.pair,
        sessions.c.number,
        sessions.c.closed,
        sessions.c.running_turn_id,
    ).where(
        sessions.c.workspace_id == bindparam("workspace"),
        sessions.c.channel == bindparam("channel"),
        sessions.c.pair.in_(bindparam("pairs", expanding=True)),
        sessions.c.number > literal_column("0"),
    ),
    "pairs",
)


@dataclass(slots=True, kw_only=True)
class SessionWish:
    """Where a message to `agent_id` from `peer_id` is to go; `id` becomes the session's.

    `fresh_id` is the id of a new one, for the case that none is free. An inbox session has no peer.
    """

    workspace_id: str
    fresh_id: str
    id: str = ""
    agent_id: str
    channel: str = "relay"
    peer_id: str = ""
    peer_name: str = ""
    opener_kind: str
    opener_id: str
    opener_session_id: str = ""
    # A session of its own, with this title, which is found by its id alone.
    title: str = ""

    @property
    def pair(self) -> str:
        """The agent and for whom the session is."""
        return f"{self.agent_id}/{self.peer_id}"


def settle(book: Book, wishes: Sequence[SessionWish]) -> None:
    """Give every wish the lowest-numbered session of its pair in which no turn runs, made where missing."""
    groups: dict[tuple[str, str], list[SessionWish]] = defaultdict(list)
    for wish in wishes:
        groups[wish.workspace_id, wish.channel].append(wish)
    fresh: list[dict[str, Any]] = []
    for (workspace_id, channel), group in groups.items():
        known = _known(book.connection, workspace_id, channel, group)
        for wish in group:
            if wish.title:
                wish.id = wish.fresh_id
                fresh.append(_row(book, wish, wish.title, 0))
                continue
            numbers = known[wish.pair]
            # An inbox session is one alone, whatever runs in it.
            busy = {number: taken and channel != "mcp" for number, (_, taken) in numbers.items()}
            number = lowest_free(busy)
            if number in numbers:
                wish.id = numbers[number][0]
                continue
            wish.id = wish.fresh_id
            numbers[number] = (wish.id, False)
            title = "Inbox" if channel == "mcp" else session_title(wish.peer_name, number)
            fresh.append(_row(book, wish, title, number))
    insert(book.connection, sessions, fresh)


def _row(book: Book, wish: SessionWish, title: str, number: int) -> dict[str, Any]:
    """Return a new session's row."""
    return {
        "workspace_id": wish.workspace_id,
        "id": wish.id,
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
        "created_at": book.now,
        "ordinal": book.ordinal(wish.workspace_id),
    }


def _known(
    connection: Connection, workspace_id: str, channel: str, wishes: Iterable[SessionWish]
) -> dict[str, dict[int, tuple[str, bool]]]:
    """Return the sessions of the pairs: by number, the id and whether it is taken."""
    known: dict[str, dict[int, tuple[str, bool]]] = {wish.pair: {} for wish in wishes}
    values = {"workspace": workspace_id, "channel": channel, "pairs": sorted(known)}
    for session_id, pair, number, closed, running in _OF_PAIRS.all(connection, values):
        known[pair][number] = (session_id, closed or running != "")
    return known
