"""JSON that nobody sends by mistake: values, places to put them, and texts that are hardly JSON."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import strategies as st

# Whole characters, halves of pairs, NUL, line ends that are not ASCII's, right-to-left marks.
TEXTS = st.text(st.characters(), max_size=30) | st.sampled_from(
    ["", "\0", "\ud800", "a\udfffb", "\u2028", "\u202e", "x" * 201, "é" * 33_000, "null", "{}", "%s%n"]
)
NUMBERS = st.sampled_from(
    [0, -1, 1.5, 2**31, 2**63, 2**64, -(2**63) - 1, 10**400, 1e308, -0.0, float("nan"), float("inf")]
)
SCALARS = st.none() | st.booleans() | st.integers() | NUMBERS | TEXTS


def _deep(levels: int, opening: str) -> Any:
    value: Any = "bottom"
    for _ in range(levels):
        value = [value] if opening == "[" else {"a": value}
    return value


DEEP = st.builds(_deep, st.sampled_from([10, 63, 64, 65, 149, 151]), st.sampled_from("[{"))
WIDE = st.sampled_from([[None] * 2000, dict.fromkeys(map(str, range(500)))])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=10,
)
STRANGE = st.one_of(VALUES, VALUES, SCALARS, DEEP, WIDE)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inside:
        if len(path) < 8 and len(found) < 200:
            found.extend(_places(each, (*path, key)))
    return found


@st.composite
def mutated(draw: st.DrawFn, values: st.SearchStrategy[Any], most: int = 3) -> Any:
    """Draw a value in which up to `most` places were replaced, left out, or given a neighbour."""
    value = copy.deepcopy(draw(values))
    for _ in range(draw(st.integers(0, most))):
        places = _places(value)
        if not places:
            break
        *way, last = draw(st.sampled_from(places))
        holder = value
        for key in way:
            holder = holder[key]
        match draw(st.sampled_from(["replace", "remove", "add"])):
            case "replace":
                holder[last] = copy.deepcopy(draw(STRANGE))
            case "remove":
                del holder[last]
            case "add" if isinstance(holder, dict):
                holder[draw(TEXTS)] = copy.deepcopy(draw(STRANGE))
            case _:
                holder.append(copy.deepcopy(draw(STRANGE)))
    return value


def written(value: Any) -> bytes:
    """Write a value as JSON; what has no UTF-8 is escaped."""
    return json.dumps(value, separators=(",", ":")).encode()


@st.composite
def damaged(draw: st.DrawFn, bodies: st.SearchStrategy[bytes]) -> bytes:
    """Draw a text in which something was cut, doubled, overwritten or put in between."""
    body = draw(bodies)
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(body)))
        end = draw(st.integers(start, min(len(body), start + 20)))
        match draw(st.sampled_from(["cut", "end", "double", "put", "encode"])):
            case "cut":
                body = body[:start] + body[end:]
            case "end":
                body = body[:start]
            case "double":
                body = body[:end] + body[start:]
            case "put":
                body = body[:start] + draw(SPLINTERS) + body[end:]
            case _:
                codec = draw(st.sampled_from(["utf-16", "utf-8-sig", "utf-32", "latin-1"]))
                body = body.decode(errors="replace").encode(codec, "replace")
    return body


SPLINTERS = st.binary(max_size=8) | st.sampled_from(
    [
        b'"id":7,',
        b'"jsonrpc":"1.0",',
        b'"method":"tools/list",',
        b"NaN",
        b"-Infinity",
        b"1e999",
        b"[" * 200,
        b'{"a":' * 2000,
        b"[" * 100_000,
        b"9" * 5000,
        b'"\\ud800"',
        b'"\\udc00\\ud800"',
        b"\xff\xfe",
        b"\xed\xa0\x80",
        b"\0",
        b"\n",
        b"//",
        b"'",
    ]
)
