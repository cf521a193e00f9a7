"""The send path: everything that is said goes through here, in batches.

For a batch: one look-up in the record, one admission, one transaction. A batch that cannot be written is
written one by one, so that a bad message fails alone. `request_id` is looked up before anything else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from hopline.quota.v1 import admission_pb2 as quota_pb
from hopline_directory import Directory
from hopline_rpc.clock import Clock
from hopline_rpc.errors import HoplineError, request_conflict
from hopline_rpc.faults import point
from hopline_rpc.ids import IdMaker
from sqlalchemy.exc import IntegrityError

from hopline_relay import spans
from hopline_relay.admission import Admission, end_item, refused
from hopline_relay.at_once import AtOnce
from hopline_relay.callers import Inboxes
from hopline_relay.domain.values import PEER, REPORT, VETOED
from hopline_relay.drafts import Draft, HeldError, Kept, Ready, Sent, SentCopy, sent_of
from hopline_relay.handover import HandOver
from hopline_relay.hooks.applying import apply
from hopline_relay.hooks.messages import MessageHooks
from hopline_relay.hooks.sending import HookedSends
from hopline_relay.journal import FencedError, Journal
from hopline_relay.meters import REQUEST
from hopline_relay.pipeline import Pipeline
from hopline_relay.refusals import Refusals
from hopline_relay.replies import Replies
from hopline_relay.signals import Signals, session_of
from hopline_relay.starts import Starts
from hopline_relay.store import discharging, holds, hooking, scheduling
from hopline_relay.store.book import Book
from hopline_relay.store.discharging import Discharge, RacedError
from hopline_relay.store.facts import Facts, Names, look_up
from hopline_relay.store.outgoing import Outgoing
from hopline_relay.store.sql import Record
from hopline_relay.store.writing import write
from hopline_relay.view import Views
from hopline_relay.waits import Outcome, Waits

_TRIES: Final = 4

Key = tuple[str, str, str]


class _Again(Exception):  # noqa: N818 - not an error: the draft is to be prepared again
    """What the draft was prepared for has changed."""


_AGAIN: Final = _Again()
Result = Sent | BaseException


@dataclass(slots=True)
class _Batch:
    """Drafts on their way: for each its result, or what is ready to be written once it is admitted."""

    results: list[Ready | Result]
    epoch: int = 0


class Sends:
    """Sends drafts."""

    def __init__(
        self,
        journal: Journal,
        directory: Directory,
        admission: Admission,
        waits: Waits,
        hand_over: HandOver,
        signals: Signals,
        refusals: Refusals,
        starts: Starts,
        replies: Replies,
        inboxes: Inboxes,
        at_once: AtOnce,
        hooks: MessageHooks,
        ids: IdMaker,
        clock: Clock,
    ) -> None:
        self._journal = journal
        self.meters = journal.meters
        self._directory = directory
        self._admission = admission
        self._waits = waits
        self._hand_over = hand_over
        self._signals = signals
        self._refusals = refusals
        self._starts = starts
        self._replies = replies
        self._inboxes = inboxes
        self._at_once = at_once
        self._hooks = hooks
        self._ids = ids
        self._clock = clock
        self._views = Views(directory)
        self._batches: Pipeline[Draft, Sent] = Pipeline("sends", self._begin)
        self._hooked = HookedSends(hooks, self._look_ahead, self._batches.enqueue)
        self._under_way: dict[Key, tuple[bytes, asyncio.Future[Sent]]] = {}
        # Called when plugins may have to be told of a session.
        self.on_plugin_event: Callable[[], None] = lambda: None

    async def send(self, draft: Draft) -> Sent:
        """Send a draft; returns once it is on disk. The same request under way twice is sent once."""
        return await self.enqueue(draft)

    def enqueue(self, draft: Draft) -> asyncio.Future[Sent]:
        """Queue a draft, and return the future of what is on disk then; raises what is refused at once."""
        self._refusals.check(draft.blamed)
        enqueue = self._batches.enqueue
        if self._hooks.active and self._hooks.concern_draft(draft):
            enqueue = self._hooked.enqueue
        if not draft.request_id:
            return enqueue(draft)
        key = (draft.principal.workspace_id, draft.speaker.id, draft.request_id)
        known = self._under_way.get(key)
        if known is not None:
            if known[0] != draft.digest:
                raise request_conflict(draft.request_id)
            self.meters.duplicates[REQUEST] += 1
            return asyncio.ensure_future(_repeat(known[1]))
        work = enqueue(draft)
        self._under_way[key] = (draft.digest, work)
        work.add_done_callback(lambda done: self._done(key, done))
        return asyncio.shield(work)

    async def drained(self) -> None:
        """Wait until nothing is under way."""
        await self._hooked.drained()
        await self._batches.drained()

    async def begun_before(self) -> None:
        """Wait until whatever is being prepared or written at this moment is through."""
        await self._batches.begun_before()

    def _done(self, key: Key, work: asyncio.Future[Sent]) -> None:
        del self._under_way[key]
        if not work.cancelled():
            work.exception()  # whoever waited has seen it; nobody may be left to

    async def _begin(self, drafts: list[Draft]) -> Awaitable[list[Result]]:
        """Bring a batch as far as admission; what is admitted first is written first."""
        return asyncio.create_task(self._finish(drafts, await self._admit(drafts)))

    async def _finish(self, drafts: list[Draft], batch: _Batch) -> list[Result]:
        results = await self._write_admitted(batch)
        for _ in range(_TRIES - 1):
            left = [index for index, result in enumerate(results) if result is _AGAIN]
            if not left:
                break
            again = await self._write_admitted(await self._admit([drafts[index] for index in left]))
            for index, result in zip(left, again, strict=True):
                results[index] = result
        for index, result in enumerate(results):
            if result is _AGAIN:
                results[index] = HoplineError(
                    "unavailable", "the record keeps changing under this call; try again"
                )
            if isinstance(results[index], BaseException):
                self._failed(drafts[index], results[index])
            elif isinstance(result, Sent) and result.repeated:
                self.meters.duplicates[REQUEST] += 1
        return results

    def _failed(self, draft: Draft, error: object) -> None:
        if draft.waiter is not None:
            self._waits.leave(draft.waiter)
        if isinstance(error, HoplineError):
            self._refusals.note(draft, error)

    async def _look_ahead(self, draft: Draft) -> Ready | Sent:
        """Prepare a draft that hooks are to be asked about first; raises what is refused."""
        facts = await self._look_up([draft])
        found = self._prepare(replace(draft, waiter=None), facts)
        if isinstance(found, BaseException):
            self._failed(draft, found)
            raise found
        return found

    # --- one round --------------------------------------------------------------------------------

    async def _admit(self, drafts: Sequence[Draft]) -> _Batch:
        """Prepare drafts, and have the counters decide those that can be sent."""
        point("relay.send")
        facts = await self._look_up(drafts)
        batch = _Batch([self._prepare(draft, facts) for draft in drafts])
        waiting = [
            (index, each)
            for index, each in enumerate(batch.results)
            if isinstance(each, Ready) and each.kept is None
        ]
        if not waiting:
            return batch
        try:
            batch.epoch, decisions = await self._admission.admit(
                [ready.item for _, ready in waiting], [ready.outgoing.traceparent for _, ready in waiting]
            )
        except HoplineError as error:
            for index, _ in waiting:
                batch.results[index] = error
            return batch
        point("relay.admitted")
        for (index, ready), decision in zip(waiting, decisions, strict=True):
            if decision.HasField("refusal"):
                now, name = self._clock.now(), self._namer(ready)
                batch.results[index] = refused(decision.refusal, ready.item.limits, now, name)
            else:
                _take_decision(ready, decision.admitted)
        left = await self._at_once.offer(each.outgoing for each in batch.results if isinstance(each, Ready))
        for index, ready in waiting if left else ():
            if batch.results[index] is ready and (why := left.get(ready.outgoing.id)) is not None:
                self._admission.settle(ready.item.key, committed=False)
                batch.results[index] = why
        if left:
            await self._admission.flush()  # whatever waits has cost nothing
        return batch

    def _prepare(self, draft: Draft, facts: Facts) -> Ready | Result:
        try:
            known = _known(draft, facts)
            if known is not None:
                return known
            limits = self._admission.limits(draft.principal.workspace_id)
            kind = self._replies if draft.kind in ("reply", REPORT) else self._starts
            ready = kind.prepare(draft, facts, limits, self._clock.now())
            if draft.shaped is not None:
                apply(ready, self._ids, self._clock.now())
        except HoplineError as error:
            return error
        return ready

    async def _look_up(self, drafts: Sequence[Draft]) -> Facts:
        names = Names()
        for draft in drafts:
            workspace_id = draft.principal.workspace_id
            if draft.request_id:
                names.requests.add((workspace_id, draft.speaker.id, draft.request_id))
            if draft.turn_id:
                names.turns.add((workspace_id, draft.turn_id))
            for session_id in (draft.caller_session_id, draft.session_id):
                if session_id:
                    names.sessions.add((workspace_id, session_id))
            if draft.thread_id:
                names.threads.add((workspace_id, draft.thread_id))
                names.debtors.add((workspace_id, draft.principal.id))
            if draft.message_id:
                names.messages.add((workspace_id, draft.message_id))
            if draft.kind == PEER:
                names.serving.add((workspace_id, draft.principal.id))
        if not names:
            return Facts()
        now = self._clock.now()
        return await self._journal.read(lambda connection: look_up(connection, names, now))

    async def _write_admitted(self, batch: _Batch) -> list[Result]:
        """Write what was admitted of a batch; returns a result for each of its drafts."""
        written = await self._write([each for each in batch.results if isinstance(each, Ready)], batch.epoch)
        if any(not isinstance(result, Sent) for result in written):
            await self._admission.flush()  # what cost nothing is not counted from here on
        results = iter(written)
        return [next(results) if isinstance(each, Ready) else each for each in batch.results]

    async def _write(self, batch: Sequence[Ready], epoch: int) -> list[Result]:
        """Write what was admitted, and settle every charge."""
        if not batch:
            return []
        admitted = any(ready.kept is None for ready in batch)
        try:
            outcome = await self._journal.write(
                lambda book: _write_all(book, batch),
                epoch=epoch if admitted else None,
                within=[ready.outgoing.workspace_id for ready in batch],
            )
        except FencedError:
            # First: what was offered and charged goes back whether or not the record can be read now.
            self._give_back(batch, _AGAIN)
            try:
                await self._admission.refresh_epoch()
            except HoplineError as error:
                return [error] * len(batch)
            return [_AGAIN] * len(batch)
        except (RacedError, IntegrityError) as error:
            if len(batch) > 1:
                return [result for ready in batch for result in await self._write([ready], epoch)]
            # Either somebody answered first, or the same request was written by another process.
            return self._give_back(
                batch, _AGAIN if batch[0].draft.request_id or batch[0].discharge else error
            )
        except Exception as error:
            if len(batch) > 1 and not isinstance(error, HoplineError):
                return [result for ready in batch for result in await self._write([ready], epoch)]
            return self._give_back(batch, error)
        point("relay.committed")
        results: list[Result] = []
        written: list[tuple[Ready, Record | None]] = []
        for ready, done in zip(batch, outcome, strict=True):
            if ready.kept is not None:
                results.append(sent_of(ready.outgoing, kept=True))
                written.append((ready, None if isinstance(done, HoplineError) else done))
                continue
            if isinstance(done, HoplineError):
                if done.reason == "cycle_refused":
                    done = self._cycle_refused(ready)
                results += self._give_back([ready], done)
                continue
            self._admission.settle(ready.item.key, committed=True)
            results.append(sent_of(ready.outgoing))
            written.append((ready, done))
        await self._at_once.started([ready.outgoing for ready, _ in written if ready.kept is None])
        self._tell(written)
        point("relay.settled")
        return results

    def _give_back(self, batch: Sequence[Ready], error: BaseException) -> list[Result]:
        charged = [ready for ready in batch if ready.kept is None]
        self._at_once.dropped([ready.outgoing for ready in charged])
        for ready in charged:
            self._admission.settle(ready.item.key, committed=False)
        return [error] * len(batch)

    # --- afterwards -------------------------------------------------------------------------------

    def _tell(self, written: Sequence[tuple[Ready, Record | None]]) -> None:
        """Wake whoever has something to do now; with each message comes the turn that it ended."""
        claimable: set[tuple[str, str]] = set()
        for ready, ended in written:
            outgoing = ready.outgoing
            if ready.kept is None:
                self._inboxes.remember(outgoing.inbox)
            elif ready.kept.notice is not None:
                outgoing = ready.kept.notice
            claimable.update(
                (outgoing.workspace_id, copy.id)
                for copy in outgoing.copies
                if copy.turn_id and copy.start is None
            )
            if any(copy.wish is not None and copy.wish.tells for copy in outgoing.copies):
                self.on_plugin_event()
            waiter = ready.draft.waiter
            if waiter is not None and waiter.gone:
                self._waits.forget(outgoing.workspace_id, waiter)
            if ready.discharge is not None:
                self._told(ready, ready.discharge, ended)
                claimable.add((outgoing.workspace_id, ready.discharge.recipient_id))
        self._signals.claimable(claimable)

    def _told(self, ready: Ready, discharge: Discharge, ended: Record | None) -> None:
        """Hand an answer to the calls that wait for it, and tell of the pulled turn that it ended."""
        outgoing = ready.outgoing
        if discharge.owed:
            outcome = Outcome("completed", outgoing.body, outgoing.payload, outgoing.id)
            if discharge.withheld is not None:
                outcome = Outcome("failed", fault=discharge.withheld)
            creditor = outgoing.copies[0].id
            told = self._waits.resolve(outgoing.workspace_id, discharge.turn_id, creditor, outcome)
            if ready.awaited is not None and not told:
                self._hand_over.back(outgoing.workspace_id, discharge.turn_id)
        if ended is not None and discharge.ends is not None:
            spans.turn_ended(self._journal.meters, self._directory, ended, discharge.ends, self._clock.now())
            self._admission.post_ends([end_item(ended)])
            self._signals.on_freed([session_of(ended)])

    def _cycle_refused(self, ready: Ready) -> HoplineError:
        """Return the refusal of a cycle, which names the chain as its sender may see it."""
        outgoing = ready.outgoing
        chain = outgoing.chain.split(" ")
        again = [self._namer(ready)(copy.id) for copy in outgoing.copies if copy.id in chain]
        names = [party.name for party in self._views.chain(ready.draft.principal, outgoing.chain)]
        text = (
            f"{', '.join(again)} already takes part in this chain of delegations ({' → '.join(names)}); "
            "answer instead of asking on"
        )
        details = {"rail": "refuse_cycles", "chain": names, "agent": again[0]}
        return HoplineError("cycle_refused", text, details=details)

    def _namer(self, ready: Ready) -> Callable[[str], str]:
        workspace_id = ready.outgoing.workspace_id

        def name(agent_id: str) -> str:
            agent = self._directory.agent(workspace_id, agent_id)
            return agent.name if agent is not None else agent_id

        return name


def _known(draft: Draft, facts: Facts) -> Sent | None:
    """Return what the request was answered with before; another content is refused."""
    if not draft.request_id:
        return None
    workspace_id = draft.principal.workspace_id
    row = facts.requests.get((workspace_id, draft.speaker.id, draft.request_id))
    if row is None:
        return None
    if row.digest != draft.digest:
        raise request_conflict(draft.request_id)
    if row.kept:
        thread_id, to = hooking.was_kept(row.kept)
        kept = tuple(SentCopy(kind, identifier, "", "", VETOED, reason) for kind, identifier, reason in to)
        return Sent("", thread_id, 0, kept, repeated=True)
    message = facts.messages[workspace_id, row.message_id]
    copies = tuple(
        SentCopy(
            copy.recipient_kind,
            copy.recipient_id,
            copy.session_id,
            copy.turn_id,
            VETOED if copy.state == VETOED else "queued",
            hooking.cancel_reason(copy.shaped) if copy.state == VETOED else "",
        )
        for copy in facts.deliveries[workspace_id, row.message_id]
    )
    return Sent(message.id, message.thread_id, message.depth, copies, repeated=True)


def _take_decision(ready: Ready, admitted: quota_pb.Admitted) -> None:
    """Fill in what admission has decided."""
    outgoing = ready.outgoing
    outgoing.depth, outgoing.root_id, outgoing.day = admitted.depth, admitted.root_id, admitted.day
    outgoing.price = ready.item.limits.turn_price
    if outgoing.admitted_as == "start":
        outgoing.from_depth = max(0, admitted.depth - 1)
        outgoing.chain_turn_id = admitted.cause_turn_id
        outgoing.turn_id = outgoing.turn_id or admitted.cause_turn_id


def _write_all(book: Book, batch: Sequence[Ready]) -> list[HoplineError | Record | None]:
    """Write a batch; returns for each why not, or the turn that it ended, if any."""
    held = {index: error for index, ready in enumerate(batch) if (error := _held(book, ready)) is not None}
    said = [ready.outgoing for index, ready in enumerate(batch) if index not in held and ready.kept is None]
    written = iter(write(book, said))
    outcome: list[HoplineError | Record | None] = []
    for index, ready in enumerate(batch):
        if ready.kept is not None:
            _write_kept(book, ready.outgoing, ready.kept)
            outcome.append(None)
        else:
            outcome.append(held[index] if index in held else next(written))
    for index, ready in enumerate(batch):
        if outcome[index] is None and ready.discharge is not None:
            outcome[index] = discharging.discharge(book, ready.discharge)
        if outcome[index] is None and ready.draft.firing is not None:
            scheduling.take(book, ready.draft.firing, ready.outgoing)
    return outcome


def _held(book: Book, ready: Ready) -> HoplineError | None:
    """Say why what answers a person may not go out yet; what was kept of the answer goes with it."""
    if ready.seat is None:
        return None
    book.lock(ready.seat.workspace_id)
    why = holds.reasons(book.connection, ready.seat, book.now)
    if why:
        return HeldError(why, ready)
    if ready.discharge is not None:
        holds.drop(book.connection, (ready.seat.workspace_id, ready.discharge.turn_id))
    return None


def _write_kept(book: Book, outgoing: Outgoing, kept: Kept) -> None:
    """Write what is left of a message that hooks let nobody have."""
    hooking.remember(book, outgoing)
    if kept.notice is not None:
        write(book, [kept.notice])


async def _repeat(work: asyncio.Future[Sent]) -> Sent:
    """Wait for the same request that came before."""
    return _repeated(await asyncio.shield(work))


def _repeated(sent: Sent) -> Sent:
    return Sent(sent.message_id, sent.thread_id, sent.depth, sent.copies, repeated=True)
