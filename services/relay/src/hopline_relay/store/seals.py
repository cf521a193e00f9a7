"""The seals of the audit log: what comes next in the chain, and which link an event had when sealed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import Connection, String, bindparam, delete, select

from hopline_relay.domain.chain import COLUMNS, LINK_BYTES, Head, beginning, next_link
from hopline_relay.store.audit import last_seq
from hopline_relay.store.book import Book
from hopline_relay.store.schema import audit_cuts, audit_events, audit_seals, heads, instances
from hopline_relay.store.sql import Record, Statement, insert

# Repeats of a refusal are counted in its row for a minute (`refusals.py`); until then it is not sealed.
COUNTED_SECONDS: Final = 75.0
_COUNTED: Final = frozenset({"message.refused", "call.refused"})

_WORKSPACE: Final = bindparam("workspace", type_=String)
_TAIL: Final = Statement(
    select(audit_seals.c.last_seq, audit_seals.c.link)
    .where(audit_seals.c.workspace_id == _WORKSPACE, audit_seals.c.first_seq <= bindparam("number"))
    .order_by(audit_seals.c.first_seq.desc())
    .limit(1)
)
_COVERING: Final = Statement(
    select(audit_seals)
    .where(audit_seals.c.workspace_id == _WORKSPACE, audit_seals.c.first_seq <= bindparam("number"))
    .order_by(audit_seals.c.first_seq.desc())
    .limit(1)
)
_CUT: Final = Statement(
    select(audit_cuts.c.seq, audit_cuts.c.link).where(audit_cuts.c.workspace_id == _WORKSPACE)
)
_EVENTS: Final = Statement(
    select(*(audit_events.c[name] for name in COLUMNS))
    .where(
        audit_events.c.workspace_id == _WORKSPACE,
        audit_events.c.seq > bindparam("after"),
        audit_events.c.seq <= bindparam("last"),
    )
    .order_by(audit_events.c.seq)
    .limit(bindparam("most"))
)
_NEXT: Final = Statement(
    select(audit_seals.c.first_seq, audit_seals.c.last_seq, audit_seals.c.link)
    .where(audit_seals.c.workspace_id == _WORKSPACE, audit_seals.c.first_seq > bindparam("after"))
    .order_by(audit_seals.c.first_seq)
    .limit(bindparam("most"))
)
_SEALS: Final = 200
_ALIVE: Final = Statement(
    select(instances.c.id).where(instances.c.id == bindparam("instance"), instances.c.ended_at.is_(None))
)
END: Final = 2**62


@dataclass(slots=True)
class Ahead:
    """What can be sealed next: the links of the events after `tail`."""

    tail: Head
    links: list[bytes] = field(default_factory=list)
    more: bool = False
    # When the next event can be sealed, in unix seconds, where its row is still being counted in.
    held_until: float | None = None
    # The number of an event that should be there and is not.
    missing: int = 0

    @property
    def head(self) -> Head:
        """Return where the chain stands once these are sealed."""
        return Head(self.tail.seq + len(self.links), self.links[-1]) if self.links else self.tail


def tail(connection: Connection, workspace_id: str) -> Head:
    """Return where the sealed chain ends."""
    row = _TAIL.one(connection, {"workspace": workspace_id, "number": END})
    if row is not None:
        return Head(row.last_seq, row.link)
    return cut(connection, workspace_id) or beginning(workspace_id)


def cut(connection: Connection, workspace_id: str) -> Head | None:
    """Return the newest event that retention has deleted; None while the log is whole."""
    row = _CUT.one(connection, {"workspace": workspace_id})
    return Head(row.seq, row.link) if row is not None else None


def covering(connection: Connection, workspace_id: str, seq: int) -> Record | None:
    """Return the seal that begins with an event or before it; the event need not be within it."""
    return _COVERING.one(connection, {"workspace": workspace_id, "number": seq})


def sealed_link(seal: Record, seq: int) -> bytes:
    """Return the link that a seal holds for an event; empty when it holds none."""
    start = (seq - seal.first_seq) * LINK_BYTES
    return bytes(seal.links[start : start + LINK_BYTES])


def events(connection: Connection, workspace_id: str, after: int, last: int, most: int) -> list[Record]:
    """Return the hashed columns of events behind `after` up to `last`, in order."""
    return _EVENTS.all(connection, {"workspace": workspace_id, "after": after, "last": last, "most": most})


def ahead(connection: Connection, workspace_id: str, now: float, most: int) -> Ahead:
    """Return what can be sealed next, `most` events of it."""
    found = Ahead(tail(connection, workspace_id))
    link = found.tail.link
    # What was not written by a book is none of ours to seal.
    rows = events(connection, workspace_id, found.tail.seq, last_seq(connection, workspace_id), most)
    for seq, row in enumerate(rows, found.tail.seq + 1):
        if row.seq != seq:
            found.missing = seq
            return found
        if row.action in _COUNTED and abs(now - row.at) < COUNTED_SECONDS:
            found.held_until = row.at + COUNTED_SECONDS
            return found
        link = next_link(link, row)
        found.links.append(link)
    found.more = len(rows) == most
    return found


def seal(book: Book, workspace_id: str, found: Ahead, instance_id: str) -> bool:
    """Write a seal; False when another process has sealed meanwhile, or has declared this one dead."""
    if _ALIVE.one(book.connection, {"instance": instance_id}) is None:
        return False
    if tail(book.connection, workspace_id) != found.tail:
        return False
    row = {
        "workspace_id": workspace_id,
        "first_seq": found.tail.seq + 1,
        "last_seq": found.head.seq,
        "link": found.head.link,
        "links": b"".join(found.links),
        "sealed_at": book.now,
    }
    insert(book.connection, audit_seals, [row])
    return True


def old_head(connection: Connection, workspace_id: str, before: float) -> Head | None:
    """Return the end of the last seal before which all is older than `before`; None where nothing is."""
    old: Record | None = None
    after = cut(connection, workspace_id) or Head(0, b"")
    rows = {"workspace": workspace_id, "after": after.seq, "most": _SEALS}
    while seals := _NEXT.all(connection, rows):
        for seal in seals:
            last = events(connection, workspace_id, seal.last_seq - 1, seal.last_seq, 1)
            if not last or last[0].at >= before:
                return Head(old.last_seq, old.link) if old is not None else None
            old = seal
        rows["after"] = seals[-1].last_seq
    return Head(old.last_seq, old.link) if old is not None else None


def cut_at(book: Book, workspace_id: str, head: Head) -> None:
    """Let the log begin behind an event; what came before may be deleted from then on (`delete_cut`)."""
    row = {"workspace_id": workspace_id, "seq": head.seq, "link": head.link, "cut_at": book.now}
    book.connection.execute(delete(audit_cuts).where(audit_cuts.c.workspace_id == workspace_id))
    insert(book.connection, audit_cuts, [row])


def is_left_of_cut(connection: Connection, workspace_id: str) -> bool:
    """Tell whether there are events before the beginning of the log."""
    begins = cut(connection, workspace_id)
    return begins is not None and bool(events(connection, workspace_id, -END, begins.seq, 1))


def delete_cut(book: Book, workspace_id: str, most: int) -> None:
    """Delete some of the events before the beginning of the log, with their seals."""
    connection = book.connection
    begins = cut(connection, workspace_id)
    if begins is None:
        return
    old = events(connection, workspace_id, -END, begins.seq, most)
    if old:
        within = (audit_events.c.seq >= old[0].seq, audit_events.c.seq <= old[-1].seq)
        connection.execute(delete(audit_events).where(audit_events.c.workspace_id == workspace_id, *within))
    upto = begins.seq if len(old) < most else old[-1].seq
    connection.execute(
        delete(audit_seals).where(
            audit_seals.c.workspace_id == workspace_id,
            audit_seals.c.first_seq <= upto,
            audit_seals.c.last_seq <= upto,
        )
    )


def logged_workspaces(connection: Connection) -> Sequence[str]:
    """Return the workspaces that have a log."""
    return connection.execute(select(heads.c.workspace_id)).scalars().all()
