"""What the end of a turn does to an answer that is held: decided in the transaction that ends the turn.

A child may report in the same moment, or a person remove the last todo: so the workspace's head is held
before anything is looked at. A turn that serves another agent's message costs nothing here, one that goes on
with something a look at what is held, and a person's prompt three more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from hopline_relay.domain.holds import Kept, Reasons, TurnOver, kept_by_debtor, kept_by_later_turn
from hopline_relay.domain.values import ANSWERS, MESH, PEER, WAKES
from hopline_relay.store import holds
from hopline_relay.store.book import Book
from hopline_relay.store.holds import Key, Seat, seat_of
from hopline_relay.store.sql import Record
from hopline_relay.store.turns import Ended

# By what a session goes on with what it was prompted for, besides prompts.
_LATER: Final = ANSWERS | WAKES | {PEER}


class _Ending(Protocol):
    @property
    def ended(self) -> Ended:
        """How it ends."""
        ...


class Ends(Protocol):
    """The end of a turn, as far as this goes."""

    @property
    def ending(self) -> _Ending:
        """What is to end, and how."""
        ...

    @property
    def row(self) -> Record:
        """The turn."""
        ...

    @property
    def asked(self) -> Record:
        """The message that it serves."""
        ...

    @property
    def silent(self) -> bool:
        """Whether its agent said that no answer will come."""
        ...

    @property
    def fronts(self) -> bool:
        """Whether its session may hold an answer to a person."""
        ...

    @property
    def text(self) -> str:
        """Its final message, where that is delivered."""
        ...

    @property
    def with_id(self) -> str:
        """The turn that it rides along with."""
        ...


@dataclass(slots=True)
class Verdict:
    """What the end of a turn does. `owes_on`: the answer that it owes is not given with it."""

    seat: Seat
    # The turn that owes the answer, and the message that it owes it to.
    key: Key
    before: Record | None
    after: Kept | None
    owes_on: bool
    reasons: Reasons
    turn: Record
    message: Record

    def write(self, book: Book) -> None:
        """Keep what is kept now."""
        if self.after is None:
            holds.drop(book.connection, self.key)
        elif self.before is None:
            holds.keep(book, self.turn, self.seat, self.message, self.after)
            holds.note(book, self.turn, "answer.held", MESH, holds.counts(self.reasons))
        elif self.after != holds.kept(self.before):
            holds.change(book, self.before, self.after)


def may_front(turn: Record, debt: Record | None) -> bool:
    """Tell whether a session may hold an answer to a person when this turn ends; without a look-up."""
    return debt.creditor_kind != "agent" if debt is not None else turn.cause in _LATER


def decide(book: Book, plans: Sequence[Ends], unpaid: set[Key]) -> dict[Key, Verdict]:
    """Return the verdicts on those of the turns that hold an answer, or are about to."""
    fronting = [plan for plan in plans if plan.fronts]
    by_turn = {plan.row.id: plan.row for plan in plans}
    seats = {_key(plan): seat_of(by_turn.get(plan.with_id, plan.row)) for plan in fronting}
    for workspace_id in sorted({seat.workspace_id for seat in seats.values()}):
        book.lock(workspace_id)
    rows = holds.in_seats(book.connection, {(seat.workspace_id, seat.session_id) for seat in seats.values()})
    found: dict[Key, Verdict] = {}
    for plan in fronting:
        key, seat = _key(plan), seats[_key(plan)]
        if key in unpaid:
            own = next((row for row in rows if (row.workspace_id, row.turn_id) == key), None)
            verdict = _of_debtor(book, plan, seat, own)
            if verdict is not None:
                found[key] = verdict
        elif here := [row for row in rows if holds.seat_of_hold(row) == seat]:
            found[key] = _of_later(book, plan, seat, here[0])
    return found


def _of_debtor(book: Book, plan: Ends, seat: Seat, before: Record | None) -> Verdict | None:
    reasons = holds.reasons(book.connection, seat, book.now)
    after = kept_by_debtor(_over(plan), holds.kept(before) if before is not None else None, reasons)
    if before is None and after is None:
        return None
    owes_on = after is not None
    return Verdict(seat, _key(plan), before, after, owes_on, reasons, plan.row, plan.asked)


def _of_later(book: Book, plan: Ends, seat: Seat, before: Record) -> Verdict:
    reasons = holds.reasons(book.connection, seat, book.now)
    after = kept_by_later_turn(_over(plan), holds.kept(before), reasons)
    key = (before.workspace_id, before.turn_id)
    return Verdict(
        seat, key, before, after, owes_on=False, reasons=reasons, turn=plan.row, message=plan.asked
    )


def _over(plan: Ends) -> TurnOver:
    silent = plan.silent or bool(plan.row.run_session_id)
    return TurnOver(plan.row.id, plan.ending.ended.state, plan.text, silent)


def _key(plan: Ends) -> Key:
    return plan.row.workspace_id, plan.row.id
