"""The counters' epoch, and what they are rebuilt from: sums over the record, read through its keys."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from hopline.quota.v1 import admission_pb2 as pb
from hopline_rpc.clock import to_timestamp, utc_day
from hopline_rpc.ids import encode
from sqlalchemy import Connection, and_, func, or_, select, update

from hopline_relay.store import roots as roots_store
from hopline_relay.store.book import Book
from hopline_relay.store.schema import (
    QUEUED,
    credit_accounts,
    deliveries,
    instances,
    messages,
    quota_epochs,
    turns,
    waits,
)
from hopline_relay.store.sql import insert

_EPOCH_ROW: Final = 1
_DAY: Final = 86_400.0
# An id's time and the day that a message is charged to come from two readings of the clock.
_SKEW: Final = 3_600.0
# Roots that rest, the latest first: the quota service keeps as many, for a day.
_ROOTS: Final = 10_000


_EPOCH: Final = select(quota_epochs.c.epoch).where(quota_epochs.c.id == _EPOCH_ROW)


class Windows(NamedTuple):
    """How far back a workspace's policy looks, in seconds."""

    causality: int
    pair: int


def read_epoch(connection: Connection) -> int:
    """Return the epoch in force; 0 before the first."""
    return connection.execute(_EPOCH).scalar_one_or_none() or 0


def next_epoch(book: Book, beyond: int = 0) -> int:
    """Begin a new epoch: from now on nothing charged in an earlier one can be committed.

    `beyond`: an epoch that the quota service has; the new one is later than that too.
    """
    connection = book.connection
    known = connection.execute(_EPOCH.with_for_update()).scalar_one_or_none()
    epoch = max(known or 0, beyond) + 1
    if known is None:
        insert(connection, quota_epochs, [{"id": _EPOCH_ROW, "epoch": epoch, "seeded_at": book.now}])
    else:
        connection.execute(
            update(quota_epochs)
            .where(quota_epochs.c.id == _EPOCH_ROW)
            .values(epoch=epoch, seeded_at=book.now)
        )
    return epoch


def build(connection: Connection, epoch: int, windows: Mapping[str, Windows], now: float) -> pb.SeedRequest:
    """Sum up the record of each workspace for the counters of `epoch`."""
    seed = pb.SeedRequest(epoch=epoch)
    live = _add_live(connection, seed)
    for row in connection.execute(select(credit_accounts)):
        seed.credits.add(workspace_id=row.workspace_id, charged=row.charged)
    for workspace_id, window in windows.items():
        _add_days(connection, seed, workspace_id, now)
        ended = _add_ended(connection, seed, workspace_id, now - window.causality)
        rested = _rested(connection, workspace_id, now - _DAY)
        _add_roots(connection, seed, workspace_id, live[workspace_id] | ended | rested)
        if window.pair:
            _add_pairs(connection, seed, workspace_id, now - window.pair)
    return seed


def first_id_at(prefix: str, at: float) -> str:
    """Return a text that no id made at `at` or later comes before."""
    return f"{prefix}_{encode(int(max(0.0, at) * 1000) << 80)}"


def _add_days(connection: Connection, seed: pb.SeedRequest, workspace_id: str, now: float) -> None:
    midnight = now - now % _DAY - _DAY
    since = first_id_at("msg", midnight - _SKEW)
    # Later days as well: the clock may have been set back, and they come again.
    recent = and_(
        messages.c.workspace_id == workspace_id,
        messages.c.id >= since,
        messages.c.day >= utc_day(now - _DAY),
    )
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    sent = select(messages.c.from_id, messages.c.day, func.count()).where(
        recent, messages.c.from_kind.in_(("agent", "plugin"))
    )
    for agent_id, day, count in connection.execute(sent.group_by(messages.c.from_id, messages.c.day)):
        sums[agent_id, day][0] = count
    received = (
        select(deliveries.c.recipient_id, messages.c.day, func.count())
        .select_from(messages)
        .join(
            deliveries,
            and_(
                deliveries.c.workspace_id == messages.c.workspace_id,
                deliveries.c.message_id == messages.c.id,
            ),
        )
        # What the mesh itself says is nobody's quota: it is not charged when it is written either.
        .where(recent, deliveries.c.recipient_kind == "agent", messages.c.from_kind != "mesh")
        .group_by(deliveries.c.recipient_id, messages.c.day)
    )
    for agent_id, day, count in connection.execute(received):
        sums[agent_id, day][1] = count
    for (agent_id, day), (sent_count, received_count) in sums.items():
        seed.days.add(
            workspace_id=workspace_id, agent_id=agent_id, day=day, sent=sent_count, received=received_count
        )


