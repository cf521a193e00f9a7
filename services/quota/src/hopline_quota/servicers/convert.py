"""The contract's messages to and from the domain's values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from hopline.common.v1 import errors_pb2
from hopline.quota.v1 import admission_pb2 as pb
from hopline_rpc.clock import from_timestamp, to_timestamp
from hopline_rpc.errors import invalid

from hopline_quota.domain import days
from hopline_quota.domain.values import (
    Admitted,
    Begin,
    DaySum,
    Decision,
    End,
    EndKind,
    Handed,
    Item,
    Kind,
    Limits,
    Price,
    Recipient,
    Record,
    RootCount,
    SeedCredit,
    SeedPair,
    SeedRoot,
    SeedState,
    SeedTurn,
    Settlement,
    Waiting,
)

_KINDS: Final = {
    pb.ADMIT_KIND_START: Kind.START,
    pb.ADMIT_KIND_ANSWER: Kind.ANSWER,
    pb.ADMIT_KIND_PERSON: Kind.PERSON,
    pb.ADMIT_KIND_SOURCE: Kind.SOURCE,
    pb.ADMIT_KIND_WAKE: Kind.WAKE,
}
_ENDS: Final = {
    pb.END_KIND_ENDED: EndKind.ENDED,
    pb.END_KIND_DROPPED: EndKind.DROPPED,
    pb.END_KIND_REQUEUED: EndKind.REQUEUED,
}
_PRICES: Final = {
    pb.TURN_PRICE_UNSPECIFIED: Price.OPEN,
    pb.TURN_PRICE_KEPT: Price.KEPT,
    pb.TURN_PRICE_GIVEN_BACK: Price.GIVEN_BACK,
}
_REASONS: Final = {
    name.removeprefix("ERROR_REASON_").lower(): number for name, number in errors_pb2.ErrorReason.items()
}


def item(entry: pb.AdmitItem) -> Item:
    """Read one item."""
    limits = entry.limits
    return Item(
        entry.key,
        entry.workspace_id,
        _KINDS[entry.kind],
        entry.sender_id,
        entry.kind in (pb.ADMIT_KIND_PERSON, pb.ADMIT_KIND_SOURCE),
        tuple([Recipient(each.agent_id, each.turn_id) for each in entry.recipients]),
        entry.cause_turn_id,
        entry.new_root_id,
        entry.answer_depth,
        entry.answer_root_id,
        Limits(
            limits.max_depth,
            limits.root_turns,
            limits.sent_per_day,
            limits.received_per_day,
            limits.pair_budget,
            limits.pair_window_seconds,
            limits.inbox_backlog,
            limits.causality_window_seconds,
            limits.agents,
            limits.turn_price,
        ),
        _root_count(entry.answer_root) if entry.HasField("answer_root") else None,
        Handed(entry.handed.depth, tuple(entry.handed.root_ids)) if entry.HasField("handed") else None,
    )


def _root_count(root: pb.RootCount) -> RootCount:
    return RootCount(root.turns, root.extra_turns)


def result(decision: Decision) -> pb.AdmitResult:
    """Write one decision."""
    if isinstance(decision, Admitted):
        return pb.AdmitResult(
            admitted=pb.Admitted(
                depth=decision.depth,
                root_id=decision.root_id,
                opened_root=decision.opened_root,
                day=decision.day,
                cause_turn_id=decision.cause_turn_id,
            )
        )
    resets_at = None if decision.resets_at is None else to_timestamp(decision.resets_at)
    return pb.AdmitResult(
        refusal=pb.Refusal(
            reason=_REASONS[decision.reason],
            message=decision.message,
            limit=decision.limit,
            used=decision.used,
            resets_at=resets_at,
            recipient_id=decision.recipient_id,
            rail=decision.rail,
            figures=dict(decision.figures),
        )
    )


def settlements(entries: Iterable[pb.Settlement]) -> list[Settlement]:
    """Read settlements."""
    return [Settlement(entry.key, entry.committed) for entry in entries]


def begin(entry: pb.BeginTurnItem) -> Begin:
    """Read a turn that is about to run."""
    return Begin(
        entry.turn_id,
        entry.workspace_id,
        entry.agent_id,
        entry.depth,
        entry.root_id,
        entry.attempt,
        entry.needs_slot,
        entry.concurrent_runs,
        _root_count(entry.root) if entry.HasField("root") else None,
    )


def end(entry: pb.EndTurnItem) -> End:
    """Read a turn that left."""
    return End(entry.turn_id, entry.workspace_id, entry.attempt, _ENDS[entry.kind], _PRICES[entry.price])


def waiting(entry: pb.SetWaitingItem) -> Waiting:
    """Read a turn that begins or stops to wait."""
    return Waiting(entry.turn_id, entry.workspace_id, entry.waiting)


def record(request: pb.SeedRequest) -> Record:
    """Read a seed; `invalid_argument` names the entry that makes no sense."""
    return Record(
        days=tuple(_day_sum(index, entry) for index, entry in enumerate(request.days)),
        turns=tuple(_turn(index, entry) for index, entry in enumerate(request.turns)),
        roots=tuple(
            SeedRoot(entry.workspace_id, entry.root_id, entry.turns, entry.extra_turns)
            for entry in request.roots
        ),
        pairs=tuple(
            SeedPair(
                entry.workspace_id,
                entry.agent_a,
                entry.agent_b,
                tuple(from_timestamp(start) for start in entry.starts),
            )
            for entry in request.pairs
        ),
        credits=tuple(SeedCredit(entry.workspace_id, entry.charged) for entry in request.credits),
    )


def _day_sum(index: int, entry: pb.SeedDaySum) -> DaySum:
    try:
        days.read_day(entry.day)
    except ValueError:
        raise invalid(f"days[{index}].day", "must be a UTC day such as 2026-11-30") from None
    return DaySum(entry.workspace_id, entry.agent_id, entry.day, entry.sent, entry.received)


def _turn(index: int, entry: pb.SeedTurn) -> SeedTurn:
    ended = entry.HasField("ended_at")
    if entry.queued + entry.running + ended != 1:
        raise invalid(f"turns[{index}]", "must be exactly one of queued, running and ended")
    running = SeedState.RUNNING if entry.running else SeedState.ENDED
    return SeedTurn(
        turn_id=entry.turn_id,
        workspace_id=entry.workspace_id,
        agent_id=entry.agent_id,
        depth=entry.depth,
        root_id=entry.root_id,
        attempt=entry.attempt,
        state=SeedState.QUEUED if entry.queued else running,
        holds_slot=entry.holds_slot,
        waiting=entry.waiting,
        ended_at=from_timestamp(entry.ended_at) if ended else 0.0,
        price=entry.price,
    )
