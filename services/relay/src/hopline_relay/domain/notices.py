"""How the mesh calls webhooks: which addresses may be called, and when it is tried again."""

from __future__ import annotations

import ipaddress
from typing import Final

MAX_ATTEMPTS: Final = 10
_FIRST_SECONDS: Final = 2.0
_LONGEST_SECONDS: Final = 600.0
# What a worker gets to start in, once whoever starts it was reached.
STARTING_SECONDS: Final = 30.0


def may_call(address: str, *, loopback: bool, private: bool) -> bool:
    """Tell whether the mesh may call an address: what is not public, only where it was allowed."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    if found.is_multicast or found.is_unspecified:
        return False
    if found.is_loopback:
        return loopback
    return found.is_global or private


def pause(attempts: int, chance: float) -> float:
    """Return how long after so many attempts the next one comes; `chance` between 0 and 1 spreads them."""
    longest = min(_LONGEST_SECONDS, _FIRST_SECONDS * 2.0 ** (attempts - 1))
    return longest * (0.5 + chance / 2)
