"""Messages by agent and by words: put in behind everything else, in the order of commits.

The two databases differ in full text alone: `found`, `_put_words` and `forget` have a branch for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, bindparam, delete, select, text, update

from hopline_relay.domain.search import Term, bare
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
    "SELECT ordinal, message_id FROM message_words WHERE words @@ CAST(:match AS tsquery)"
    " AND workspace_id = :workspace AND ordinal < :before ORDER BY ordinal DESC LIMIT :most"
)
_PUT_SQLITE: Final = text(
    "INSERT INTO message_words (workspace, ordinal, message, place, words)"
    " VALUES (:workspace, :ordinal, :message, :place, :words)"
)
# Whose they are stands among the words, behind a sign that no word has.
_PUT_POSTGRESQL: Final = text(
    "INSERT INTO message_words (workspace_id, ordinal, message_id, words) VALUES (:workspace, :ordinal,"
    " :message, to_tsvector('simple', :words) || array_to_tsvector(CAST(:place AS text[])))"
)
_GONE_SQLITE: Final = text("DELETE FROM message_words WHERE message_words MATCH :match")
_GONE_POSTGRESQL: Final = text(
    "DELETE FROM message_words WHERE workspace_id = :workspace AND message_id = :message"
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
    if not rows:
        return
    values = [{"workspace": workspace_id, "ordinal": row.ordinal, "message": row.id} for row in rows]
    if connection.dialect.name == "sqlite":
        for each, row in zip(values, rows, strict=True):
            each["place"] = " ".join(map(_token, (workspace_id, row.id, *sorted(parties[row.id]))))
            each["words"] = f"{row.subject} {row.body}"
        connection.execute(_PUT_SQLITE, values)
        return
    for each, row in zip(values, rows, strict=True):
        each["place"] = [f"@{agent}" for agent in sorted(parties[row.id])]
        each["words"] = " ".join(bare(f"{row.subject} {row.body}"))
    connection.execute(_PUT_POSTGRESQL, values)


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
        connection.execute(_GONE_SQLITE, [{"match": f"place:{_quoted(_token(row.id))}"} for row in rows])
    else:
        gone = [{"workspace": workspace_id, "message": row.id} for row in rows]
        connection.execute(_GONE_POSTGRESQL, gone)


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
        match = " & ".join([f"'@{key[1]}'", *map(_lexemes, wanted)])
        rows = connection.execute(_FIND_POSTGRESQL, {**values, "workspace": key[0], "match": match}).all()
    return [Place(row.ordinal, row.message_id) for row in rows]


def _token(identifier: str) -> str:
    """Return an id as one word of the index."""
    return identifier.replace("_", "")


def _lexemes(term: Term) -> str:
    """Return words that follow one another, in the language of PostgreSQL."""
    words = bare(" ".join(term.words))
    # Where nothing is left, what no message has.
    quoted = " <-> ".join(f"'{word}'" for word in words) or "'@'"
    return f"({quoted}{':*' if term.begins else ''})"


def _quoted(words: str) -> str:
    return '"' + words.replace('"', "") + '"'