def _add_live(connection: Connection, seed: pb.SeedRequest) -> dict[str, set[str]]:
    """Add what is queued or runs, all workspaces at once; returns the roots by workspace."""
    alive = select(waits.c.waiter_turn_id).join(instances, instances.c.id == waits.c.instance_id)
    waiting = set(connection.execute(alive.where(instances.c.ended_at.is_(None))).scalars())
    roots: dict[str, set[str]] = defaultdict(set)
    # Whatever has not ended is due at some time.
    for row in connection.execute(select(*_COLUMNS).where(turns.c.due_at.is_not(None))):
        turn = _turn(seed, row)
        turn.price = row.price
        turn.queued = row.state == "queued"
        if not turn.queued:
            turn.running, turn.holds_slot, turn.attempt = True, row.slot, row.attempt
            turn.waiting = row.id in waiting
        roots[row.workspace_id].add(row.root_id)
    return roots


def _add_ended(connection: Connection, seed: pb.SeedRequest, workspace_id: str, since: float) -> set[str]:
    """Add what ended within the causality window; returns the roots."""
    roots = set()
    # A turn that was queued until it ended never ran, and so started nothing; one that is queued again did.
    query = select(*_COLUMNS).where(
        turns.c.workspace_id == workspace_id,
        turns.c.ended_at >= since,
        or_(turns.c.started_at.is_not(None), turns.c.state == QUEUED),
    )
    for row in connection.execute(query):
        _turn(seed, row).ended_at.CopyFrom(to_timestamp(row.ended_at))
        roots.add(row.root_id)
    return roots


def _rested(connection: Connection, workspace_id: str, since: float) -> set[str]:
    """Return the roots under which something ended: an answer that comes back late goes on under them."""
    query = (
        select(turns.c.root_id)
        .where(turns.c.workspace_id == workspace_id, turns.c.ended_at >= since)
        .group_by(turns.c.root_id)
        .order_by(func.max(turns.c.ended_at).desc())
        .limit(_ROOTS)
    )
    return set(connection.execute(query).scalars())


_COLUMNS: Final = (
    turns.c.id,
    turns.c.workspace_id,
    turns.c.agent_id,
    turns.c.state,
    turns.c.depth,
    turns.c.root_id,
    turns.c.slot,
    turns.c.attempt,
    turns.c.ended_at,
    turns.c.price,
)


def _turn(seed: pb.SeedRequest, row: Any) -> pb.SeedTurn:
    return seed.turns.add(
        turn_id=row.id,
        workspace_id=row.workspace_id,
        agent_id=row.agent_id,
        depth=row.depth,
        root_id=row.root_id,
    )


def _add_roots(connection: Connection, seed: pb.SeedRequest, workspace_id: str, roots: set[str]) -> None:
    counts = roots_store.counts(connection, [(workspace_id, root_id) for root_id in roots])
    for (_, root_id), (started, extra) in counts.items():
        seed.roots.add(workspace_id=workspace_id, root_id=root_id, turns=started, extra_turns=extra)


def _add_pairs(connection: Connection, seed: pb.SeedRequest, workspace_id: str, since: float) -> None:
    query = (
        select(messages.c.from_id, deliveries.c.recipient_id, messages.c.created_at)
        .join(
            deliveries,
            and_(
                deliveries.c.workspace_id == messages.c.workspace_id,
                deliveries.c.message_id == messages.c.id,
            ),
        )
        .where(
            messages.c.workspace_id == workspace_id,
            # A clock that went ahead while a send was on its way (a laptop slept) has left it an older id.
            messages.c.id >= first_id_at("msg", since - _DAY - _SKEW),
            messages.c.created_at >= since,
            messages.c.admitted_as == "start",
        )
    )
    starts: dict[tuple[str, str], list[float]] = defaultdict(list)
    for sender, recipient, at in connection.execute(query):
        one, other = sorted((sender, recipient))
        starts[one, other].append(at)
    for (one, other), times in starts.items():
        seed.pairs.add(
            workspace_id=workspace_id, agent_a=one, agent_b=other, starts=[to_timestamp(at) for at in times]
        )
