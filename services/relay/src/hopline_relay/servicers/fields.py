"""Fields that several requests share, as they are read."""

from __future__ import annotations

from hopline_rpc.errors import invalid

from hopline_relay.domain.payloads import payload_problem


def checked_payload(text: str) -> str:
    """Return a payload as it was given; what its receivers could not read is refused."""
    if text and (problem := payload_problem(text)) is not None:
        raise invalid("payload_json", problem)
    return text
