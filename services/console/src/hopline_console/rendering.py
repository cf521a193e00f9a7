"""Templates: everything that is printed is text, whoever wrote it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from hopline_rpc.visible import visible
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from hopline_console.nav import menu

TEMPLATES: Final = Path(__file__).parent / "templates"
_STEPS: Final = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def environment() -> Environment:
    """Return the templates: escaped always, and a name that is not there is an error."""
    found = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    found.filters.update(
        iso=iso, moment=moment, ago=ago, word=word, duration=duration, short=short, seconds=seconds
    )
    found.globals.update(word=word, menu=menu)
    return found


def _shown(value: Any) -> Any:
    """Replace what would hide, or let text read other than it is stored."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _time(value: Timestamp | datetime | float) -> datetime:
    if isinstance(value, Timestamp):
        return value.ToDatetime(UTC)
    return value if isinstance(value, datetime) else datetime.fromtimestamp(value, UTC)


def iso(value: Timestamp | datetime | float) -> str:
    """Return a time for machines: RFC 3339, UTC."""
    return _time(value).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment(value: Timestamp | datetime | float) -> str:
    """Return a time for people, in UTC to the second."""
    return _time(value).strftime("%Y-%m-%d %H:%M:%S")


def duration(value: Duration | float) -> str:
    """Return a length of time in its two largest units: `3 h 5 min`."""
    left = int(value.ToSeconds()) if isinstance(value, Duration) else int(value)
    parts: list[str] = []
    for size, name in _STEPS:
        if left >= size and len(parts) < 2:
            parts.append(f"{left // size} {name}")
            left %= size
        elif parts:
            break
    return " ".join(parts) or "0 s"


def seconds(value: float) -> str:
    """Return a short length of time: `4.2 ms`, `0.31 s`, `12 s`, `3 min 5 s`."""
    if value < 0.1:
        return f"{value * 1000:.1f} ms"
    if value < 10:
        return f"{value:.2f} s"
    return duration(value)


def ago(value: Timestamp | datetime | float, now: float) -> str:
    """Return how long ago a time was."""
    return duration(max(0.0, now - _time(value).timestamp()))


def word(message: Message, field: str) -> str:
    """Return an enum field in words: `receive-only`; empty where it is unset."""
    kind = message.DESCRIPTOR.fields_by_name[field].enum_type
    if kind is None:
        raise TypeError(f"{field} is no enum")
    value = getattr(message, field)
    prefix = kind.values_by_number[0].name.removesuffix("UNSPECIFIED")
    named = kind.values_by_number.get(value)
    if not value or named is None:
        return ""
    return named.name.removeprefix(prefix).lower().replace("_", "-")


def short(text: str, most: int = 160) -> str:
    """Return the beginning of a text in one line."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
