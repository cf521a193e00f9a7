"""How the ends of turns are written: the turn, its debt, its answer and its batch, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from hopline.quota.v1 import admission_pb2 as quota_pb
from sqlalchemy import Connection

from hopline_relay.domain.values import QUESTIONS, TASK, Fault
from hopline_relay.held import Known
from hopline_relay.hooks.items import Note, Shaped
from hopline_relay.store import debting, holding, hooking, outputs, queues
from hopline_relay.store import turns as turn_store
from hopline_relay.store.book import Book
from hopline_relay.store.bulk import by_id
from hopline_relay.store.copies import copies_of
from hopline_relay.store.debting import Closed
from hopline_relay.store.holding import Verdict
from hopline_relay.store.holds import Place, Seat
from hopline_relay.store.outgoing import Outgoing
from hopline_relay.store.schema import debts
from hopline_relay.store.sql import Record
from hopline_relay.store.turns import Ended
from hopline_relay.store.writing import write

Key = tuple[str, str]
"""Workspace and id."""


@dataclass(frozen=True, slots=True)
class Ending:
    """A turn that is to end, with its final message if it has one. `tell`: whoever asked is told.

    `known`: what the record says of the turn, if that is at hand. What rides along with it ends alike;
    `spares`: it alone ends, and the rest of its batch goes back to the queue.
    """

    ended: Ended
    answer: str | None = None
    tell: bool = True
    known: Known | None = None
    spares: bool = False
    # What hooks have made of the answers that go out with it, by the turn that owes; None: not asked yet.
    shaped: Mapping[str, Shaped] | None = None
    # Its answer was kept while it was written, and need not be any more once it is sent.
    wrote: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """Workspace and turn."""
        return self.ended.workspace_id, self.ended.turn_id


class AwaitedError(Exception):
    """Calls at other relays have begun, or have ceased, to wait for what ends here."""


class SilencedError(Exception):
    """A turn whose record was at hand has been marked as done meanwhile: no answer goes out."""


@dataclass(slots=True)
class Plan:
    """What the end of one turn comes to."""

    ending: Ending
    row: Record
    asked: Record
    debt: Record | None = None
    state: str = ""  # what the debt becomes
    fault: Fault | None = None
    outgoing: Outgoing | None = None
    awaited: bool = False
    # A call at another relay waits for it, which looks for itself.
    awaited_elsewhere: bool = False
    silent: bool = False
    # What hooks did to its answer, if they were asked.
    hook_notes: Sequence[Note] = ()
    item: quota_pb.AdmitItem | None = None
    # The news for the sender that its message is dead, where nothing was owed for it.
    obituary: Outgoing | None = None
    # The turn that it rode along with, and ends with only if that one does.
    with_id: str = ""
    # What is to go back to the queue with its end; afterwards what has.
    spared: list[Record] = field(default_factory=list)
    # Its session may hold an answer to a person: then what its final message says, where that is delivered.
    fronts: bool = False
    text: str = ""
    # Filled in by the transaction.
    recorded: bool = False
    paid: bool = False
    # Where an answer was held, or is, with which it goes on.
    seat: Seat | None = None
    error: Exception | None = None


class Outcome(NamedTuple):
    """What the transaction did of one plan: its end, its debt, and what went back to the queue."""

    recorded: bool
    paid: bool
    spared: list[Record]
    # Its message became a dead letter, and its sender is told.
    told: bool
    seat: Seat | None


def along(plan: Plan, rows: Sequence[Record]) -> list[Ending]:
    """Return the ends of what rides along with a turn that ends; what it was not asked itself pays the first.

    A batch holds at most one question where its final message is the answer.
    """
    ending, ended = plan.ending, plan.ending.ended
    answer = ending.answer if plan.debt is None else None
    found = []
    for row in rows:
        end = replace(ended, turn_id=row.id, attempt=row.attempt, epoch=None)
        asks = row.cause in QUESTIONS
        found.append(Ending(end, answer if asks else None, tell=ending.tell, shaped=ending.shaped))
        if asks:
            answer = None
    return found


def apart(plans: Sequence[Plan]) -> list[list[Plan]]:
    """Return the plans in parts that may be written one without the other: a batch stays together."""
    parts: dict[Key, list[Plan]] = {}
    for plan in plans:
        group = plan.row.batch_id if not plan.row.run_session_id else ""
        parts.setdefault((plan.row.workspace_id, group or plan.row.id), []).append(plan)
    return list(parts.values())


Written = tuple[list[Outcome], set[Key]]
"""What was done to each, and whose agents have more in their queues."""


def write_all(book: Book, plans: Sequence[Plan], queue_seconds: Callable[[str], float]) -> Written:
    """End the turns and their debts, write the answers.

    Returns for each what was done, and which of the agents have more in their queues.
    """
    at_hand = [plan.ending.known for plan in plans if plan.outgoing is not None and not plan.silent]
    if silent_of(book.connection, [known for known in at_hand if known is not None]):
        raise SilencedError
    owing = {(plan.row.workspace_id, plan.row.id) for plan in plans if plan.debt is not None}
    debts_now = by_id(book.connection, debts, owing, debts.c.turn_id, lock=True) if owing else {}
    # A reply may have paid meanwhile: then the final message says nothing more.
    unpaid = {key for key, debt in debts_now.items() if debt.state == "open"}
    verdicts = holding.decide(book, plans, unpaid) if any(plan.fronts for plan in plans) else {}
    ended = [_ended(plan, unpaid, verdicts) for plan in plans if not plan.with_id]
    done = {(row.workspace_id, row.id) for row in turn_store.finish(book, ended)}
    if riding := [plan for plan in plans if (plan.row.workspace_id, plan.with_id) in done]:
        ends = [_ended(plan, unpaid, verdicts) for plan in riding]
        done |= {(row.workspace_id, row.id) for row in turn_store.finish(book, ends)}
    dead = _dead(book.connection, [plan for plan in plans if plan.obituary is not None])
    outcome: list[Outcome] = []
    closed, going = [], []
    for plan in plans:
        key = (plan.row.workspace_id, plan.row.id)
        # Of several ends of one turn the first is the end.
        recorded = key in done
        done.discard(key)
        verdict = verdicts.get(key) if recorded else None
        paid = recorded and key in unpaid and (verdict is None or not verdict.owes_on)
        spared = _spare(book, plan.spared, queue_seconds) if recorded and plan.spared else []
        died = recorded and plan.obituary is not None and key in dead
        if verdict is not None:
            verdict.write(book)
        outcome.append(Outcome(recorded, paid, spared, died, verdict.seat if verdict is not None else None))
        if died and plan.obituary is not None:
            going.append(plan.obituary)
        if paid:
            closed.append(_closed(plan))
            for note in plan.hook_notes:
                hooking.note_answer(book, plan.row, plan.debt, note, plan.outgoing)
            if plan.outgoing is not None:
                going.append(plan.outgoing)
    debting.close(book.connection, closed)
    write(book, going)
    sent = [plan.row for plan, done in zip(plans, outcome, strict=True) if _sent(plan, done)]
    outputs.forget(book.connection, sent)
    return outcome, queues.with_queue(
        book.connection, {(plan.row.workspace_id, plan.row.agent_id) for plan in plans}
    )


def held_in(plan: Plan) -> list[Place]:
    """Return where an answer may be held that the end of a turn has to do with: its own, or its lead's."""
    workspace_id = plan.row.workspace_id
    found = [(workspace_id, plan.seat.session_id)] if plan.seat is not None else []
    if plan.row.cause == TASK and plan.debt is not None:
        found.append((workspace_id, plan.debt.creditor_session_id))
    return found


