"""Arguments and results that several tools share, with an example each."""

from __future__ import annotations

from typing import Any, Final

Json = dict[str, Any]

AGENT: Final[Json] = {
    "type": "string",
    "minLength": 1,
    "maxLength": 200,
    "description": 'Name or id, e.g. "weather"',
}
AGENTS: Final[Json] = {
    "anyOf": [
        {"type": "string", "minLength": 1, "maxLength": 200},
        {
            "type": "array",
            "items": {"type": "string", "minLength": 1, "maxLength": 200},
            "minItems": 1,
            "maxItems": 10,
            "uniqueItems": True,
        },
    ],
    "description": 'Names or ids, up to 10, e.g. "weather" or ["weather","reviewer"]',
}
# Any value; the rule that all of them keep is there because some clients take no schema without one.
ANYTHING: Final[Json] = {"minProperties": 0}
PAYLOAD: Final[Json] = {**ANYTHING, "description": 'Any JSON up to 16 KiB, e.g. {"city":"Oslo"}'}
REQUEST_ID: Final[Json] = {
    "type": "string",
    "format": "uuid",
    "description": "A UUID; a call repeated with it acts once",
}
LIMIT: Final[Json] = {"type": "integer", "minimum": 1, "description": "1 to 200, e.g. 20 (default 50)"}
CURSOR: Final[Json] = {
    "type": "string",
    "maxLength": 512,
    "description": "next_cursor of a page",
}

STRING: Final[Json] = {"type": "string"}
INTEGER: Final[Json] = {"type": "integer"}
BOOLEAN: Final[Json] = {"type": "boolean"}
OBJECT: Final[Json] = {"type": "object"}
OBJECTS: Final[Json] = {"type": "array", "items": {"type": "object"}}


def nullable(kind: str) -> Json:
    """Return the schema of a value that may be null: a choice, for not every client takes a list of types."""
    return {"anyOf": [{"type": kind}, {"type": "null"}]}


CURSOR_OUT: Final[Json] = nullable("string")


def text(description: str) -> Json:
    """Return the schema of a message's text; its limit is 64 KiB, whatever characters it holds."""
    return {"type": "string", "minLength": 1, "maxLength": 65536, "description": description}


def identifier(description: str) -> Json:
    """Return the schema of an id."""
    return {"type": "string", "minLength": 1, "maxLength": 64, "description": description}


def wait(default: int) -> Json:
    """Return the schema of a wait, which is clamped rather than refused."""
    return {"type": "integer", "minimum": 0, "description": f"0 to 50, e.g. 20 (default {default})"}
