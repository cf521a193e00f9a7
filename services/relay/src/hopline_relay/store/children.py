"""Children: sessions that a session has started by `start_subagent`, and what they still owe it.

A child lives as long as the turn of its task is queued or running. What it owes is the debt of that turn,
which ends with a report, with the turn, or when somebody ends the turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from hopline_rpc.errors import HoplineError
from sqlalchemy import Connection, and_, bindparam, func, select, update

from hopline_relay.domain.values import MAX_CHILDREN, TASK
from hopline_relay.store.book import Book
from hopline_relay.store.bulk import by_id, grouped
from hopline_relay.store.schema import LIVE, OPEN, children, debts, deliveries, sessions
from hopline_relay.store.sql import Record, Statement, insert

if TYPE_CHECKING:
    from hopline_relay.store.outgoing import Outgoing

Key = tuple[str, str]
"""Workspace and session."""

_OWING: Final = Statement(
    select(children)
    .join(debts, and_(debts.c.workspace_id == children.c.workspace_id, debts.c.turn_id == children.c.turn_id))
    .where(
        children.c.workspace_id == bindparam("workspace"),
        children.c.state == LIVE,
        children.c.parent_session_id == bindparam("parent"),
        debts.c.state == OPEN,
    )
)
_COUNT: Final = Statement(
    select(children.c.parent_session_id, func.count().label("live"))
    .where(
        children.c.workspace_id == bindparam("workspace"),
        children.c.state == LIVE,
        children.c.parent_session_id.in_(bindparam("parents", expanding=True)),
    )
    .group_by(children.c.parent_session_id),
    "parents",
)
_END: Final = Statement(
    update(children)
    .where(
        children.c.workspace_id == bindparam("workspace"),
        children.c.turn_id == bindparam("turn"),
        children.c.state == LIVE,
    )
    .values(state="ended")
)
_REVIVE: Final = Statement(
    update(children)
    .where(
        children.c.workspace_id == bindparam("workspace"),
        children.c.turn_id == bindparam("turn"),
        children.c.state == "ended",
    )
    .values(state="live", turn_id=bindparam("fresh"))
)


def owing(connection: Connection, workspace_id: str, session_id: str, root_id: str = "") -> list[Record]:
    """Return the live children of a session that owe it a report, of one root where it is named.

    Rows of `children`: `session_id` and `agent_id` are the child's, `turn_id` and `message_id` its task's.
    """
    rows = _OWING.all(connection, {"workspace": workspace_id, "parent": session_id})
    return [row for row in rows if root_id in ("", row.root_id)]


def live(connection: Connection, keys: Iterable[Key]) -> Counter[Key]:
    """Return how many live children each of these sessions has."""
    found: Counter[Key] = Counter()
    for workspace_id, ids in grouped(keys).items():
        for row in _COUNT.all(connection, {"workspace": workspace_id, "parents": ids}):
            found[workspace_id, row.parent_session_id] = row.live
    return found


def of_sessions(connection: Connection, keys: Iterable[Key]) -> dict[Key, Record]:
    """Return what is known of these sessions as children, for those that are."""
    return by_id(connection, children, keys, children.c.session_id)


_OF_MESSAGE: Final = Statement(
    select(children)
    .join(
        deliveries,
        and_(
            deliveries.c.workspace_id == children.c.workspace_id,
            deliveries.c.session_id == children.c.session_id,
        ),
    )
    .where(
        deliveries.c.workspace_id == bindparam("workspace"), deliveries.c.message_id == bindparam("message")
    )
)


def of_message(connection: Connection, workspace_id: str, message_id: str) -> list[Record]:
    """Return the children in whose sessions a message was delivered."""
    return _OF_MESSAGE.all(connection, {"workspace": workspace_id, "message": message_id})


def refusals(book: Book, outgoing: Sequence[Outgoing]) -> list[HoplineError | None]:
    """Say which of these messages may not start a child from where they come; counts the links of others.

    Everything here is looked at in the transaction that writes them: no two starts pass a limit together,
    and none comes after its session was closed.
    """
    tasks = [message for message in outgoing if message.kind == TASK]
    found: list[HoplineError | None] = [None] * len(outgoing)
    if not tasks:
        return found
    keys = {(message.workspace_id, message.session_id) for message in tasks if message.session_id}
    closed = {key for key, row in by_id(book.connection, sessions, keys).items() if row.closed}
    known = of_sessions(book.connection, keys)
    counts = live(book.connection, keys)
    for index, message in enumerate(outgoing):
        if message.kind != TASK:
            continue
        key = (message.workspace_id, message.session_id)
        parent = known.get(key)
        links = max(message.subagent_links, message.sender_links, parent.links if parent is not None else 0)
        if key in closed:
            found[index] = HoplineError("session_closed", "the session that starts it is closed")
        elif links >= message.most_links:
            found[index] = _too_deep(links, message.most_links)
        elif counts[key] >= MAX_CHILDREN:
            found[index] = _too_many()
        else:
            counts[key] += 1
            message.subagent_links = links + 1
    return found


def add(book: Book, written: Sequence[Outgoing]) -> None:
    """Record the children that these messages start."""
    insert(book.connection, children, [_row(book, each) for each in written if each.kind == TASK])


def ended(connection: Connection, rows: Sequence[Record]) -> None:
    """Say that the tasks among these turns are finished."""
    tasks = [{"workspace": row.workspace_id, "turn": row.id} for row in rows if row.cause == TASK]
    _END.many(connection, tasks)


def revived(connection: Connection, rows: Sequence[Record], fresh_ids: Mapping[str, str]) -> None:
    """Say that the tasks among these turns, which had died, are worked on by other ones."""
    tasks = [
        {"workspace": row.workspace_id, "turn": row.id, "fresh": fresh_ids[row.id]}
        for row in rows
        if row.cause == TASK
    ]
    _REVIVE.many(connection, tasks)


def _row(book: Book, message: Outgoing) -> dict[str, Any]:
    copy = message.copies[0]
    return {
        "workspace_id": message.workspace_id,
        "session_id": copy.session_id,
        "agent_id": copy.id,
        "parent_session_id": message.session_id,
        "parent_agent_id": message.sender.id,
        "message_id": message.id,
        "turn_id": copy.turn_id,
        "root_id": message.root_id,
        "links": message.subagent_links,
        "fire_and_forget": not message.owed,
        "state": "live",
        "created_at": book.now,
    }


def _too_deep(links: int, most: int) -> HoplineError:
    text = (
        f"a subagent starts no subagents here ({links} starts of subagents lead to you, and the limit is "
        f"{most}): do it yourself, ask another agent, or report what you have"
        if links
        else "no agent of this workspace may start subagents: ask another agent instead"
    )
    details = {"rail": "subagent_depth", "limit": most, "used": links}
    return HoplineError("depth_exceeded", text, details=details)


def _too_many() -> HoplineError:
    text = (
        f"this session has {MAX_CHILDREN} unfinished subagents, the most there may be; wait for a report, or "
        "end one with close_subagent"
    )
    return HoplineError(
        "limit_reached", text, details={"rail": "children", "limit": MAX_CHILDREN, "used": MAX_CHILDREN}
    )
