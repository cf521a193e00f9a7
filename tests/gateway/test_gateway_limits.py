"""What a refusal says in HTTP's own headers, past the SDK and through it alike."""

from __future__ import annotations

from typing import Any

import pytest
from hopline_gateway.limits import headers
from hopline_rpc.errors import HoplineError

from tests.gateway.builders import Rig, call_body

SEND = {"agent": "weather", "text": "hi"}
NAMES = ("Retry-After", "RateLimit", "RateLimit-Policy")


def error(code: str, retry_after: float | None = None, **details: Any) -> HoplineError:
    return HoplineError(code, "no more", details=details, retry_after=retry_after)


@pytest.mark.parametrize(
    ("refusal", "found"),
    [
        (
            error("quota_exceeded", 3599.2, rail="sent_per_day", limit=200, used=200, resets_at="x"),
            ("3600", '"sent_per_day";r=0;t=3600', '"sent_per_day";q=200;w=86400'),
        ),
        # A recipient's figures are not the sender's business.
        (
            error("quota_exceeded", 60.0, rail="received_per_day", agent="bob", resets_at="x"),
            ("60", '"received_per_day";r=0;t=60', None),
        ),
        (
            error("pair_budget_exceeded", 0.2, rail="pair_budget", limit=30, used=30, window_seconds=300),
            ("1", '"pair_budget";r=0;t=1', '"pair_budget";q=30;w=300'),
        ),
        (
            error("overloaded", 12.0, rail="refusals", limit=300, used=300, window_seconds=60),
            ("12", '"refusals";r=0;t=12', '"refusals";q=300;w=60'),
        ),
        (error("unavailable", 1.0), ("1", None, None)),
        (error("root_exhausted", rail="root_turns", limit=200, used=200), (None, None, None)),
        (error("not_found", agent="bob"), (None, None, None)),
    ],
)
async def test_a_refusal_says_in_the_headers_when_to_come_back(
    rig: Rig, mode: str, refusal: HoplineError, found: tuple[str | None, ...]
) -> None:
    assert tuple(headers(refusal).get(name) for name in NAMES) == found

    def refuse(_: Any) -> None:
        raise refusal

    rig.relay.script["Send"] = refuse
    body = call_body("send_message", SEND, mode)
    for accept in ("application/json", "*/*"):  # past the SDK, and through it
        response = await rig.post(body, mode, "send_message", Accept=accept)
        assert response.status_code == 200
        assert tuple(response.headers.get(name) for name in NAMES) == found
    rig.relay.script.clear()
    response = await rig.post(body, mode, "send_message", Accept="application/json")
    assert all(name not in response.headers for name in NAMES)
