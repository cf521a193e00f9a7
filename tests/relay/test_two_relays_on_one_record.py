"""Two relays write to one record on PostgreSQL: what the record promises holds whoever of them is first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

import pytest
from hopline_relay.domain.chain import beginning, next_link
from hopline_relay.domain.values import Actor
from hopline_relay.journal import FencedError, Journal
from hopline_relay.sealing import Sealer
from hopline_relay.store import queues, seals, seeding, timers, turns, writing
from hopline_relay.store.book import Book
from hopline_relay.store.outgoing import Copy, Outgoing
from hopline_relay.store.schema import (
    audit_events,
    audit_seals,
    heads,
    instances,
    messages,
    sessions,
    threads,
)
from hopline_relay.store.schema import timers as timer_rows
from hopline_relay.store.schema import turns as turn_rows
from hopline_relay.store.sessions import SessionWish
from hopline_relay.store.sql import insert
from hopline_relay.store.turns import Ended, Start
from hopline_rpc.clock import ManualClock
from hopline_rpc.errors import HoplineError
from hopline_store import open_database
from sqlalchemy import Connection, func, select
from sqlalchemy.exc import IntegrityError

from tests.support import postgres, stores

WORKSPACE, ADA, BOB = "ws", "agt_ada", "agt_bob"


@pytest.fixture
async def relays() -> AsyncIterator[tuple[Journal, Journal]]:
    """The journals of two relays that are both alive."""
    clock = ManualClock(1_750_000_000.0)
    with postgres.database(stores.migrated()) as url:
        stores_of_both = [open_database(url, name="relay") for _ in range(2)]
        both = [Journal(each, clock, f"ins_{n}") for n, each in enumerate(stores_of_both)]
        await both[0].write(_begin)
        yield both[0], both[1]
        for each in stores_of_both:
            await each.close()


def _begin(book: Book) -> None:
    insert(
        book.connection,
        instances,
        [
            {
                "id": f"ins_{n}",
                "started_at": book.now,
                "ended_at": None,
                "seen_at": None,
                "tunnels": 0,
                "address": "",
            }
            for n in range(2)
        ],
    )
    seeding.next_epoch(book)


def message(number: int, thread: str = "", *, workspace: str = WORKSPACE, **more: Any) -> Outgoing:
    """Return a message from Ada to Bob; without a thread it opens one."""
    wish = SessionWish(
        workspace_id=workspace,
        fresh_id=f"ses_{workspace}_{number}",
        agent_id=BOB,
        peer_id=ADA,
        peer_name="Ada",
        opener_kind="agent",
        opener_id=ADA,
    )
    return Outgoing(
        workspace_id=workspace,
        id=f"msg_{number}",
        kind="message",
        sender=Actor("agent", ADA),
        thread_id=thread or f"thr_{number}",
        opens_thread=not thread,
        depth=1,
        from_depth=0,
        root_id="rot_1",
        admitted_as="start",
        day="2025-06-15",
        copies=[Copy(kind="agent", id=BOB, wish=wish, turn_id=f"trn_{number}")],
        queue_seconds=3600.0,
        **more,
    )


async def write(journal: Journal, *outgoing: Outgoing, epoch: int | None = 1) -> list[HoplineError | None]:
    return await journal.write(
        lambda book: writing.write(book, outgoing),
        epoch=epoch,
        within=[each.workspace_id for each in outgoing],
    )


async def in_turns(relays: Sequence[Journal], outgoing: Sequence[Outgoing]) -> list[Any]:
    """Have the relays write, one message each in turn, all at once."""
    work = [write(relays[n % 2], each) for n, each in enumerate(outgoing)]
    return list(await asyncio.gather(*work, return_exceptions=True))


async def column(journal: Journal, *columns: Any, **where: Any) -> list[Any]:
    query = select(*columns).order_by(*columns)
    for name, value in where.items():
        query = query.where(columns[0].table.c[name] == value)
    rows = await journal.read(lambda connection: connection.execute(query).all())
    return [row[0] if len(columns) == 1 else tuple(row) for row in rows]


async def test_a_thread_takes_as_many_as_it_may_and_numbers_them_without_a_gap(
    relays: tuple[Journal, Journal],
) -> None:
    await write(relays[0], message(0))
    found = await in_turns(relays, [message(n, "thr_0", cap=40) for n in range(1, 81)])
    refused = [each[0] for each in found if each[0] is not None]
    assert {error.reason for error in refused} == {"thread_full"}
    assert len(refused) == 41
    assert await column(relays[0], messages.c.seq) == list(range(1, 41))
    assert await column(relays[0], threads.c.message_count) == [40]


async def test_ordinals_and_numbers_of_the_log_are_given_out_once(relays: tuple[Journal, Journal]) -> None:
    assert await in_turns(relays, [message(n) for n in range(80)]) == [[None]] * 80
    ordinals = [
        *await column(relays[0], messages.c.ordinal),
        *await column(relays[0], turn_rows.c.ordinal),
        *await column(relays[0], sessions.c.ordinal),
    ]
    assert len(set(ordinals)) == len(ordinals)
    numbers = await column(relays[0], audit_events.c.seq)
    assert numbers == list(range(1, len(numbers) + 1))
    assert await column(relays[0], heads.c.ordinal, heads.c.audit_seq) == [(max(ordinals), len(numbers))]


async def test_a_request_that_reaches_both_is_one_message(relays: tuple[Journal, Journal]) -> None:
    pairs = [
        message(2 * n + copy, request_id=f"req_{n}", digest=b"same") for n in range(20) for copy in range(2)
    ]
    found = await in_turns(relays, pairs)
    # Whoever came second looks again and finds the first.
    assert sum(isinstance(each, IntegrityError) for each in found) == 20
    assert sum(each == [None] for each in found) == 20
    assert len(await column(relays[0], messages.c.id)) == 20


async def test_messages_of_one_pair_share_its_sessions_and_number_them_once(
    relays: tuple[Journal, Journal],
) -> None:
    assert await in_turns(relays, [message(n) for n in range(20)]) == [[None]] * 20
    assert await column(relays[0], sessions.c.number) == [1]


async def test_a_turn_that_both_claim_starts_once_and_one_in_its_session(
    relays: tuple[Journal, Journal],
) -> None:
    await in_turns(relays, [message(n) for n in range(10)])
    rows = await relays[0].read(lambda connection: queues.queued_of(connection, WORKSPACE, BOB, 100))
    assert len(rows) == 10
    now = relays[0].clock.now()
    starts = [Start(row, 1, True, now, now + 30, now + 60, "", "delivered") for row in rows]
    started = await asyncio.gather(
        *[
            each.write(partial(turns.start, starts=[start], instance_id=each.instance_id), within=[WORKSPACE])
            for start in starts
            for each in relays
        ]
    )
    # They all stand in one session.
    (winner,) = [start.id for won in started for start in won]
    assert await column(relays[0], turn_rows.c.id, state="running") == [winner]


async def test_a_turn_that_both_end_ends_once(relays: tuple[Journal, Journal]) -> None:
    await in_turns(relays, [message(n) for n in range(10)])
    ends = [
        Ended(WORKSPACE, f"trn_{n}", ("queued",), state, "failed")
        for n in range(10)
        for state in ("failed", "canceled")
    ]
    done = await asyncio.gather(
        *[
            relays[n % 2].write(partial(turns.finish, endings=[each]), within=[WORKSPACE])
            for n, each in enumerate(ends)
        ]
    )
    assert [len(done[2 * n]) + len(done[2 * n + 1]) for n in range(10)] == [1] * 10
    ended = await column(relays[0], audit_events.c.turn_id, action="turn.ended")
    assert ended == sorted(f"trn_{n}" for n in range(10))


async def test_a_timer_that_both_find_due_is_taken_by_one(relays: tuple[Journal, Journal]) -> None:
    for n in range(10):
        await relays[0].write(partial(_timer, number=n))
    rows = await relays[0].read(lambda connection: connection.execute(select(timer_rows)).all())
    taken = await asyncio.gather(
        *[each.write(partial(timers.take, row=row), within=[WORKSPACE]) for row in rows for each in relays]
    )
    assert sum(taken) == 10


def _timer(book: Book, number: int) -> None:
    row: dict[str, Any] = dict.fromkeys((column.name for column in timer_rows.columns), "")
    row |= dict.fromkeys(("created_at", "fires_at", "due_at", "set_at"), book.now)
    row |= {"workspace_id": WORKSPACE, "id": f"tmr_{number}", "ordinal": book.ordinal(WORKSPACE)}
    row |= {"depth": 0, "hook_generation": 0}
    insert(book.connection, timer_rows, [row])


async def test_two_sealers_make_one_chain_without_a_gap(relays: tuple[Journal, Journal]) -> None:
    sealers = [Sealer(each, each.clock) for each in relays]
    for round_ in range(10):
        await in_turns(relays, [message(10 * round_ + n) for n in range(4)])
        await asyncio.gather(*[each.seal(WORKSPACE) for each in sealers])
    await sealers[0].seal(WORKSPACE)
    found = await column(relays[0], audit_seals.c.first_seq, audit_seals.c.last_seq)
    assert found[0][0] == 1
    assert [first for first, _ in found[1:]] == [last + 1 for _, last in found[:-1]]
    assert found[-1][1] == (await column(relays[0], heads.c.audit_seq))[0]
    tail = await relays[1].read(lambda connection: seals.tail(connection, WORKSPACE))
    again = await relays[0].read(lambda connection: _chain_of(connection, found[-1][1]))
    assert tail.link == again


def _chain_of(connection: Connection, last: int) -> bytes:
    link = beginning(WORKSPACE).link
    for row in seals.events(connection, WORKSPACE, 0, last, 10_000):
        link = next_link(link, row)
    return link


async def test_once_an_epoch_has_begun_nothing_of_the_one_before_is_written(
    relays: tuple[Journal, Journal],
) -> None:
    outgoing = [message(n) for n in range(60)]
    work = [write(relays[n % 2], each) for n, each in enumerate(outgoing)]
    bump = relays[1].write(seeding.next_epoch)
    found = await asyncio.gather(*work[:30], bump, *work[30:], return_exceptions=True)
    epoch = found.pop(30)
    assert epoch == 2
    assert {type(each) for each in found} <= {list, FencedError}
    with pytest.raises(FencedError):
        await write(relays[0], message(100))
    written = await relays[0].read(
        lambda connection: connection.execute(select(func.count()).select_from(messages)).scalar()
    )
    assert written == sum(isinstance(each, list) for each in found)
    assert await write(relays[0], message(101), epoch=2) == [None]


async def test_batches_over_several_workspaces_never_block_each_other(
    relays: tuple[Journal, Journal],
) -> None:
    names = [f"ws_{n}" for n in range(6)]
    work: list[Any] = []
    for n in range(30):
        there = [message(10 * n + place, workspace=name) for place, name in enumerate(names)]
        work.append(write(relays[n % 2], *(there if n % 3 else reversed(there))))
    assert await asyncio.gather(*work) == [[None] * 6] * 30
    for name in names:
        numbers = await column(relays[0], audit_events.c.seq, workspace_id=name)
        assert numbers == list(range(1, 31))


async def test_what_says_where_it_writes_writes_nowhere_else(relays: tuple[Journal, Journal]) -> None:
    with pytest.raises(RuntimeError, match="writes in ws"):
        await relays[0].write(lambda book: writing.write(book, [message(1)]), within=["another"])
    assert await column(relays[0], messages.c.id) == []
