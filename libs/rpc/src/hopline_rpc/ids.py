"""Ids of everything the mesh stores: a prefix that says what it is, then time, then chance.

`msg_01k7q2j4x8...`: 48 bits of milliseconds keep new rows at one end of a B-tree, 80 random bits
keep ids unguessable. Twenty-six characters of lower-case Crockford base32 (no i, l, o, u).
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from typing import Protocol

from hopline_rpc.clock import Clock

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
SUFFIX_LENGTH = 26
_PAIRS = [high + low for high in ALPHABET for low in ALPHABET]  # ten bits at a time halve the work
_SHIFTS = tuple(range(120, -1, -10))
_RANDOM_BYTES = 10
# Drawn at once: asking the system for each id would cost more than all the rest of it.
_DRAWN = 100


class IdMaker(Protocol):
    """Makes ids; the only source of them, so that a simulation can seed it."""

    def new_id(self, prefix: str) -> str:
        """Return a fresh `<prefix>_<26 characters>`."""
        ...


class Ids:
    """Ids from a clock and a source of random bytes."""

    def __init__(self, clock: Clock, randbytes: Callable[[int], bytes] = secrets.token_bytes) -> None:
        self._clock = clock
        self._randbytes = randbytes
        self._drawn: list[int] = []

    def new_id(self, prefix: str) -> str:
        """Return a fresh `<prefix>_<26 characters>`."""
        milliseconds = int(self._clock.now() * 1000) & 0xFFFF_FFFF_FFFF
        return f"{prefix}_{encode((milliseconds << 80) | self._chance())}"

    def _chance(self) -> int:
        """Return 80 random bits. Safe on several threads: a list is popped from as one step."""
        try:
            return self._drawn.pop()
        except IndexError:
            drawn = self._randbytes(_DRAWN * _RANDOM_BYTES)
        fresh = [
            int.from_bytes(drawn[at : at + _RANDOM_BYTES], "big")
            for at in range(0, len(drawn), _RANDOM_BYTES)
        ]
        self._drawn = fresh[1:]
        return fresh[0]


def seeded_ids(clock: Clock, seed: int) -> Ids:
    """Return ids that come out the same for the same seed and clock; for simulations only."""
    return Ids(clock, random.Random(seed).randbytes)  # noqa: S311 - repeatable on purpose


def encode(number: int) -> str:
    """Write a 128-bit number in 26 characters whose text order is the numbers' order."""
    return "".join([_PAIRS[(number >> shift) & 0x3FF] for shift in _SHIFTS])


def milliseconds_of(identifier: str) -> int:
    """Read the creation time out of an id; raises ValueError for text that is not one of ours."""
    suffix = identifier.rpartition("_")[2]
    if len(suffix) != SUFFIX_LENGTH:
        raise ValueError("not an id")
    number = 0
    for character in suffix:
        number = (number << 5) | ALPHABET.index(character)
    return number >> 80
