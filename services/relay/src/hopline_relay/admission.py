"""The relay's side of admission: asks the quota service, tells it what became of charges, rebuilds it.

What was charged is settled with the next call, or a moment later when there is none. Counters that were
lost are rebuilt from the record under a new epoch before anything else is admitted.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, Final, TypeVar

import grpc.aio
from hopline.common.v1 import errors_pb2
from hopline.quota.v1 import admission_pb2 as pb
from hopline.quota.v1.admission_pb2_grpc import AdmissionServiceStub
from hopline_directory import Directory
from hopline_directory.records import Policy
from hopline_rpc.calls import detach
from hopline_rpc.clock import Clock, Handle, from_timestamp
from hopline_rpc.errors import HoplineError

from hopline_relay.admit_spans import AdmitSpans
from hopline_relay.batching import Batcher
from hopline_relay.journal import Journal
from hopline_relay.store import roots, seeding
from hopline_relay.store.sql import Record
from hopline_relay.store.turns import never_ran

log = logging.getLogger("hopline.relay.admission")

T = TypeVar("T")

MAX_ITEMS: Final = 256
MAX_TURNS: Final = 1024
_MAX_SETTLED: Final = 4096
_IDLE_FLUSH_SECONDS: Final = 1.0
_RETRIES: Final = 5
_RETRY_SECONDS: Final = 1.0
# A root this young cannot have been forgotten by the counters that saw it begin.
_FRESH_SECONDS: Final = 60.0


class Admission:
    """One for each process. Everything raises `unavailable` when the quota service cannot be reached."""

    def __init__(
        self, channel: grpc.aio.Channel, journal: Journal, directory: Directory, clock: Clock
    ) -> None:
        self._stub = AdmissionServiceStub(channel)
        self._journal = journal
        self._directory = directory
        self._clock = clock
        self.epoch = 0
        self._settled: deque[pb.Settlement] = deque()
        self._flush_timer: Handle | None = None
        self._limits: dict[str, tuple[Policy, pb.Limits]] = {}
        self._reseeds: Batcher[int, None] = Batcher("reseed", self._reseed)
        self._waits: Batcher[pb.SetWaitingItem, None] = Batcher(
            "set waiting", self._set_waiting, most=MAX_TURNS
        )
        self._ends: Batcher[pb.EndTurnItem, None] = Batcher("ends", self._end_posted, most=MAX_TURNS)

    # --- what calls use ---------------------------------------------------------------------------

    def limits(self, workspace_id: str) -> pb.Limits:
        """Return the limits in force, as admission takes them."""
        policy = self._directory.policy(workspace_id)
        known = self._limits.get(workspace_id)
        if known is not None and known[0] is policy:
            return known[1]
        rate = policy.pair_budget
        limits = pb.Limits(
            max_depth=policy.max_depth,
            root_turns=policy.root_turns,
            sent_per_day=policy.sent_per_day,
            received_per_day=policy.received_per_day,
            pair_budget=rate.count if rate else 0,
            pair_window_seconds=rate.seconds if rate else 0,
            inbox_backlog=policy.inbox_backlog,
            causality_window_seconds=policy.causality_window_seconds,
            agents=policy.agents,
            turn_price=millionths(policy.credits),
        )
        self._limits[workspace_id] = (policy, limits)
        return limits

    async def admit(
        self, items: Sequence[pb.AdmitItem], traces: Sequence[str] = ()
    ) -> tuple[int, list[pb.AdmitResult]]:
        """Decide items in order; returns the epoch they were charged in, and a result for each.

        Every admitted item must be settled. `traces`: to which each belongs.
        """
        spans = AdmitSpans(traces)
        try:
            with spans.current():
                epoch, results = await self._admit(items)
        except BaseException as error:
            spans.fail(error.reason if isinstance(error, HoplineError) else "cancelled")
            raise
        spans.end(results)
        return epoch, results

    async def _admit(self, items: Sequence[pb.AdmitItem]) -> tuple[int, list[pb.AdmitResult]]:
        results: list[pb.AdmitResult] = []
        epoch = self.epoch
        answers = [each for each in items if each.answer_root_id]
        await self._recall([(each.workspace_id, each.answer_root_id, each.answer_root) for each in answers])
        for start in range(0, len(items), MAX_ITEMS):
            part = items[start : start + MAX_ITEMS]

            async def call(epoch: int, part: Sequence[pb.AdmitItem] = part) -> pb.AdmitResponse:
                settled = self._take_settled()
                request = pb.AdmitRequest(
                    epoch=epoch, instance_id=self._journal.instance_id, settled=settled, items=part
                )
                try:
                    response = await self._stub.Admit(request)
                except BaseException:
                    self._settled.extendleft(reversed(settled))
                    # Whether these were charged is not known: they are given back, which is idempotent.
                    for item in part:
                        self.settle(item.key, committed=False)
                    raise
                return response

            epoch, response = await self._retried(call)
            results.extend(response.results)
        depths = self._journal.meters.depths
        for result in results:
            if result.HasField("admitted"):
                depths.add(result.admitted.depth)
        return epoch, results

    async def admit_nothing(self) -> tuple[int, pb.AdmitResponse]:
        """Ask the counters as `admit` does, without an item; returns the epoch that they are in."""

        async def call(epoch: int) -> pb.AdmitResponse:
            request = pb.AdmitRequest(epoch=epoch, instance_id=self._journal.instance_id)
            return await self._stub.Admit(request)

        return await self._retried(call)

    def settle(self, key: str, *, committed: bool) -> None:
        """Say what became of a charge. Travels with the next call."""
        self._settled.append(pb.Settlement(key=key, committed=committed))
        if self._flush_timer is None:
            self._flush_timer = self._clock.call_later(_IDLE_FLUSH_SECONDS, self._flush_soon)

    async def begin(self, items: Sequence[pb.BeginTurnItem]) -> list[bool]:
        """Count turns as running from now on; False where there is no run slot."""
        started: list[bool] = []
        await self._recall([(each.workspace_id, each.root_id, each.root) for each in items])
        for start in range(0, len(items), MAX_TURNS):
            part = items[start : start + MAX_TURNS]

            async def call(epoch: int, part: Sequence[pb.BeginTurnItem] = part) -> pb.BeginTurnResponse:
                return await self._stub.BeginTurn(pb.BeginTurnRequest(epoch=epoch, items=part))

            _, response = await self._retried(call)
            started.extend(state == pb.BEGIN_STATE_STARTED for state in response.states)
        return started

    async def _recall(self, named: Sequence[tuple[str, str, pb.RootCount]]) -> None:
        """Fill in what the record says of roots that are not of just now: they may have been forgotten."""
        now = self._clock.now()
        since, until = (seeding.first_id_at("rot", now + by) for by in (-_FRESH_SECONDS, _FRESH_SECONDS))
        old = [(workspace, root, into) for workspace, root, into in named if not since <= root < until]
        if not old:
            return
        keys = {(workspace, root) for workspace, root, _ in old}
        known = await self._journal.read(partial(roots.counts, keys=keys))
        for workspace, root, into in old:
            if (workspace, root) in known:
                into.turns, into.extra_turns = known[workspace, root]

    async def extend_root(self, workspace_id: str, root_id: str, extra_turns: int) -> None:
        """Tell what a root was granted in all; that is on disk."""
        await self._retried(
            lambda epoch: self._stub.ExtendRoot(
                pb.ExtendRootRequest(
                    epoch=epoch, workspace_id=workspace_id, root_id=root_id, extra_turns=extra_turns
                )
            )
        )

    async def set_waiting(self, workspace_id: str, turn_id: str, *, waiting: bool) -> None:
        """Give the run slot of a turn back while it waits, or retake it."""
        await self._waits.submit(
            pb.SetWaitingItem(turn_id=turn_id, workspace_id=workspace_id, waiting=waiting)
        )

    def post_waiting(self, workspace_id: str, turn_id: str, *, waiting: bool) -> None:
        """The same, without waiting for it."""
        self._waits.post(pb.SetWaitingItem(turn_id=turn_id, workspace_id=workspace_id, waiting=waiting))

    def post_ends(self, items: Sequence[pb.EndTurnItem]) -> None:
        """Tell of ends of turns, without waiting for it; tried until it is heard."""
        for item in items:
            self._ends.post(item)

    async def told_ends(self, items: Sequence[pb.EndTurnItem]) -> None:
        """The same, and wait for the first attempt."""
        await asyncio.gather(*(self._ends.submit(item) for item in items))

    async def close(self) -> None:
        """Tell what is still to be told."""
        if self._flush_timer is not None:
            self._flush_timer.cancel()
        await self.settled()

    async def settled(self) -> None:
        """Wait until the quota service knows everything that was said."""
        await self._waits.drained()
        await self._ends.drained()
        await self.flush()

    # --- seeding ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Rebuild the counters from the record, which settles whatever an earlier process left open.

        Waits for a quota service that is not there yet.
        """
        complaint = ""
        while not self.epoch:
            try:
                await self._reseeds.submit(self.epoch)
            except HoplineError as error:
                if error.message != complaint:
                    log.warning("waiting for the quota service: %s", error.message)
                complaint = error.message
                await self._clock.sleep(_RETRY_SECONDS)

    async def refresh_epoch(self) -> None:
        """Take over the epoch that stands in the record: another process has seeded."""
        self.epoch = await self._journal.read(seeding.read_epoch)

    async def reseed(self) -> None:
        """Rebuild the counters: charges of a process that died are settled by that."""
        await self._reseeds.submit(self.epoch)

    async def _adopt(self, lost: int) -> None:
        """Go on from lost counters: with those that another process has rebuilt, or by rebuilding them."""
        if self._journal.shared:
            known = await self._journal.read(seeding.read_epoch)
            if known > lost:
                self._settled.clear()  # they went with the counters
                self.epoch = max(self.epoch, known)
                return
        await self._reseeds.submit(lost)

    async def _reseed(self, lost: list[int]) -> list[None]:
        """Seed a new epoch, unless that has been done since `lost` was seen."""
        if self.epoch and max(lost) < self.epoch:
            return [None] * len(lost)
        windows = {
            each.id: seeding.Windows(
                policy.causality_window_seconds, policy.pair_budget.seconds if policy.pair_budget else 0
            )
            for each in self._directory.workspaces()
            for policy in [self._directory.policy(each.id)]
        }
        beyond = 0
        for _ in range(_RETRIES):
            # The new epoch is committed first: whoever admitted under the old one can commit no more, so
            # that what is read next is everything that was ever charged.
            epoch = await self._journal.write(partial(seeding.next_epoch, beyond=beyond))
            now = self._clock.now()
            seed = await self._journal.read(partial(seeding.build, epoch=epoch, windows=windows, now=now))
            response = await self._stub.Seed(seed)
            if response.accepted:
                break
            # Another process was faster, or the counters are ahead of a record that was restored.
            beyond = response.epoch
        else:
            raise HoplineError("unavailable", "the counters cannot be rebuilt just now", retry_after=1.0)
        self._settled.clear()
        self.epoch = epoch
        log.info("counters rebuilt from the record, epoch %d", self.epoch)
        return [None] * len(lost)

    async def _retried(self, call: Callable[[int], Awaitable[Any]]) -> tuple[int, Any]:
        """Make a call, and again when the counters had to be rebuilt first."""
        for _ in range(_RETRIES):
            epoch = self.epoch
            if not epoch:
                # Rebuilt before what an earlier process left is settled, they would be wrong.
                raise HoplineError("unavailable", "the relay is starting", retry_after=1.0)
            try:
                response = await call(epoch)
            except HoplineError as error:
                if error.reason != "unauthenticated":
                    raise
                # Ours was refused: not that of the caller, who must not throw a good one away.
                text = "the quota service does not accept this service's own credential"
                raise HoplineError("unavailable", text) from None
            if not response.counters_lost:
                return epoch, response
            await self._adopt(epoch)
        raise HoplineError("unavailable", "the counters are being rebuilt; try again", retry_after=1.0)

    # --- settling ---------------------------------------------------------------------------------

    def _take_settled(self) -> list[pb.Settlement]:
        return [self._settled.popleft() for _ in range(min(_MAX_SETTLED, len(self._settled)))]

    def _flush_soon(self) -> None:
        self._flush_timer = None
        if self._settled:
            detach(self.flush(), name="settle charges")

    async def flush(self) -> None:
        """Tell of everything that is settled, now."""
        while self._settled:
            settled = self._take_settled()
            try:
                response = await self._stub.Refund(pb.RefundRequest(epoch=self.epoch, settled=settled))
            except HoplineError as error:
                log.warning("charges could not be settled: %s", error.message)
                self._settled.extendleft(reversed(settled))
                return
            if response.counters_lost:
                return  # they went with the counters

    async def _end_posted(self, items: list[pb.EndTurnItem]) -> list[None]:
        try:
            await self._retried(lambda epoch: self._stub.EndTurn(pb.EndTurnRequest(epoch=epoch, items=items)))
        except HoplineError as error:
            # A turn that is thought to run for ever would hold its slot: tell it until it is heard.
            log.warning("ends of turns could not be told yet: %s", error.message)
            self._clock.call_later(_RETRY_SECONDS, lambda: self.post_ends(items))
        return [None] * len(items)

    async def _set_waiting(self, items: list[pb.SetWaitingItem]) -> list[None]:
        try:
            await self._retried(
                lambda epoch: self._stub.SetWaiting(pb.SetWaitingRequest(epoch=epoch, items=items))
            )
        except HoplineError as error:
            # A slot that is not given back only makes others wait; one that is not retaken must be.
            log.warning("waits could not be told yet: %s", error.message)
            for item in items:
                if not item.waiting:
                    self._clock.call_later(_RETRY_SECONDS, partial(self._waits.post, item))
        return [None] * len(items)