def _sent(plan: Plan, outcome: Outcome) -> bool:
    """Tell whether what was kept while it was written has been sent as the answer."""
    return plan.ending.wrote and outcome.paid and plan.state == "answered"


def _dead(connection: Connection, plans: Sequence[Plan]) -> set[Key]:
    """Return the turns whose deliveries are dead now: one that was answered before is not."""
    copies = copies_of(connection, {(p.row.workspace_id, p.row.message_id) for p in plans}) if plans else {}
    return {
        (copy.workspace_id, copy.turn_id) for rows in copies.values() for copy in rows if copy.state == "dead"
    }


def _spare(book: Book, rows: Sequence[Record], queue_seconds: Callable[[str], float]) -> list[Record]:
    """Put what is left of a batch back into the queue, as far as it still runs."""
    now = queues.find(book.connection, {(row.workspace_id, row.id) for row in rows})
    still = [row for row in now.values() if row.state == "running"]
    return turn_store.requeue(book, still, queue_seconds)


def silent_of(connection: Connection, known: Iterable[Known]) -> set[Key]:
    """Return the messages whose recipients said that no answer will come."""
    owed = {(each.debt.workspace_id, each.debt.message_id) for each in known if each.debt is not None}
    copies = copies_of(connection, owed) if owed else {}
    return {key for key, rows in copies.items() if any(copy.state == "done" for copy in rows)}


def _ended(plan: Plan, unpaid: set[Key], verdicts: Mapping[Key, Verdict]) -> Ended:
    """Return the end of a turn; where its final message pays a debt, its delivery is answered."""
    ended, key = plan.ending.ended, (plan.row.workspace_id, plan.row.id)
    verdict = verdicts.get(key)
    if verdict is not None and verdict.owes_on:
        return replace(ended, delivery="taken")
    return replace(ended, delivery="answered") if key in unpaid and plan.state == "answered" else ended


def _closed(plan: Plan) -> Closed:
    reply_id = plan.outgoing.id if plan.outgoing is not None and plan.state == "answered" else ""
    return Closed(plan.row.workspace_id, plan.row.id, plan.state, reply_id, plan.fault)
