"""What the reader of a form saw: a digest of each field, so that a change sends what differs, and no more.

It goes along with the form instead of the values, which may be long. Whoever writes digests of their own only
sends more or fewer fields than they changed: what they may change is up to the mesh.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from hopline_console.forms.fields import Field, Value

_LENGTH: Final = 16
_MOST: Final = 8192


def digest(fields: Sequence[Field], values: Mapping[str, Value]) -> str:
    """Return the digests of fields as text for a form."""
    found = {each.name: _of(each, values[each.name]) for each in fields if each.name in values}
    return json.dumps(found, separators=(",", ":"))


def read(text: str) -> dict[str, str]:
    """Read what a form brings back; anything else is no digest at all."""
    try:
        found: Any = json.loads(text) if len(text) <= _MOST else {}
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {key: value for key, value in found.items() if isinstance(value, str)}


def _of(field: Field, value: Value) -> str:
    shown = field.written(value)
    if field.kind not in ("area", "secret"):
        # A single line loses its breaks and the spaces at its ends on the way.
        shown = "\n".join(line.strip() for line in shown.split("\n")).strip()
        shown = shown if field.kind in ("lines", "pairs") else shown.replace("\n", "")
    return hashlib.sha256(shown.encode(errors="surrogatepass")).hexdigest()[:_LENGTH]
