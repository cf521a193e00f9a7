"""What a caller is told whose message closes a circle that the policy lets pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hopline.relay.v1 import message_pb2

from hopline_gateway import shapes
from hopline_gateway.toolkit import Result


def warned(result: Result, cycle: Iterable[message_pb2.Party]) -> Result:
    """Add the chain in which a recipient takes part already, if there is one."""
    chain = shapes.chain(cycle)
    if not chain:
        return result
    headline = (
        f"{result.headline} It goes round in a circle: {' → '.join(chain)}; better answer than pass it on."
    )
    return replace(result, structured={**result.structured, "cycle": chain}, headline=headline)
