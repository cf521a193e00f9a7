"""What is kept of a root beside its turns: what people granted it, and that it was refused more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, and_, bindparam, func, or_, select, update

from hopline_relay.domain.escalations import KIND_ANSWER
from hopline_relay.domain.values import WAKES
from hopline_relay.store.book import Book
from hopline_relay.store.bulk import grouped
from hopline_relay.store.schema import roots, turns
from hopline_relay.store.sql import Record, Statement, insert

Key = tuple[str, str]

_FIRST = Statement(
    select(turns)
    .where(turns.c.workspace_id == bindparam("workspace"), turns.c.root_id == bindparam("root"))
    .order_by(turns.c.ordinal)
    .limit(1)
)
# What the mesh itself says is charged to nobody, but for what it wakes; and neither is an owner's answer.
_CHARGED = and_(
    or_(turns.c.caused_by_kind != "mesh", *(turns.c.cause == kind for kind in sorted(WAKES))),
    turns.c.cause != KIND_ANSWER,
)
_COUNT = Statement(
    select(func.count()).where(
        turns.c.workspace_id == bindparam("workspace"),
        turns.c.root_id == bindparam("root"),
        _CHARGED,
    )
)
_FIND = Statement(
    select(roots).where(roots.c.workspace_id == bindparam("workspace"), roots.c.id == bindparam("root"))
)
_EXTEND = Statement(
    update(roots)
    .where(roots.c.workspace_id == bindparam("workspace"), roots.c.id == bindparam("root"))
    .values(extra_turns=roots.c.extra_turns + bindparam("more"), exhausted_at=None)
)
_EXHAUST = Statement(
    update(roots)
    .where(
        roots.c.workspace_id == bindparam("workspace"),
        roots.c.id == bindparam("root"),
        roots.c.exhausted_at.is_(None),
    )
    .values(exhausted_at=bindparam("at"))
)


def first_turn(connection: Connection, workspace_id: str, root_id: str) -> Record | None:
    """Return the turn that a root began with."""
    return _FIRST.one(connection, {"workspace": workspace_id, "root": root_id})


def began_with(first: Record) -> str:
    """Return the agent whose root it is: the prompted one, or the one that started it outside any turn."""
    return str(first.caused_by_id if first.caused_by_kind == "agent" else first.agent_id)


def count(connection: Connection, workspace_id: str, root_id: str) -> int:
    """Return how many turns a root has started."""
    return int(_COUNT.scalars(connection, {"workspace": workspace_id, "root": root_id})[0])


def find(connection: Connection, workspace_id: str, root_id: str) -> Record | None:
    """Return what is kept of a root; None where nobody ever said or noted anything of it."""
    return _FIND.one(connection, {"workspace": workspace_id, "root": root_id})


def extend(book: Book, workspace_id: str, root_id: str, agent_id: str, more: int) -> None:
    """Grant a root more turns; it counts as exhausted no longer."""
    values = {"workspace": workspace_id, "root": root_id, "more": more}
    if not _EXTEND.run(book.connection, values):
        insert(book.connection, roots, [_row(workspace_id, root_id, agent_id, extra=more)])


def exhaust(book: Book, workspace_id: str, root_id: str, agent_id: str) -> bool:
    """Note that a root was refused turns; False where that is known."""
    known = find(book.connection, workspace_id, root_id)
    if known is None:
        row = _row(workspace_id, root_id, agent_id, at=book.now)
        insert(book.connection, roots, [row])
        return True
    values = {"workspace": workspace_id, "root": root_id, "at": book.now}
    return bool(_EXHAUST.run(book.connection, values))


def _row(
    workspace_id: str, root_id: str, agent_id: str, *, extra: int = 0, at: float | None = None
) -> dict[str, object]:
    return {
        "workspace_id": workspace_id,
        "id": root_id,
        "agent_id": agent_id,
        "extra_turns": extra,
        "exhausted_at": at,
    }


def exhausted(
    connection: Connection,
    workspace_id: str,
    agents: Sequence[str],
    before: tuple[float, str] | None,
    limit: int,
) -> Sequence[Record]:
    """Return exhausted roots of these agents, the latest first."""
    query = select(roots).where(
        roots.c.workspace_id == workspace_id,
        roots.c.exhausted_at.is_not(None),
        roots.c.agent_id.in_(agents),
    )
    if before is not None:
        at, root_id = before
        later = and_(roots.c.exhausted_at == at, roots.c.id < root_id)
        query = query.where(or_(roots.c.exhausted_at < at, later))
    return connection.execute(
        query.order_by(roots.c.exhausted_at.desc(), roots.c.id.desc()).limit(limit)
    ).all()


_STARTED = Statement(
    select(turns.c.root_id, func.count())
    .where(
        turns.c.workspace_id == bindparam("workspace"),
        turns.c.root_id.in_(bindparam("roots", expanding=True)),
        _CHARGED,
    )
    .group_by(turns.c.root_id),
    "roots",
)
_EXTRAS = Statement(
    select(roots.c.id, roots.c.extra_turns).where(
        roots.c.workspace_id == bindparam("workspace"), roots.c.id.in_(bindparam("roots", expanding=True))
    ),
    "roots",
)


def counts(connection: Connection, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], tuple[int, int]]:
    """Return how many turns roots have started, and what they were granted; by (workspace, id)."""
    found: dict[Key, tuple[int, int]] = {}
    for workspace_id, ids in grouped(keys).items():
        for start in range(0, len(ids), 500):
            values = {"workspace": workspace_id, "roots": ids[start : start + 500]}
            extra = dict(_EXTRAS.all(connection, values))
            for root_id, started in _STARTED.all(connection, values):
                found[workspace_id, root_id] = (started, extra.get(root_id, 0))
    return found
