"""How often one may try to sign in, and how much of it is remembered."""

from __future__ import annotations

import pytest
from hopline_console.attempts import Attempts, client_of, network
from hopline_rpc.clock import ManualClock
from hopline_rpc.errors import HoplineError


def wait_of(attempts: Attempts, address: str) -> float:
    with pytest.raises(HoplineError) as refused:
        attempts.take(address)
    assert refused.value.reason == "overloaded"
    assert refused.value.retry_after is not None
    return refused.value.retry_after


async def test_an_address_has_so_many_tries_a_minute_and_another_its_own() -> None:
    clock = ManualClock()
    attempts = Attempts(3, 100, clock)
    for _ in range(3):
        attempts.take("192.0.2.1")
    assert wait_of(attempts, "192.0.2.1") == pytest.approx(20)
    attempts.take("192.0.2.2")
    await clock.advance(19)
    assert wait_of(attempts, "192.0.2.1") == pytest.approx(1)
    await clock.advance(1)
    attempts.take("192.0.2.1")
    await clock.advance(3600)
    for _ in range(3):
        attempts.take("192.0.2.1")
    wait_of(attempts, "192.0.2.1")


async def test_all_addresses_together_have_a_limit_of_their_own() -> None:
    clock = ManualClock()
    attempts = Attempts(3, 6, clock)
    for number in range(6):
        attempts.take(f"192.0.2.{number}")
    assert wait_of(attempts, "198.51.100.1") == pytest.approx(10)
    await clock.advance(10)
    attempts.take("198.51.100.1")


async def test_a_refusal_takes_no_try() -> None:
    clock = ManualClock()
    attempts = Attempts(1, 2, clock)
    attempts.take("192.0.2.1")
    for _ in range(10):
        wait_of(attempts, "192.0.2.1")
    attempts.take("192.0.2.2")
    await clock.advance(60)
    attempts.take("192.0.2.1")


def test_only_failures_count() -> None:
    attempts = Attempts(2, 3, ManualClock())
    for _ in range(20):
        attempts.take("192.0.2.1")
        attempts.succeeded("192.0.2.1")
    assert attempts.remembered == 0  # nothing is known of who has all their tries
    attempts.succeeded("192.0.2.1")
    for _ in range(2):
        attempts.take("192.0.2.1")
    wait_of(attempts, "192.0.2.1")


def test_what_is_remembered_is_bounded_and_the_limit_for_all_holds_then_too() -> None:
    attempts = Attempts(1, 50, ManualClock(), most=10)
    for number in range(50):
        attempts.take(f"192.0.2.{number}")
        assert attempts.remembered <= 10
    wait_of(attempts, "192.0.2.0")  # forgotten, but for the limit for all
    for number in range(1000):
        wait_of(attempts, f"2001:db8:{number:x}::1")
    assert attempts.remembered == 10


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2:ffff::", "2001:db8:1:2::"),
        ("2001:db8:1:3::", "2001:db8:1:3::"),
        ("a unix socket", "a unix socket"),
        ("x" * 5000, "x" * 64),
        ("", ""),
    ],
)
def test_an_address_counts_with_those_its_holder_can_choose(address: str, counted: str) -> None:
    assert network(address) == counted


PROXIES = frozenset({"10.0.0.1", "10.0.0.2"})


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("192.0.2.1", [], "192.0.2.1"),
        ("192.0.2.1", ["198.51.100.1"], "192.0.2.1"),  # no proxy of ours: anybody can write that
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["192.0.2.1"], "192.0.2.1"),
        ("10.0.0.1", ["198.51.100.1, 192.0.2.1"], "192.0.2.1"),  # what the client wrote stands before
        ("10.0.0.1", ["198.51.100.1", "192.0.2.1, 10.0.0.2"], "192.0.2.1"),
        ("10.0.0.1", ["10.0.0.2, 10.0.0.1"], "10.0.0.1"),
        ("10.0.0.1", [" , ,"], "10.0.0.1"),
    ],
)
def test_who_has_sent_a_request_is_told_by_proxies_of_ours_alone(
    peer: str, forwarded: list[str], client: str
) -> None:
    assert client_of(peer, forwarded, PROXIES) == client
