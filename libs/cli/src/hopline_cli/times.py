"""Times as people give them: a moment, or how long ago."""

from __future__ import annotations

import re
import time
from typing import Annotated, Any

import typer

# Times are printed to the nearest millisecond; given back, they have to mean what they were printed for.
_ROUNDED = 0.0005
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "": 1}

Since = Annotated[
    str,
    typer.Option(
        "--since", metavar="T", help="From then on: 2027-01-31T00:00:00Z, or 24h ago.", show_default=False
    ),
]
Until = Annotated[
    str, typer.Option("--until", metavar="T", help="Up to then, as --since.", show_default=False)
]


def moment_of(text: str, option: str) -> float | None:
    """Return the moment that an option means: RFC 3339 text, or how long ago (24h, 7d); None for none."""
    from hopline_rpc.clock import parse_rfc3339

    if not text:
        return None
    ago = re.fullmatch(r"(\d{1,9})([smhd])", text)
    try:
        at = time.time() - int(ago[1]) * UNITS[ago[2]] if ago else parse_rfc3339(text) - _ROUNDED
        return max(at, 0.0)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is neither a time (2027-01-31T00:00:00Z) nor how long ago (15m, 24h, 30d)",
            param_hint=option,
        ) from None


def set_times(request: Any, since: str, until: str) -> None:
    """Set the `from` and `to` of a request."""
    from hopline_rpc.clock import to_timestamp

    for field, text, option in (("from", since, "--since"), ("to", until, "--until")):
        at = moment_of(text, option)
        if at is not None:
            getattr(request, field).CopyFrom(to_timestamp(at))
