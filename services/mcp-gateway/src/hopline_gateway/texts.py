"""Structured results as text: the same facts, in lines that a model or a person reads.

`Foreign` text and payloads were written by another agent; they are rendered inside a fence. Everything
else stands as `key: value` lines, a value with line breaks as JSON, so that no value can pretend to be
another line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from hopline_rpc.fence import (
    NOTE_MARK,
    NOTE_NOTICE,
    NOTICE,
    OUTSIDE_MARK,
    OUTSIDE_NOTICE,
    OWNERS_MARK,
    OWNERS_NOTICE,
    SKILL_MARK,
    SKILL_NOTICE,
    draw_boundary,
    fence,
)

# These are foreign whatever their type: a JSON value cannot carry a mark of its own.
_JSON: Final = frozenset({"payload", "result"})


class Foreign(str):
    """Text written by another agent."""

    __slots__ = ()


class Outside(str):
    """Text that came in by a webhook."""

    __slots__ = ()


class OwnersWords(str):
    """What the agent's owner, or who answers for them, said to a question of the agent's."""

    __slots__ = ()


class Skill(str):
    """The text of a plugin's skill."""

    __slots__ = ()


class OwnNote(str):
    """What the agent left to itself, brought back by the mesh."""

    __slots__ = ()


# Whose words stand between which marks; all else is another agent's.
_NOTICES: Final[dict[type, str]] = {
    OwnersWords: OWNERS_NOTICE,
    Outside: OUTSIDE_NOTICE,
    Skill: SKILL_NOTICE,
    OwnNote: NOTE_NOTICE,
}
_MARKS: Final[dict[type, str]] = {
    OwnersWords: OWNERS_MARK,
    Outside: OUTSIDE_MARK,
    Skill: SKILL_MARK,
    OwnNote: NOTE_MARK,
}


def as_text(headline: str, structured: dict[str, Any]) -> str:
    """Return a headline and every fact of a structured result."""
    fenced = list(_fenced(structured))
    boundary = draw_boundary(text for _, text in fenced) if fenced else ""
    lines = [headline] if headline else []
    # By another agent, or by the owner; a result that holds both says which marks are whose.
    lines.extend(dict.fromkeys(notice for notice, _ in fenced))
    lines.extend(_lines(structured, "", boundary))
    return "\n".join(lines)


def _fenceable(key: str, value: Any) -> str | None:
    """Return what has to stand inside a fence; None for a value of ours."""
    if isinstance(value, Foreign | Outside | OwnersWords | Skill | OwnNote):
        return str(value)
    if key in _JSON and value is not None:
        return json.dumps(value, ensure_ascii=False)
    return None


def _fenced(mapping: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what will stand inside fences, each with the line that says whose words it is."""
    for key, value in mapping.items():
        text = _fenceable(key, value)
        if text is not None:
            yield _NOTICES.get(type(value), NOTICE), text
        elif isinstance(value, dict):
            yield from _fenced(value)
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, dict):
                    yield from _fenced(item)


def _lines(mapping: dict[str, Any], indent: str, boundary: str) -> Iterator[str]:
    for key, value in mapping.items():
        text = _fenceable(key, value)
        if text is not None:
            yield f"{indent}{key}:"
            yield fence(text, boundary, _MARKS.get(type(value), key))
        elif isinstance(value, dict) and value:
            yield f"{indent}{key}:"
            yield from _lines(value, indent + "  ", boundary)
        elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
            yield f"{indent}{key}:"
            for item in value:
                yield from _item(item, indent, boundary)
        elif value is not None:
            yield f"{indent}{key}: {scalar(value)}"


def _item(item: dict[str, Any], indent: str, boundary: str) -> Iterator[str]:
    mark = "- "
    for line in _lines(item, "", boundary):
        # A fenced block stays as it was written.
        yield line if line.startswith("<<<") else f"{indent}{mark}{line}"
        mark = "  "


def scalar(value: Any) -> str:
    """Write a value on one line: printable words as they are, everything else as JSON."""
    if isinstance(value, str) and value and value.isprintable() and value.strip() == value:
        return value
    written = json.dumps(value, ensure_ascii=False)
    # JSON escapes no line break but ASCII's, and Unicode has others.
    return written if written.isprintable() else json.dumps(value)
