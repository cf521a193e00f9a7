"""How turns end, whoever ends them: their worker, a cancellation, the sweep, the end of their agent.

In batches: look at the record, admit the answers that go out, then one transaction for the end of the
turn, its answer, its debt and the wake of whoever asked. What waits is told after the commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from hopline.quota.v1 import admission_pb2 as quota_pb
from hopline_directory import Directory
from hopline_rpc.calls import detach
from hopline_rpc.clock import Clock
from hopline_rpc.errors import HoplineError
from hopline_rpc.faults import point
from hopline_rpc.ids import IdMaker
from sqlalchemy import Connection

from hopline_relay import answers, spans
from hopline_relay.admission import Admission, end_item, requeued_item
from hopline_relay.batching import Batcher
from hopline_relay.callers import named
from hopline_relay.domain import batches
from hopline_relay.domain.values import MAX_ANSWER_BYTES, TOOL, Fault
from hopline_relay.ends import (
    AwaitedError,
    Ending,
    Key,
    Plan,
    SilencedError,
    Written,
    along,
    apart,
    held_in,
    silent_of,
    write_all,
)
from hopline_relay.escalation_ends import EscalationEnds
from hopline_relay.handover import HandOver
from hopline_relay.held import Known
from hopline_relay.hooks.answers import Unshaped, apart_from
from hopline_relay.hooks.applying import withheld
from hopline_relay.hooks.messages import MessageHooks
from hopline_relay.journal import FencedError, Journal
from hopline_relay.signals import Signals, session_of
from hopline_relay.store import queues, waiting
from hopline_relay.store.batches import beside
from hopline_relay.store.book import Book
from hopline_relay.store.bulk import by_id
from hopline_relay.store.holding import may_front
from hopline_relay.store.holds import Place
from hopline_relay.store.outgoing import Outgoing
from hopline_relay.store.schema import debts, messages
from hopline_relay.store.sql import Record
from hopline_relay.store.turns import Ended
from hopline_relay.waits import Outcome, Waits

__all__ = ["Ending", "Endings", "final_answer"]

_TRIES = 4
# What was decided does not hold any more: it is decided anew.
_AGAIN = (AwaitedError, FencedError, SilencedError)


class Endings:
    """Ends turns."""

    def __init__(
        self,
        journal: Journal,
        directory: Directory,
        admission: Admission,
        waits: Waits,
        hand_over: HandOver,
        escalations: EscalationEnds,
        signals: Signals,
        hooks: MessageHooks,
        ids: IdMaker,
        clock: Clock,
    ) -> None:
        self._journal = journal
        self._directory = directory
        self._admission = admission
        self._waits = waits
        self._hand_over = hand_over
        self._escalations = escalations
        self._signals = signals
        self._hooks = hooks
        self._ids = ids
        self._clock = clock
        # Called with where turns have ended that go on with answers which are held.
        self.on_held: Callable[[set[Place]], None] = lambda places: None
        self._batches: Batcher[Ending, bool | asyncio.Task[bool]] = Batcher("ends of turns", self._treat)
        # Ends that wait for hooks.
        self._hooked: set[asyncio.Task[bool]] = set()

    async def end(self, ending: Ending) -> bool:
        """End a turn; False when it is no longer what it was seen as. Commits before it returns."""
        done = await self._batches.submit(ending)
        # Whoever said that it ended may go away meanwhile.
        return done if isinstance(done, bool) else await asyncio.shield(done)

    async def drained(self) -> None:
        """Wait until nothing is under way."""
        await self._batches.drained()

    async def begun_before(self) -> None:
        """Wait until whatever is being ended at this moment is through."""
        await self._batches.begun_before()
        while self._hooked:
            await asyncio.wait(set(self._hooked))
            await self._batches.drained()

    def _through_hooks(self, ending: Ending, unshaped: Unshaped) -> asyncio.Task[bool]:
        """Have hooks asked about the answers that go out with an end, beside the batches of the others."""

        async def ask_and_end() -> bool:
            shaped = await unshaped.ask(self._hooks)
            return await self.end(replace(ending, shaped={**(ending.shaped or {}), **shaped}))

        task = detach(ask_and_end(), name="hooked end")
        self._hooked.add(task)
        task.add_done_callback(self._hooked.discard)
        return task

    async def _treat(self, endings: list[Ending]) -> list[bool | asyncio.Task[bool] | BaseException]:
        point("relay.ending")
        for _ in range(_TRIES):
            known, silent = await self._look_up(endings)
            seats = await self._awaited_elsewhere([each.key for each in endings])
            plans = [self._plan(each, known.get(each.key), silent, seats) for each in endings]
            found = await self._with_batches([plan for plan in plans if plan is not None])
            unshaped: dict[Key, Unshaped] = {}
            if self._hooks.active:
                unshaped, found = apart_from(found, self._hooks)
            epoch = await self._admit(found)
            point("relay.answer_admitted")
            try:
                queued = await self._write(found, epoch)
            except FencedError:
                await self._admission.refresh_epoch()
                continue
            except AwaitedError:
                continue
            except SilencedError:
                endings = [replace(each, known=None) for each in endings]
                continue
            point("relay.ended")
            await self._tell([plan for plan in found if plan.recorded], queued)
            point("relay.told")
            return [self._result(plan, unshaped) for plan in plans]
        raise HoplineError("unavailable", "the counters keep changing; try again")

    def _result(
        self, plan: Plan | None, unshaped: Mapping[Key, Unshaped]
    ) -> bool | asyncio.Task[bool] | BaseException:
        if plan is None:
            return False
        put_off = unshaped.get((plan.row.workspace_id, plan.row.id))
        if put_off is not None:
            return self._through_hooks(plan.ending, put_off)
        return plan.error or plan.recorded

    # --- deciding ---------------------------------------------------------------------------------

    async def _with_batches(self, plans: list[Plan]) -> list[Plan]:
        """Add the ends of what rides along with turns that end, and name what goes back to the queue."""
        grouped = [
            plan
            for plan in plans
            if plan.row.state == "running"
            and (batches.leads(plan.row) or (plan.ending.spares and batches.rides(plan.row)))
        ]
        if not grouped:
            return plans
        rows = await self._journal.read(lambda connection: beside(connection, [plan.row for plan in grouped]))
        ending = {plan.row.id for plan in plans}
        more: list[tuple[str, Ending]] = []
        for plan in grouped:
            beside_it = [row for row in rows if row.batch_id == plan.row.batch_id and row.id not in ending]
            ending.update(row.id for row in beside_it)
            if plan.ending.spares:
                plan.spared = beside_it
            else:
                more += [(plan.row.id, end) for end in along(plan, beside_it)]
        known, silent = await self._look_up([end for _, end in more])
        seats = await self._awaited_elsewhere([end.key for _, end in more])
        for with_id, end in more:
            riding = self._plan(end, known.get(end.key), silent, seats)
            if riding is not None:
                riding.with_id = with_id
                plans.append(riding)
        return plans

    async def _look_up(self, endings: Sequence[Ending]) -> tuple[dict[Key, Known], set[Key]]:
        """Return what the record says of the turns, and the messages that are done without an answer."""
        at_hand = {each.key: each.known for each in endings if each.known is not None}
        keys = {each.key for each in endings} - at_hand.keys()
        if not keys:
            return at_hand, set()

        def read(connection: Connection) -> tuple[dict[Key, Known], set[Key]]:
            rows = queues.find(connection, keys)
            owed = by_id(connection, debts, keys, debts.c.turn_id)
            asked = by_id(connection, messages, {(key[0], row.message_id) for key, row in rows.items()})
            known = {
                key: Known(
                    row,
                    debt if (debt := owed.get(key)) is not None and debt.state == "open" else None,
                    asked[key[0], row.message_id],
                )
                for key, row in rows.items()
            }
            return known, silent_of(connection, known.values())

        known, silent = await self._journal.read(read)
        return known | at_hand, silent

    async def _awaited_elsewhere(self, keys: Sequence[Key]) -> set[waiting.Seat]:
        """Return who waits for these turns at other relays."""
        if not self._journal.shared or not keys:
            return set()
        own = self._journal.instance_id
        return await self._journal.read(lambda connection: waiting.elsewhere(connection, keys, own))

    def _check_awaited(self, book: Book, plans: Sequence[Plan]) -> None:
        """Have all of it decided anew where others have come to wait, or have gone, since it was."""
        owing = [plan for plan in plans if plan.debt is not None and plan.row.cause != TOOL]
        keys = [(plan.row.workspace_id, plan.row.id) for plan in owing]
        seats = waiting.elsewhere(book.connection, keys, self._journal.instance_id)
        for plan in owing:
            if plan.debt is not None and plan.awaited_elsewhere != (_seat(plan.debt) in seats):
                raise AwaitedError

    def _plan(
        self, ending: Ending, known: Known | None, silent: set[Key], seats: set[waiting.Seat]
    ) -> Plan | None:
        if known is None or not ending.ended.fits(known.turn):
            return None
        plan = Plan(ending, known.turn, known.asked, known.debt)
        plan.fronts = may_front(known.turn, known.debt)
        if plan.debt is not None:
            plan.silent = (plan.debt.workspace_id, plan.debt.message_id) in silent
            plan.awaited_elsewhere = plan.row.cause != TOOL and _seat(plan.debt) in seats
            self._plan_debt(plan, plan.debt, known.asked)
        elif ending.ended.delivery == "dead" and ending.tell:
            plan.obituary = self._obituary(ending.ended, known)
        if plan.fronts:
            plan.text = self._final_message(plan) or ""
        return plan

    def _obituary(self, ended: Ended, known: Known) -> Outgoing | None:
        """Return the news for the sender of a message that the mesh gives up; people look by themselves."""
        row, asked = known.turn, known.asked
        if asked.from_kind != "agent" or not asked.from_session_id or asked.kind in ("ask", "notice"):
            return None
        sender = self._directory.agent(row.workspace_id, asked.from_id)
        if sender is None or sender.deleted:
            return None
        return answers.undelivered(
            row,
            asked,
            name=named(self._directory, row.workspace_id, "agent", row.agent_id).name,
            fault=ended.fault or Fault("failed_precondition", "it was given up"),
            ids=self._ids,
            queue_seconds=self._directory.policy(row.workspace_id).queue_seconds,
            now=self._clock.now(),
        )

    def _plan_debt(self, plan: Plan, debt: Record, asked: Record) -> None:
        ended, workspace_id = plan.ending.ended, debt.workspace_id
        plan.awaited = (
            plan.row.cause == TOOL
            or plan.awaited_elsewhere
            or self._waits.someone(workspace_id, debt.turn_id, debt.creditor_id)
        )
        queue_seconds = self._directory.policy(workspace_id).queue_seconds
        sender = named(self._directory, workspace_id, "agent", debt.debtor_id)
        text = self._final_message(plan)
        shaped = (plan.ending.shaped or {}).get(debt.turn_id) if text is not None else None
        if shaped is not None:
            plan.hook_notes = shaped.notes
            text = shaped.words.text if shaped.goes_on else None
        if text is not None:
            plan.state = "answered"
            plan.outgoing = answers.answer(
                debt,
                asked,
                sender=sender,
                text=text,
                awaited=plan.awaited,
                gone=debt.creditor_kind == "agent" and self._is_gone(debt),
                turn=plan.row,
                ids=self._ids,
                queue_seconds=queue_seconds,
            )
            plan.item = self._item(plan.outgoing)
            return
        plan.state = "canceled" if ended.state == "canceled" else "failed"
        plan.fault = ended.fault or Fault("ended_without_answer", "its turn ended without an answer")
        if shaped is not None:
            plan.fault = withheld(shaped.canceled)
        if plan.ending.tell and not plan.awaited and self._can_be_told(debt):
            plan.outgoing = answers.notice(
                debt,
                asked,
                name=sender.name,
                fault=plan.fault,
                ids=self._ids,
                queue_seconds=queue_seconds,
                now=self._clock.now(),
            )

    def _final_message(self, plan: Plan) -> str | None:
        """Return the final message where the agent's reply mode delivers it; an empty one counts as none."""
        text = plan.ending.answer
        if plan.ending.ended.state != "completed" or plan.silent or not text:
            return None
        if plan.row.cause == TOOL:
            return text
        agent = self._directory.agent(plan.row.workspace_id, plan.row.agent_id)
        return text if agent is not None and agent.reply_mode != "implicit" else None

    def _can_be_told(self, debt: Record) -> bool:
        """People look by themselves; an agent that is gone hears nothing."""
        if debt.creditor_kind != "agent" or not debt.creditor_session_id:
            return False
        return not self._is_gone(debt)

    def _is_gone(self, debt: Record) -> bool:
        creditor = self._directory.agent(debt.workspace_id, debt.creditor_id)
        return creditor is None or creditor.deleted

    def _item(self, outgoing: Outgoing) -> quota_pb.AdmitItem:
        return quota_pb.AdmitItem(
            key=f"{outgoing.workspace_id}/{outgoing.sender.id}/{outgoing.id}",
            workspace_id=outgoing.workspace_id,
            kind=quota_pb.ADMIT_KIND_ANSWER,
            sender_id=outgoing.sender.id,
            recipients=[
                quota_pb.AdmitRecipient(agent_id=copy.id, turn_id=copy.turn_id) for copy in outgoing.copies
            ],
            cause_turn_id=outgoing.turn_id,
            answer_depth=outgoing.depth,
            answer_root_id=outgoing.root_id,
            limits=self._admission.limits(outgoing.workspace_id),
        )

    async def _admit(self, plans: Sequence[Plan]) -> int | None:
        """Charge the answers. None: nothing was charged."""
        going = [plan for plan in plans if plan.item is not None]
        if not going:
            return None
        epoch, decisions = await self._admission.admit([plan.item for plan in going if plan.item])
        for plan, decision in zip(going, decisions, strict=True):
            if plan.outgoing is None:
                continue
            if decision.HasField("admitted"):
                plan.outgoing.day = decision.admitted.day
                if plan.item is not None:
                    plan.outgoing.price = plan.item.limits.turn_price
                continue
            plan.item, plan.outgoing = None, None
            plan.state, plan.fault = "failed", Fault("failed_precondition", decision.refusal.message)
        return epoch

    # --- writing ----------------------------------------------------------------------------------

    async def _write(self, plans: Sequence[Plan], epoch: int | None) -> set[Key]:
        """End the turns; returns those of their agents that have more in their queues."""
        if not plans:
            return set()

        def op(book: Book) -> Written:
            if self._journal.shared:
                self._check_awaited(book, plans)
            return write_all(book, plans, lambda each: self._directory.policy(each).queue_seconds)

        try:
            outcome, queued = await self._journal.write(
                op,
                epoch=epoch,
                within=[plan.row.workspace_id for plan in plans],
            )
        except Exception as error:
            parts = apart(plans)
            if len(parts) > 1 and not isinstance(error, (HoplineError, *_AGAIN)):
                return {key for part in parts for key in await self._write(part, epoch)}
            for plan in plans:
                plan.error = error
                if plan.item is not None:
                    self._admission.settle(plan.item.key, committed=False)
            if isinstance(error, _AGAIN):
                raise
            return set()
        for plan, (recorded, paid, spared, told, seat) in zip(plans, outcome, strict=True):
            plan.recorded, plan.paid, plan.spared, plan.seat = recorded, paid, spared, seat
            plan.obituary = plan.obituary if told else None
            if plan.item is not None:
                self._admission.settle(plan.item.key, committed=paid)
        return queued

    # --- afterwards -------------------------------------------------------------------------------

    async def _tell(self, plans: Sequence[Plan], queued: set[Key]) -> None:
        claimable = set(queued)
        for plan in plans:
            row = plan.row
            spans.turn_ended(
                self._journal.meters, self._directory, row, plan.ending.ended, self._clock.now(), plan.asked
            )
            if plan.paid and plan.debt is not None:
                self._tell_creditor(plan, plan.debt, claimable)
            if plan.obituary is not None:
                claimable.update((row.workspace_id, copy.id) for copy in plan.obituary.copies)
        await self.tell_quota([plan.row for plan in plans])
        await self._escalations.turns_canceled(
            [plan.row for plan in plans if plan.ending.ended.state == "canceled" and plan.row.attempt]
        )
        spared = [row for plan in plans for row in plan.spared]
        if spared:
            await self._admission.told_ends([requeued_item(row, row.attempt) for row in spared])
            claimable |= {(row.workspace_id, row.agent_id) for row in spared}
        self._signals.slot_free(
            row.workspace_id for row in [*(plan.row for plan in plans), *spared] if row.slot
        )
        self._signals.claimable(claimable)
        if places := {place for plan in plans for place in held_in(plan)}:
            self.on_held(places)
        self._signals.on_freed(session_of(plan.row) for plan in plans)

    def _tell_creditor(self, plan: Plan, debt: Record, claimable: set[tuple[str, str]]) -> None:
        outgoing = plan.outgoing
        if outgoing is not None:
            claimable.update((debt.workspace_id, copy.id) for copy in outgoing.copies if copy.turn_id)
        if plan.state == "answered" and outgoing is not None:
            outcome = Outcome("completed", outgoing.body, outgoing.payload, outgoing.id)
        else:
            outcome = Outcome(plan.state, fault=plan.fault)
        told = self._waits.resolve(debt.workspace_id, debt.turn_id, debt.creditor_id, outcome)
        waits_there = plan.awaited_elsewhere
        if plan.awaited and not waits_there and not told and plan.ending.tell and plan.row.cause != TOOL:
            self._hand_over.back(debt.workspace_id, debt.turn_id)

    async def tell_quota(self, rows: Sequence[Record]) -> None:
        """Tell the quota service of turns that have ended, given as they were before."""
        if rows:
            await self._admission.told_ends([end_item(row) for row in rows])


def _seat(debt: Record) -> waiting.Seat:
    return debt.workspace_id, debt.turn_id, debt.creditor_id


def final_answer(text: str | None) -> tuple[str | None, Fault | None]:
    """Return a worker's final message as it is taken: none when empty, a fault when it is too long."""
    if text and len(text.encode()) > MAX_ANSWER_BYTES:
        return None, Fault(
            "invalid_argument", f"its answer is over {MAX_ANSWER_BYTES // 1024} KiB and was not delivered"
        )
    return text or None, None
