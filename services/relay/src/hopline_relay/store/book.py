"""One transaction on the record: its numbers, and what the audit log will say of it."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Final

from sqlalchemy import Connection, bindparam, select, update

from hopline_relay.domain.values import Actor
from hopline_relay.store.schema import audit_events, credit_accounts, heads
from hopline_relay.store.sql import Statement, insert

_LOCKED = Statement(
    select(heads.c.ordinal, heads.c.audit_seq)
    .where(heads.c.workspace_id == bindparam("workspace"))
    .with_for_update()
)
_WRITE = Statement(
    update(heads)
    .where(heads.c.workspace_id == bindparam("workspace"))
    .values(ordinal=bindparam("new_ordinal"), audit_seq=bindparam("new_seq"))
)
_CHARGE = Statement(
    update(credit_accounts)
    .where(credit_accounts.c.workspace_id == bindparam("workspace"))
    .values(charged=credit_accounts.c.charged + bindparam("amount"))
)


# Under which key an event's details say in whose name an agent acted, as its owner was called then.
OWNER: Final = "for"


def in_its_name(actor: Actor, details: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the details of an event with the owner of the agent that caused it, where it has one."""
    return {OWNER: actor.owner, **(details or {})} if actor.owner else details


class _Head:
    __slots__ = ("audit_seq", "fresh", "ordinal")

    def __init__(self, ordinal: int, audit_seq: int, *, fresh: bool) -> None:
        self.ordinal = ordinal
        self.audit_seq = audit_seq
        self.fresh = fresh


class Book:
    """Hands out ordinals and collects audit rows; `close` writes both.

    `now` is the moment the transaction is dated to, in unix seconds; `within` says which workspaces it is
    about, where that is known.
    """

    def __init__(self, connection: Connection, now: float, within: Collection[str] | None = None) -> None:
        self.connection = connection
        self.now = now
        self._within = within
        self._heads: dict[str, _Head] = {}
        self._notes: list[dict[str, Any]] = []
        self._charges: dict[str, int] = {}

    def charge(self, workspace_id: str, amount: int) -> None:
        """Charge a workspace for its turns, in millionths of a credit; below 0 is given back."""
        self._charges[workspace_id] = self._charges.get(workspace_id, 0) + amount

    def lock(self, workspace_id: str) -> None:
        """Let no other transaction write in this workspace before this one is through.

        Whatever takes a number does so by itself; what changes a row and notes it only then calls this first.
        """
        self._head(workspace_id)

    def ordinal(self, workspace_id: str) -> int:
        """Return the workspace's next ordinal."""
        head = self._head(workspace_id)
        head.ordinal += 1
        return head.ordinal

    def note(
        self,
        workspace_id: str,
        action: str,
        actor: Actor,
        *,
        agent_id: str = "",
        thread_id: str = "",
        message_id: str = "",
        turn_id: str = "",
        session_id: str = "",
        details: Mapping[str, Any] | None = None,
        trace_id: str = "",
        at: float | None = None,
    ) -> int:
        """Add an event to the audit log; returns its number."""
        details = in_its_name(actor, details)
        head = self._head(workspace_id)
        head.audit_seq += 1
        self._notes.append(
            {
                "workspace_id": workspace_id,
                "seq": head.audit_seq,
                "at": self.now if at is None else at,
                "action": action,
                "actor_kind": actor.kind,
                "actor_id": actor.id,
                "actor_name": actor.name,
                "agent_id": agent_id,
                "thread_id": thread_id,
                "message_id": message_id,
                "turn_id": turn_id,
                "session_id": session_id,
                "details": json.dumps(details, ensure_ascii=False) if details else "",
                "trace_id": trace_id,
            }
        )
        return head.audit_seq

    def close(self) -> list[str]:
        """Write what was collected; returns the workspaces whose audit log has grown."""
        insert(self.connection, audit_events, self._notes)
        for workspace_id, amount in self._charges.items():
            values = {"workspace": workspace_id, "amount": amount}
            if amount and not _CHARGE.run(self.connection, values):
                insert(self.connection, credit_accounts, [{"workspace_id": workspace_id, "charged": amount}])
        for workspace_id, head in self._heads.items():
            if head.fresh:
                row = {"workspace_id": workspace_id, "ordinal": head.ordinal, "audit_seq": head.audit_seq}
                insert(self.connection, heads, [row])
            else:
                _WRITE.run(
                    self.connection,
                    {"workspace": workspace_id, "new_ordinal": head.ordinal, "new_seq": head.audit_seq},
                )
        return sorted({note["workspace_id"] for note in self._notes})

    def _head(self, workspace_id: str) -> _Head:
        head = self._heads.get(workspace_id)
        if head is None:
            if self._within is not None and workspace_id not in self._within:
                # Nothing would keep another process out.
                raise RuntimeError(f"a transaction within {self._within} writes in {workspace_id}")
            row = _LOCKED.one(self.connection, {"workspace": workspace_id})
            head = _Head(row[0], row[1], fresh=False) if row else _Head(0, 0, fresh=True)
            self._heads[workspace_id] = head
        return head
