"""What every feature of the registry works with: one transaction a write, with its changes for the feed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from google.protobuf.message import Message
from hopline.registry.v1.visibility_pb2 import AuditNote, Change
from hopline_directory import Directory, needs_role
from hopline_rpc.clock import Clock, to_timestamp
from hopline_rpc.errors import HoplineError, request_conflict
from hopline_rpc.ids import IdMaker
from hopline_rpc.principals import Principal
from hopline_store import Database, after_commit
from sqlalchemy import Connection

from hopline_registry.feed import Feed
from hopline_registry.store import feed as rows
from hopline_registry.store import people

T = TypeVar("T")
P = TypeVar("P")
R = TypeVar("R")

REQUEST_SECONDS: Final = 86_400.0
# Who acts when the registry does something by itself.
ITSELF: Final = Principal("service", "registry", "", "registry")


@dataclass
class Tx:
    """One write: a transaction, the moment it happens, who acts, and what it changes."""

    conn: Connection
    now: float
    ids: IdMaker
    actor: Principal
    changes: list[Change] = field(default_factory=list)

    def changed(
        self, workspace_id: str, action: str, details: Mapping[str, Any] | None = None, **entity: Any
    ) -> None:
        """Record a change: the entity for the view (`agent=...`), action and details for the audit log."""
        note = AuditNote(
            action=action,
            actor_kind=self.actor.kind,
            actor_id=self.actor.id,
            actor_name=self.actor.name,
        )
        note.details.update(dict(details or {}))
        change = Change(workspace_id=workspace_id, at=to_timestamp(self.now), audit=note, **entity)
        self.changes.append(change)

    def workspace_role(self) -> int:
        """Return the actor's role on its workspace."""
        if self.actor.kind != "user":
            return 0
        return people.roles_of(self.conn, self.actor.workspace_id, self.actor.id).get("", 0)

    def require(self, role: int) -> None:
        """Refuse whoever does not hold a role on the workspace."""
        if self.workspace_role() < role:
            raise needs_role(role)

    def earlier(self, request: Message, request_id: str) -> str | None:
        """Return the id of what the same request made before; other content is `request_id_conflict`."""
        if not request_id:
            return None
        rows.forget_requests(self.conn, self.now - REQUEST_SECONDS)
        found = rows.remembered(self.conn, self._request(request_id))
        if found is None:
            return None
        digest, result_id = found
        if digest != _digest(request):
            raise request_conflict(request_id)
        return result_id

    def made(self, request: Message, request_id: str, result_id: str) -> None:
        """Remember what a request made."""
        if request_id:
            rows.remember(self.conn, self._request(request_id), _digest(request), result_id, self.now)

    def _request(self, request_id: str) -> rows.Request:
        return rows.Request(self.actor.workspace_id, self.actor.id, request_id)


def _digest(request: Message) -> str:
    content = request.SerializeToString(deterministic=True)
    return hashlib.sha256(request.DESCRIPTOR.full_name.encode() + b"\0" + content).hexdigest()


@dataclass(frozen=True)
class Core:
    """Shared by all features."""

    db: Database
    directory: Directory
    feed: Feed
    clock: Clock
    ids: IdMaker

    async def write(self, actor: Principal, op: Callable[[Tx], T]) -> T:
        """Run `op` as one transaction; returns when its changes hold wherever somebody watches.

        `op` may be run twice and must change nothing outside the transaction.
        """
        result, last = await self.db.writer.run(partial(self._run, actor, op))
        if last:
            await self.feed.consumed(last)
        return result

    def _run(self, actor: Principal, op: Callable[[Tx], T], conn: Connection) -> tuple[T, int]:
        tx = Tx(conn, self.clock.now(), self.ids, actor)
        result = op(tx)
        if not tx.changes:
            return result, 0
        last = rows.append(conn, tx.changes, tx.now)
        after_commit(conn, partial(self.feed.publish, tx.changes))
        return result, last

    async def look(self, actor: Principal, fn: Callable[[Tx], T]) -> T:
        """Run a read that goes by the actor's roles; it changes nothing."""
        return await self.read(lambda conn: fn(Tx(conn, self.clock.now(), self.ids, actor)))

    async def read(self, fn: Callable[[Connection], T]) -> T:
        """Run a read."""
        return await self.db.reader.run(fn)


def filtered(
    fetch: Callable[[P, int], Sequence[R]],
    keep: Callable[[R], bool],
    place: Callable[[R], P],
    after: P,
    limit: int,
) -> tuple[list[R], bool]:
    """Return a page of the rows that `keep` accepts, and whether more follow.

    `fetch(after, limit)` returns rows in order; `place` is where a row stands in it.
    """
    page: list[R] = []
    while True:
        found = fetch(after, limit + 1)
        page += [row for row in found if keep(row)]
        if len(page) > limit or len(found) <= limit:
            return page[:limit], len(page) > limit
        after = place(found[-1])


def require_unchanged(
    before: Mapping[str, Any], expected: Mapping[str, Any], after: Mapping[str, Any]
) -> None:
    """Refuse to change what its caller has not seen: what somebody else has made of it meanwhile."""
    names = [name for name in expected if before[name] not in (expected[name], after[name])]
    if names:
        raise HoplineError(
            "failed_precondition",
            f"somebody else has changed {', '.join(names)} meanwhile: look at it again",
            violations=tuple((name, "somebody else has changed it meanwhile") for name in names),
        )
