"""How answers that were held end: they are sent, or what owes them ends without one.

Each is one transaction: the answer, the debt, the prompt's delivery and what was held. Whoever waits for the
answer is told after it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from hopline.quota.v1 import admission_pb2 as quota_pb
from hopline_directory import Directory
from hopline_rpc.errors import HoplineError
from hopline_rpc.faults import point
from hopline_rpc.ids import IdMaker
from sqlalchemy import Connection, bindparam, update

from hopline_relay import answers
from hopline_relay.admission import Admission
from hopline_relay.callers import named
from hopline_relay.domain.values import Actor, Fault
from hopline_relay.journal import FencedError, Journal
from hopline_relay.store import debting, holds
from hopline_relay.store.book import Book
from hopline_relay.store.bulk import by_id
from hopline_relay.store.debting import Closed
from hopline_relay.store.outgoing import Outgoing
from hopline_relay.store.schema import debts, deliveries, messages, turns
from hopline_relay.store.sql import Record, Statement
from hopline_relay.store.turns import UNSERVED
from hopline_relay.store.writing import write
from hopline_relay.waits import Outcome, Waits

_TRIES: Final = 4
_SILENT: Final = Fault("ended_without_answer", "its turn ended without an answer")
_SERVE: Final = Statement(
    update(deliveries)
    .where(
        deliveries.c.workspace_id == bindparam("workspace"),
        deliveries.c.message_id == bindparam("message_key"),
        deliveries.c.recipient_id == bindparam("recipient"),
        UNSERVED,
    )
    .values(state=bindparam("new_state"))
)

May = Callable[[Book, Record], bool]
"""Tells, in the transaction, whether this draft may still be treated so."""


@dataclass(frozen=True, slots=True)
class _Owed:
    """The turn that owes an answer, its debt, and the message that asked."""

    turn: Record
    debt: Record
    asked: Record


class HoldEnds:
    """Ends what is held."""

    def __init__(
        self, journal: Journal, directory: Directory, admission: Admission, waits: Waits, ids: IdMaker
    ) -> None:
        self._journal = journal
        self._directory = directory
        self._admission = admission
        self._waits = waits
        self._ids = ids

    async def send(self, row: Record, actor: Actor, may: May, why: Fault = _SILENT) -> bool:
        """Send a draft as the answer; without one the answer ends for the reason `why`. False: it may not."""
        if not row.body:
            return await self._fail(row, "failed", why, actor, may)
        owed = await self._journal.read(lambda connection: _owed(connection, row))
        if owed is None:
            return await self._journal.write(lambda book: holds.drop(book.connection, _key(row)))
        for _ in range(_TRIES):
            outgoing = self._answer(row, owed)
            item = self._item(outgoing)
            epoch, (decision,) = await self._admission.admit([item])
            if not decision.HasField("admitted"):
                raise HoplineError("unavailable", decision.refusal.message)
            outgoing.day, outgoing.price = decision.admitted.day, item.limits.turn_price
            point("hold.admitted")
            sent = False
            try:
                write_it = partial(_send, row=row, owed=owed, outgoing=outgoing, actor=actor, may=may)
                sent = await self._journal.write(write_it, epoch=epoch)
            except FencedError:
                await self._admission.refresh_epoch()
                continue
            finally:
                self._admission.settle(item.key, committed=sent)
            point("hold.sent")
            if sent:
                self._tell(owed, Outcome("completed", outgoing.body, outgoing.payload, outgoing.id))
            return sent
        raise HoplineError("unavailable", "the counters keep changing; try again")

    async def cancel(self, row: Record, fault: Fault, actor: Actor) -> bool:
        """End an answer that will never be given; False where it has ended otherwise."""
        return await self._fail(row, "canceled", fault, actor, _is_there)

    async def _fail(self, row: Record, state: str, fault: Fault, actor: Actor, may: May) -> bool:
        def op(book: Book) -> Record | None:
            if not may(book, row):
                return None
            owed = _owed(book.connection, row)
            holds.drop(book.connection, _key(row))
            if owed is not None:
                debting.close(book.connection, [Closed(*_key(row), state, fault=fault)])
                _serve(book, row, "failed")
            details = {"state": state, "code": fault.code, "reason": fault.message}
            holds.note(book, row, "answer.given_up", actor, details)
            return owed or row

        found = await self._journal.write(op)
        point("hold.ended")
        if isinstance(found, _Owed):
            self._tell(found, Outcome(state, fault=fault))
        return found is not None

    def _tell(self, owed: _Owed, outcome: Outcome) -> None:
        """Hand the outcome to whoever waits for it. People who do not look by themselves."""
        debt = owed.debt
        if debt.state == "open":
            self._waits.resolve(debt.workspace_id, debt.turn_id, debt.creditor_id, outcome)

    def _answer(self, row: Record, owed: _Owed) -> Outgoing:
        debt = owed.debt
        return answers.answer(
            debt,
            owed.asked,
            sender=named(self._directory, row.workspace_id, "agent", row.agent_id),
            text=row.body,
            awaited=self._waits.someone(row.workspace_id, row.turn_id, debt.creditor_id),
            turn=owed.turn,
            ids=self._ids,
            queue_seconds=self._directory.policy(row.workspace_id).queue_seconds,
        )

    def _item(self, outgoing: Outgoing) -> quota_pb.AdmitItem:
        return quota_pb.AdmitItem(
            key=f"{outgoing.workspace_id}/{outgoing.sender.id}/{outgoing.id}",
            workspace_id=outgoing.workspace_id,
            kind=quota_pb.ADMIT_KIND_ANSWER,
            sender_id=outgoing.sender.id,
            recipients=[quota_pb.AdmitRecipient(agent_id=copy.id) for copy in outgoing.copies],
            cause_turn_id=outgoing.turn_id,
            answer_depth=outgoing.depth,
            answer_root_id=outgoing.root_id,
            limits=self._admission.limits(outgoing.workspace_id),
        )


def unchanged(book: Book, row: Record) -> bool:
    """Tell whether a draft is what it was seen as; nobody else writes until this transaction is through."""
    book.lock(row.workspace_id)
    now = holds.find(book.connection, _key(row))
    return now is not None and holds.kept(now) == holds.kept(row)


def _is_there(book: Book, row: Record) -> bool:
    book.lock(row.workspace_id)
    return holds.find(book.connection, _key(row)) is not None


def _send(book: Book, row: Record, owed: _Owed, outgoing: Outgoing, actor: Actor, may: May) -> bool:
    if not may(book, row):
        return False
    holds.drop(book.connection, _key(row))
    debting.close(book.connection, [Closed(*_key(row), "answered", outgoing.id)])
    _serve(book, row, "answered")
    write(book, [outgoing])
    holds.note(book, row, "answer.sent" if actor.kind == "mesh" else "answer.released", actor, {})
    return True


def _serve(book: Book, row: Record, state: str) -> None:
    values = {"workspace": row.workspace_id, "message_key": row.message_id, "recipient": row.agent_id}
    _SERVE.run(book.connection, {**values, "new_state": state})


def _owed(connection: Connection, row: Record) -> _Owed | None:
    key, message = _key(row), (row.workspace_id, row.message_id)
    turn = by_id(connection, turns, {key}).get(key)
    debt = by_id(connection, debts, {key}, debts.c.turn_id).get(key)
    asked = by_id(connection, messages, {message}).get(message)
    return _Owed(turn, debt, asked) if turn is not None and debt is not None and asked is not None else None


def _key(row: Record) -> holds.Key:
    return row.workspace_id, row.turn_id
