"""The times of cron expressions, through the changes of clocks."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hopline_relay.cron import MOST_COUNTED, Cron, read_cron
from hopline_rpc.errors import HoplineError
from hypothesis import given
from hypothesis import strategies as st

BERLIN = "Europe/Berlin"
ZONES = (
    BERLIN,
    "UTC",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kolkata",
    "America/Santiago",
    "Asia/Beirut",
)
HOUR = 3600.0


def _at(text: str) -> float:
    """Read a UTC time."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def _times(cron: Cron, since: str, count: int) -> list[str]:
    """Return the first times after a UTC time, as UTC times."""
    found = islice(cron.after(_at(since)), count)
    return [datetime.fromtimestamp(each, UTC).strftime("%m-%d %H:%M") for each in found]


# In Berlin the clocks go on at 2026-03-29 01:00 UTC (02:00 becomes 03:00) and back at 2026-10-25 01:00 UTC
# (03:00 becomes 02:00).


def test_a_time_that_does_not_exist_comes_once_right_after_the_change() -> None:
    cron = read_cron("30 2 * * *", BERLIN)
    assert _times(cron, "2026-03-27T12:00", 3) == ["03-28 01:30", "03-29 01:00", "03-30 00:30"]


def test_several_times_that_do_not_exist_come_once() -> None:
    cron = read_cron("*/20 2 * * *", BERLIN)
    assert _times(cron, "2026-03-28T12:00", 2) == ["03-29 01:00", "03-30 00:00"]


def test_a_time_that_comes_twice_is_meant_the_first_time() -> None:
    cron = read_cron("30 2 * * *", BERLIN)
    assert _times(cron, "2026-10-24T12:00", 2) == ["10-25 00:30", "10-26 01:30"]


def test_asked_between_the_two_a_time_that_comes_twice_is_over() -> None:
    cron = read_cron("30 2 * * *", BERLIN)
    assert _times(cron, "2026-10-25T01:10", 1) == ["10-26 01:30"]


@pytest.mark.parametrize("expression", ["*/15 * * * *", "*/15 0-23 * * *", "0,15,30,45 */1 * * *"])
@pytest.mark.parametrize("day", ["2026-03-29T00:30", "2026-10-25T00:00"])
def test_what_comes_in_every_hour_keeps_its_distance_through_a_change(expression: str, day: str) -> None:
    found = list(islice(read_cron(expression, BERLIN).after(_at(day)), 12))
    assert {later - earlier for earlier, later in pairwise(found)} == {900.0}


def test_a_zone_may_skip_a_whole_day() -> None:
    # Samoa had no 2011-12-30.
    cron = read_cron("0 12 30 12 *", "Pacific/Apia")
    assert _times(cron, "2011-01-01T00:00", 1) == ["12-30 10:00"]


@pytest.mark.parametrize(
    ("expression", "what"),
    [
        ("* * * *", "4 fields"),
        ("* * * * * *", "6 fields"),
        ("", "0 fields"),
        ("@daily", "has 1 field instead of five"),
        ("61 * * * *", "no valid minute"),
        ("* 24 * * *", "no valid hour"),
        ("* * 0 * *", "no valid day-of-month"),
        ("*/0 * * * *", "no valid minute"),
        ("* * * * MON#6", "no valid day-of-week"),
        ("² * * * *", "no valid minute"),
        ("0 0 31 2 *", "no valid day-of-month"),
        ("0 0 5-1 * *", "no valid day-of-month"),
    ],
)
def test_a_wrong_expression_is_refused_by_what_is_wrong(expression: str, what: str) -> None:
    with pytest.raises(HoplineError, match=what) as refused:
        read_cron(expression, "UTC")
    assert refused.value.reason == "invalid_argument"


@pytest.mark.parametrize(
    "name",
    [
        *("Europe/Nowhere", "/etc/passwd", "../UTC", "Europe", "", "a" * 64, "UTC\x7f"),
        # Files that are there, and mean another time on another machine or in another reading.
        *("localtime", "posixrules", "right/UTC", "posix/Europe/Berlin", "utc"),
    ],
)
def test_what_is_no_time_zone_is_refused(name: str) -> None:
    with pytest.raises(HoplineError, match="no time zone"):
        read_cron("* * * * *", name)


def _field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high).map(str)
    step = st.integers(1, high).map(lambda n: f"*/{n}")
    span = st.tuples(st.integers(low, high), st.integers(low, high)).map(lambda n: f"{min(n)}-{max(n)}")
    return st.one_of(st.just("*"), number, step, span, st.lists(number, min_size=1, max_size=3).map(",".join))


expressions = st.tuples(
    _field(0, 59), _field(0, 23), st.one_of(st.just("*"), _field(1, 28)), _field(1, 12), _field(0, 6)
).map(" ".join)
# Between 2020 and 2032.
moments = st.integers(1_577_836_800, 1_956_528_000).map(float)


@given(expressions, st.sampled_from(ZONES), moments)
def test_times_go_up_and_each_is_found_from_anywhere_before_it(
    expression: str, zone: str, moment: float
) -> None:
    cron = read_cron(expression, zone)
    found = list(islice(cron.after(moment), 5))
    assert found == sorted(set(found))
    assert all(each > moment and each % 60 == 0 for each in found)
    for earlier, later in zip([moment, *found], found, strict=False):
        assert cron.next(earlier) == later
        assert cron.next((earlier + later) / 2) == later


@given(expressions, st.sampled_from(ZONES), moments)
def test_a_time_is_one_of_the_expression_or_the_first_after_one_that_does_not_exist(
    expression: str, zone: str, moment: float
) -> None:
    cron = read_cron(expression, zone)
    at = cron.next(moment)
    assert at is not None
    local = datetime.fromtimestamp(at, ZoneInfo(zone))
    plain = local.replace(tzinfo=None, fold=0)
    minute = timedelta(minutes=1)
    named = Cron(cron.expression, ZoneInfo("UTC"), hourly=False)
    wall = plain.replace(tzinfo=UTC).timestamp()
    if named.next(wall - 60) == wall:
        return
    before = datetime.fromtimestamp(at - 60, ZoneInfo(zone)).replace(tzinfo=None)
    assert plain - before > minute, f"{plain} is not named, and the clock did not jump to it"


@given(st.sampled_from(ZONES), moments, st.integers(0, 48))
def test_what_has_passed_is_counted_and_the_next_one_is_ahead(zone: str, due: float, hours: int) -> None:
    cron = read_cron("*/30 * * * *", zone)
    first = cron.next(due)
    assert first is not None
    count, ahead = cron.passed(first, first + hours * HOUR)
    assert count == hours * 2
    assert ahead == first + hours * HOUR + 1800


def test_what_has_passed_is_counted_up_to_a_limit() -> None:
    cron = read_cron("* * * * *", "UTC")
    count, ahead = cron.passed(_at("2026-01-01T00:00"), _at("2026-06-01T00:00"))
    assert count == MOST_COUNTED
    assert ahead == _at("2026-06-01T00:01")
