"""What a refusal says in the headers of HTTP: when to come back, and the limit that was reached.

`RateLimit` and `RateLimit-Policy` are those of the IETF's draft on rate limit headers; rails without a window
(a full thread, an exhausted root) have no place in them. Figures of others are not in the error, nor here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from hopline_rpc.errors import HoplineError

# Where a refusal leaves its headers for the answer that carries it, in the ASGI scope.
LIMITS: Final = "hopline.limits"
# The windows of the rails that have one, in seconds; None: it is among the details.
_WINDOWS: Final[Mapping[str, int | None]] = {
    "sent_per_day": 86_400,
    "received_per_day": 86_400,
    "pair_budget": None,
    "refusals": None,
}


def headers(error: HoplineError) -> dict[str, str]:
    """Return the headers that go with a refusal."""
    found: dict[str, str] = {}
    wait = None if error.retry_after is None else max(1, math.ceil(error.retry_after))
    if wait is not None:
        found["Retry-After"] = str(wait)
    details = error.details
    rail = str(details.get("rail"))
    if rail not in _WINDOWS:
        return found
    left = f'"{rail}";r={_left(details)}'
    found["RateLimit"] = left if wait is None else f"{left};t={wait}"
    if isinstance(limit := details.get("limit"), int):
        policy = f'"{rail}";q={limit}'
        window = _WINDOWS[rail] or details.get("window_seconds")
        found["RateLimit-Policy"] = policy if window is None else f"{policy};w={window}"
    return found


def _left(details: Mapping[str, Any]) -> int:
    limit, used = details.get("limit"), details.get("used")
    return max(0, limit - used) if isinstance(limit, int) and isinstance(used, int) else 0
