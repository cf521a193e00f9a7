"""How often somebody may try to sign in: from one address, and all together.

Each has a bucket of tries that fills again over a minute. A sign-in that succeeds gives its try back, so that
only failures count. What is remembered is bounded: of too many addresses the one not seen for longest is
forgotten, and the bucket for all holds then as before.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from hopline_rpc.clock import Clock
from hopline_rpc.errors import HoplineError

WINDOW_SECONDS: Final = 60.0
MOST_ADDRESSES: Final = 10_000
# An IPv6 host has this many bits to choose addresses from by itself.
_PREFIX: Final = 64


class _Bucket:
    def __init__(self, size: int, now: float) -> None:
        self._size = size
        self._left = float(size)
        self._at = now

    def wait(self, now: float) -> float:
        """Return in how many seconds there is a try; 0 when there is one."""
        self._left = min(self._size, self._left + (now - self._at) * self._size / WINDOW_SECONDS)
        self._at = now
        return 0.0 if self._left >= 1 else (1 - self._left) * WINDOW_SECONDS / self._size

    def take(self) -> None:
        self._left -= 1

    def give_back(self) -> None:
        self._left = min(self._size, self._left + 1)

    @property
    def is_full(self) -> bool:
        return self._left >= self._size


class Attempts:
    """Counts tries to sign in."""

    def __init__(self, per_address: int, overall: int, clock: Clock, most: int = MOST_ADDRESSES) -> None:
        self._per_address = per_address
        self._clock = clock
        self._most = most
        self._all = _Bucket(overall, clock.monotonic())
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    @property
    def remembered(self) -> int:
        """How many addresses are remembered."""
        return len(self._buckets)

    def take(self, address: str) -> None:
        """Take a try; `overloaded`, with the time to wait, where there is none. A refusal takes nothing."""
        now, key = self._clock.monotonic(), network(address)
        bucket = self._buckets.pop(key, None) or _Bucket(self._per_address, now)
        self._buckets[key] = bucket  # the newest
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        if wait := max(bucket.wait(now), self._all.wait(now)):
            raise HoplineError(
                "overloaded",
                f"there were too many attempts to sign in; try again in {_words(wait)}",
                retry_after=wait,
            )
        bucket.take()
        self._all.take()

    def succeeded(self, address: str) -> None:
        """Give the try back."""
        self._all.give_back()
        key = network(address)
        if (bucket := self._buckets.get(key)) is not None:
            bucket.give_back()
            if bucket.is_full:
                del self._buckets[key]


def _words(seconds: float) -> str:
    whole = max(1, round(seconds + 0.5))
    return f"{whole} second" if whole == 1 else f"{whole} seconds"


def network(address: str) -> str:
    """Return what counts as one: an IPv4 address, the network of an IPv6 one, or whatever else it is."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address[:64]
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, _PREFIX), strict=False).network_address)


def client_of(peer: str, forwarded: Sequence[str], proxies: frozenset[str]) -> str:
    """Return who has sent a request: the peer, or whom a proxy that is trusted names.

    `forwarded` are the values of X-Forwarded-For. Each proxy adds whom it heard from at the end: the last one
    that is no proxy of ours is who sent it. What stands before it anybody may have written.
    """
    if peer not in proxies:
        return peer
    named = [part for value in forwarded for each in value.split(",") if (part := each.strip())]
    return next((each for each in reversed(named) if each not in proxies), peer)
