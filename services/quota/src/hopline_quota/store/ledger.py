"""What was paid in, on disk: the one thing here that no other service could tell again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from hopline_rpc.errors import HoplineError
from hopline_rpc.metrics import Family
from hopline_store import Database, after_commit
from sqlalchemy import Connection, func, select

from hopline_quota.domain import money
from hopline_quota.store.schema import deposits

Booked = Callable[[str, int], None]
"""Called with workspace and amount once a deposit is on disk."""


class Deposit(NamedTuple):
    """A row of the ledger; the amount in millionths of a credit."""

    workspace_id: str
    id: str
    amount: int
    note: str
    user_id: str
    user_name: str
    request_id: str
    created_at: float


class Ledger:
    """The deposits of all workspaces."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def ready(self) -> bool:
        """Tell whether its database answers."""
        return await self._database.ready()

    def measure(self, name: str) -> list[Family]:
        """Return how its writer keeps up."""
        return self._database.measure(name)

    async def totals(self) -> dict[str, int]:
        """Return what each workspace has paid in."""

        def read(conn: Connection) -> dict[str, int]:
            query = select(deposits.c.workspace_id, func.sum(deposits.c.amount))
            rows = conn.execute(query.group_by(deposits.c.workspace_id))
            return {workspace_id: int(total) for workspace_id, total in rows}

        return await self._database.reader.run(read)

    async def add(self, wanted: Deposit, booked: Booked) -> Deposit:
        """Write a deposit; a repeated request returns what it made first and books nothing.

        Other content under the same request is `request_id_conflict`.
        """
        return await self._database.writer.run(partial(_add, wanted=wanted, booked=booked))

    async def page(self, workspace_id: str, before: str, limit: int) -> Sequence[Deposit]:
        """Return deposits, newest first, from behind an id on; an empty one is the beginning."""

        def read(conn: Connection) -> Sequence[Deposit]:
            query = select(deposits).where(deposits.c.workspace_id == workspace_id)
            if before:
                query = query.where(deposits.c.id < before)
            return [Deposit(*row) for row in conn.execute(query.order_by(deposits.c.id.desc()).limit(limit))]

        return await self._database.reader.run(read)

    async def close(self) -> None:
        """Finish what is queued and close the database."""
        await self._database.close()


def _add(conn: Connection, wanted: Deposit, booked: Booked) -> Deposit:
    earlier = _earlier(conn, wanted)
    if earlier is not None:
        return earlier
    query = select(func.sum(deposits.c.amount)).where(deposits.c.workspace_id == wanted.workspace_id)
    total = int(conn.execute(query).scalar_one() or 0)
    if total + wanted.amount > money.MOST:
        raise HoplineError(
            "limit_reached",
            f"a workspace pays in {money.write(money.MOST)} at most; it has paid in {money.write(total)}",
            details={"limit": money.write(money.MOST), "used": money.write(total)},
        )
    conn.execute(deposits.insert().values(wanted._asdict()))
    after_commit(conn, partial(booked, wanted.workspace_id, wanted.amount))
    return wanted


def _earlier(conn: Connection, wanted: Deposit) -> Deposit | None:
    if not wanted.request_id:
        return None
    query = select(deposits).where(
        deposits.c.workspace_id == wanted.workspace_id,
        deposits.c.user_id == wanted.user_id,
        deposits.c.request_id == wanted.request_id,
    )
    row = conn.execute(query).first()
    if row is None:
        return None
    found = Deposit(*row)
    if (found.amount, found.note) != (wanted.amount, wanted.note):
        raise HoplineError(
            "request_id_conflict",
            "this request_id was used before with another amount or note; use a new one",
            details={"request_id": wanted.request_id},
        )
    return found