def millionths(price: Decimal | None) -> int:
    """Return a price as admission takes it; it has six decimals at most."""
    return 0 if price is None else int(price.scaleb(6))


def end_item(row: Record) -> pb.EndTurnItem:
    """Return what the quota service is told of a turn that has ended, given as it was before."""
    ran = row.state == "running"
    item = pb.EndTurnItem(
        turn_id=row.id,
        workspace_id=row.workspace_id,
        agent_id=row.agent_id,
        kind=pb.END_KIND_ENDED if ran else pb.END_KIND_DROPPED,
        attempt=row.attempt if ran else 0,
    )
    if row.price:
        item.price = pb.TURN_PRICE_GIVEN_BACK if never_ran(row) else pb.TURN_PRICE_KEPT
    return item


def requeued_item(row: Record, attempt: int) -> pb.EndTurnItem:
    """Return what the quota service is told of a turn whose attempt is over, and which is queued again."""
    return pb.EndTurnItem(
        turn_id=row.id,
        workspace_id=row.workspace_id,
        agent_id=row.agent_id,
        kind=pb.END_KIND_REQUEUED,
        attempt=attempt,
    )


# Their figures are the sender's own; those of a recipient are none of its business.
_OWN: Final = frozenset({"max_depth", "root_turns", "sent_per_day", "pair_budget"})


def refused(
    refusal: pb.Refusal, limits: pb.Limits, now: float, name_of: Callable[[str], str]
) -> HoplineError:
    """Turn a refusal into the caller's error; recipients are named as the caller may see them."""
    message, details = refusal.message, dict[str, str | int](refusal.figures)
    if refusal.rail:
        details["rail"] = refusal.rail
    if refusal.recipient_id:
        name = name_of(refusal.recipient_id)
        message = message.replace(refusal.recipient_id, name)
        details["agent"] = name
    if refusal.rail in _OWN:
        details["limit"] = refusal.limit
        details["used"] = refusal.used
    if refusal.rail == "pair_budget":
        details["window_seconds"] = limits.pair_window_seconds
    retry_after = None
    if refusal.HasField("resets_at"):
        retry_after = max(0.0, from_timestamp(refusal.resets_at) - now)
        details["resets_at"] = refusal.resets_at.ToJsonString()
    reason = errors_pb2.ErrorReason.Name(refusal.reason).removeprefix("ERROR_REASON_").lower()
    subject = refusal.rail or reason
    return HoplineError(reason, message, details=details, quota=(subject, message), retry_after=retry_after)
