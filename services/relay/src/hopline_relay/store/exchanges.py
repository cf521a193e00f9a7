"""Messages by agent and by words: put in behind everything else, in the order of commits.

The two databases differ in full text alone: `found`, `_put_words` and `forget` have a branch for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, bindparam, delete, select, text, update

from hopline_relay.domain.search import Term
from hopline_relay.store.book import Book
from hopline_relay.store.copies import copies_of
from hopline_relay.store.schema import exchange_marks, exchanges, heads, messages
from hopline_relay.store.sql import Record, Statement, insert

# So many messages are put in with one transaction.
BATCH: Final = 300

_MARK: Final = Statement(
    select(exchange_marks).where(exchange_marks.c.workspace_id == bindparam("workspace"))
)
_SET_MARK: Final = Statement(
    update(exchange_marks)
    .where(exchange_marks.c.workspace_id == bindparam("workspace"))
    .values(through=bindparam("reached"))
)
_BEHIND: Final = Statement(
    select(messages)
    .where(messages.c.workspace_id == bindparam("workspace"), messages.c.ordinal > bindparam("after"))
    .order_by(messages.c.ordinal)
    .limit(BATCH)
)
_PAGE: Final = Statement(
    select(exchanges.c.ordinal, exchanges.c.message_id)
    .where(
        exchanges.c.workspace_id == bindparam("workspace"),
        exchanges.c.agent_id == bindparam("agent"),
        exchanges.c.ordinal < bindparam("before"),
    )
    .order_by(exchanges.c.ordinal.desc())
    .limit(bindparam("most"))
)
_FIND_SQLITE: Final = text(
    "SELECT ordinal, message AS message_id FROM message_words WHERE message_words MATCH :match"
    " AND ordinal < :before ORDER BY rowid DESC LIMIT :most"
)
_FIND_POSTGRESQL: Final = text(
    "SELECT e.ordinal, e.message_id FROM exchanges e JOIN messages m ON m.workspace_id = e.workspace_id"
    " AND m.id = e.message_id WHERE e.workspace_id = :workspace AND e.agent_id = :agent"
    " AND e.ordinal < :before"
    " AND to_tsvector('simple', m.subject || ' ' || m.body) @@ to_tsquery('simple', :match)"
    " ORDER BY e.ordinal DESC LIMIT :most"
)


@dataclass(frozen=True, slots=True)
class Place:
    """A message, and where it stands in the order."""

    ordinal: int
    message_id: str


def workspaces_behind(connection: Connection) -> list[str]:
    """Return the workspaces in which something was written that is not put in yet, perhaps."""
    reached = {row.workspace_id: row.through for row in connection.execute(select(exchange_marks))}
    return [
        row.workspace_id
        for row in connection.execute(select(heads))
        if row.ordinal > reached.get(row.workspace_id, 0)
    ]


def put_in(book: Book, workspace_id: str) -> bool:
    """Put the next messages in; tells whether there may be more."""
    connection = book.connection
    mark = _MARK.one(connection, {"workspace": workspace_id})
    rows = _BEHIND.all(connection, {"workspace": workspace_id, "after": mark.through if mark else 0})
    if not rows:
        return False
    copies = copies_of(connection, [(workspace_id, row.id) for row in rows])
    parties = {row.id: _parties(row, copies[workspace_id, row.id]) for row in rows}
    values = [
        {"workspace_id": workspace_id, "agent_id": agent, "ordinal": row.ordinal, "message_id": row.id}
        for row in rows
        for agent in sorted(parties[row.id])
    ]
    if values:
        insert(connection, exchanges, values)
    _put_words(connection, workspace_id, [row for row in rows if parties[row.id]], parties)
    if mark is None:
        row = {"workspace_id": workspace_id, "through": rows[-1].ordinal}
        insert(connection, exchange_marks, [row])
    else:
        _SET_MARK.run(connection, {"workspace": workspace_id, "reached": rows[-1].ordinal})
    return len(rows) == BATCH


def _parties(row: Record, copies: Sequence[Record]) -> set[str]:
    found = {copy.recipient_id for copy in copies if copy.recipient_kind == "agent"}
    return found | ({row.from_id} if row.from_kind == "agent" else set())


def _put_words(
    connection: Connection, workspace_id: str, rows: Sequence[Record], parties: dict[str, set[str]]
) -> None:
    if connection.dialect.name != "sqlite" or not rows:
        return
    connection.execute(
        text(
            "INSERT INTO message_words (workspace, ordinal, message, place, words)"
            " VALUES (:workspace, :ordinal, :message, :place, :words)"
        ),
        [
            {
                "workspace": workspace_id,
                "ordinal": row.ordinal,
                "message": row.id,
                "place": " ".join(map(_token, (workspace_id, row.id, *sorted(parties[row.id])))),
                "words": f"{row.subject} {row.body}",
            }
            for row in rows
        ],
    )


def forget(
    connection: Connection, workspace_id: str, rows: Sequence[Record], copies: Sequence[Record]
) -> None:
    """Take out messages that are deleted, given with their copies."""
    if not rows:
        return
    parties = {row.from_id for row in rows} | {copy.recipient_id for copy in copies}
    connection.execute(
        delete(exchanges).where(
            exchanges.c.workspace_id == workspace_id,
            exchanges.c.agent_id.in_(parties),
            exchanges.c.ordinal.in_([row.ordinal for row in rows]),
        )
    )
    if connection.dialect.name == "sqlite":
        gone = text("DELETE FROM message_words WHERE message_words MATCH :match")
        connection.execute(gone, [{"match": f"place:{_quoted(_token(row.id))}"} for row in rows])


def page(connection: Connection, key: tuple[str, str], before: int, most: int) -> list[Place]:
    """Return the newest messages of an agent, given by (workspace, id)."""
    values = {"workspace": key[0], "agent": key[1], "before": before, "most": most}
    return [Place(row.ordinal, row.message_id) for row in _PAGE.all(connection, values)]


def found(
    connection: Connection, key: tuple[str, str], wanted: Sequence[Term], before: int, most: int
) -> list[Place]:
    """Return the newest messages of an agent in which all of this is."""
    values: dict[str, Any] = {"before": before, "most": most}
    if connection.dialect.name == "sqlite":
        words = " AND ".join(
            f"{_quoted(' '.join(each.words))}{'*' if each.begins else ''}" for each in wanted
        )
        place = " AND ".join(_quoted(_token(each)) for each in key)
        rows = connection.execute(
            _FIND_SQLITE, {**values, "match": f"place:({place}) AND words:({words})"}
        ).all()
    else:
        match = " & ".join(f"({' <-> '.join(each.words)}{':*' if each.begins else ''})" for each in wanted)
        rows = connection.execute(
            _FIND_POSTGRESQL, {**values, "workspace": key[0], "agent": key[1], "match": match}
        ).all()
    return [Place(row.ordinal, row.message_id) for row in rows]


def _token(identifier: str) -> str:
    """Return an id as one word of the index."""
    return identifier.replace("_", "")


def _quoted(words: str) -> str:
    return '"' + words.replace('"', "") + '"'
