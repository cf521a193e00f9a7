"""Ids and time."""

from __future__ import annotations

import asyncio
import re

import pytest
from hopline_rpc.clock import (
    ManualClock,
    SystemClock,
    from_timestamp,
    parse_rfc3339,
    rfc3339,
    to_timestamp,
    utc_day,
    wait_for,
)
from hopline_rpc.ids import Ids, encode, milliseconds_of, seeded_ids
from hypothesis import given
from hypothesis import strategies as st


def test_an_id_has_its_prefix_and_26_characters_of_crockford_base32() -> None:
    made = Ids(SystemClock()).new_id("msg")
    assert re.fullmatch(r"msg_[0-9a-hjkmnp-tv-z]{26}", made)


async def test_later_ids_sort_behind_earlier_ones() -> None:
    clock = ManualClock()
    ids = Ids(clock)
    made = []
    for _ in range(50):
        made.append(ids.new_id("msg"))
        await clock.advance(0.25)
    assert made == sorted(made)


def test_ids_of_one_moment_differ() -> None:
    ids = Ids(ManualClock())
    assert len({ids.new_id("msg") for _ in range(1000)}) == 1000


def test_the_same_seed_makes_the_same_ids() -> None:
    first, second = (seeded_ids(ManualClock(), 7) for _ in range(2))
    assert [first.new_id("a") for _ in range(5)] == [second.new_id("a") for _ in range(5)]
    assert seeded_ids(ManualClock(), 8).new_id("a") != seeded_ids(ManualClock(), 7).new_id("a")


def test_the_time_can_be_read_back_from_an_id() -> None:
    clock = ManualClock(1_700_000_000.123)
    assert milliseconds_of(Ids(clock).new_id("msg")) == 1_700_000_000_123


@pytest.mark.parametrize("text", ["", "msg_", "msg_short", "msg_" + "i" * 26])
def test_text_that_is_no_id_has_no_time(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the message is not part of the promise
        milliseconds_of(text)


@given(st.integers(0, 2**128 - 1), st.integers(0, 2**128 - 1))
def test_the_text_order_of_ids_is_the_order_of_their_numbers(one: int, other: int) -> None:
    assert (encode(one) < encode(other)) == (one < other)


async def test_sleepers_wake_in_the_order_of_their_time() -> None:
    clock = ManualClock(1000.0)
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.now()))

    tasks = [asyncio.create_task(sleeper(*each)) for each in (("c", 30), ("a", 10), ("b", 20))]
    await clock.advance(25)
    assert woken == [("a", 1010.0), ("b", 1020.0)]
    await clock.advance(5)
    assert woken[-1] == ("c", 1030.0)
    await asyncio.gather(*tasks)
    assert clock.monotonic() == 30.0


async def test_a_sleeper_that_sleeps_again_wakes_within_the_same_step() -> None:
    clock = ManualClock(0.0)
    moments: list[float] = []

    async def ticker() -> None:
        while True:
            await clock.sleep(1)
            moments.append(clock.now())

    task = asyncio.create_task(ticker())
    await clock.advance(3.5)
    assert moments == [1.0, 2.0, 3.0]
    task.cancel()


async def test_a_cancelled_sleeper_leaves_nothing_behind() -> None:
    clock = ManualClock()
    task = asyncio.create_task(clock.sleep(10))
    await clock.settle()
    assert clock.sleepers == 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert clock.sleepers == 0


async def test_a_callback_can_be_called_off() -> None:
    clock = ManualClock()
    called: list[str] = []
    clock.call_later(1, lambda: called.append("kept"))
    clock.call_later(1, lambda: called.append("off")).cancel()
    await clock.advance(2)
    assert called == ["kept"]


async def test_waiting_ends_with_the_clocks_time() -> None:
    clock = ManualClock()
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(wait_for(clock, never, 50))
    await clock.advance(49)
    assert not waiting.done()
    await clock.advance(1)
    with pytest.raises(TimeoutError):
        await waiting
    assert never.cancelled()


async def test_what_comes_in_time_is_returned() -> None:
    clock = ManualClock()
    soon: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(wait_for(clock, soon, 50))
    await clock.advance(10)
    soon.set_result("answer")
    assert await waiting == "answer"
    assert clock.sleepers == 0


async def test_cancelling_the_wait_cancels_the_work() -> None:
    clock = ManualClock()
    work: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(wait_for(clock, work, 50))
    await clock.settle()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert work.cancelled()
    assert clock.sleepers == 0


@given(st.integers(0, 4_000_000_000_000_000))
def test_timestamps_keep_microseconds(micros: int) -> None:
    seconds = micros / 1_000_000
    assert abs(from_timestamp(to_timestamp(seconds)) - seconds) < 1e-6


def test_times_before_1970_survive_as_timestamps() -> None:
    stamp = to_timestamp(-0.25)
    assert (stamp.seconds, stamp.nanos) == (-1, 750_000_000)


def test_times_are_written_in_utc_with_milliseconds() -> None:
    assert rfc3339(1_767_225_599.9996) == "2026-01-01T00:00:00.000Z"
    assert parse_rfc3339("2026-01-01T02:00:00+02:00") == 1_767_225_600.0
    assert parse_rfc3339(rfc3339(1_767_225_600.5)) == 1_767_225_600.5


def test_a_time_without_an_offset_is_refused() -> None:
    with pytest.raises(ValueError, match="offset"):
        parse_rfc3339("2026-01-01T00:00:00")


def test_a_day_is_a_utc_day() -> None:
    assert utc_day(1_767_225_599.9) == "2025-12-31"
    assert utc_day(1_767_225_600.0) == "2026-01-01"
