"""Checks the arguments of a tool, and says what is wrong in words that a model can act on."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import jsonschema
from hopline_rpc.errors import HoplineError

from hopline_gateway.toolkit import MAX_QUESTION, MAX_TEXT, Tool

Violation = tuple[str, str]
# jsonschema's `ValidationError`; its attributes are typed as perhaps unset.
Finding = Any

MAX_DEPTH: Final = 64
_MAX_NAMED: Final = 5
_BYTES: Final[Mapping[str, int]] = {"text": MAX_TEXT, "message": MAX_TEXT, "question": MAX_QUESTION}
_TYPES: Final[Mapping[str, str]] = {
    "string": "text in quotes",
    "integer": "a whole number",
    "array": "a list",
    "object": "an object",
    "boolean": "true or false",
}
_IDS: Final[Mapping[str, str]] = {
    "agt": "an agent's",
    "esc": "a question's",
    "msg": "a message's",
    "ses": "a session's",
    "thr": "a thread's",
    "trn": "a turn's",
    "tok": "a token's",
    "usr": "a user's",
}
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z")
_WANTED: Final[Mapping[str, str]] = {
    "message_id": "msg",
    "session_id": "ses",
    "sessionId": "ses",
    "thread_id": "thr",
    "turn_id": "trn",
}


class Checker:
    """The compiled check of one tool's arguments."""

    def __init__(self, tool: Tool) -> None:
        self._tool = tool
        # A schema that is not ours may take for ever; nor do its arguments mean what ours of that name do.
        self._ours = tool.schema is None
        schema: dict[str, Any] = tool.input_schema() if self._ours else {"type": "object"}
        if self._ours:
            schema["properties"] = {name: _merged(field) for name, field in tool.properties.items()}
        self._validator = jsonschema.Draft202012Validator(schema)

    def check(self, arguments: Mapping[str, Any], *, had_surrogates: bool = False) -> None:
        """Refuse arguments that break a limit with `invalid_argument`, naming each field and its limit.

        With `had_surrogates` every NUL stands for half of a surrogate pair (`body.py` put it there).
        """
        violations = list(_texts(arguments, had_surrogates=had_surrogates))
        if not self._validator.is_valid(arguments):
            for error in self._validator.iter_errors(arguments):
                violations.extend(self._explain(error))
        if not violations and self._ours:
            violations = [*_sizes(arguments), *_ids(arguments)]
        if violations:
            raise self._refusal(violations)

    def _refusal(self, violations: list[Violation]) -> HoplineError:
        named = "; ".join(f"{name}: {text}" for name, text in violations[:_MAX_NAMED])
        more = len(violations) - _MAX_NAMED
        tail = f" (and {more} more)" if more > 0 else ""
        return HoplineError(
            "invalid_argument", f"{self._tool.name} was not called: {named}{tail}", violations=violations
        )

    def _explain(self, error: Finding) -> Iterator[Violation]:
        """Put one finding of the schema into words; its own text never gets out."""
        rule = error.validator
        if rule == "additionalProperties":
            for name in error.instance:
                if name not in self._tool.properties:
                    yield _shown(name), self._unknown(name)
        elif rule == "required":
            for name in self._tool.required:
                if name not in error.instance:
                    yield name, f"is missing; {self._example(name)}"
        else:
            yield _path(error), self._limit(error)

    def _unknown(self, name: str) -> str:
        known = list(self._tool.properties)
        if not known:
            return "this tool takes no arguments"
        close = difflib.get_close_matches(name, known, 1)
        meant = f"did you mean {close[0]}? " if close else ""
        return f"unknown argument; {meant}{self._tool.name} takes {', '.join(known)}"

    def _example(self, name: str) -> str:
        return str(self._tool.properties[name].get("description", "it must be given"))

    def _limit(self, error: Finding) -> str:
        limit = error.validator_value
        match error.validator:
            case "type":
                wanted = [limit] if isinstance(limit, str) else limit
                names = " or ".join(_TYPES[each] for each in wanted)
                return f"must be {names}, not {_what(error.instance)}"
            case "maxLength":
                return f"{len(error.instance)} characters; the limit is {limit}"
            case "minLength":
                return "must not be empty"
            case "minimum":
                return f"must be {limit} or more, not {error.instance}"
            case "maximum":
                return f"must be {limit} or less, not {error.instance}"
            case "maxItems":
                return f"{len(error.instance)} of them; the limit is {limit}"
            case "minItems":
                return "must not be an empty list"
            case "uniqueItems":
                return "names one of them twice; each may stand once"
            case "enum":
                return f"must be one of {', '.join(map(str, limit))}"
        return "is not valid"


def is_uuid(text: str) -> bool:
    """Tell whether a text is a UUID as it is usually written."""
    return _UUID.match(text) is not None


def _merged(field: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the forms of a choice between types into one: the same rule, checked and explained directly.

    What clients are shown keeps `anyOf`, which more of them understand than a list of types.
    """
    forms = field.get("anyOf")
    if forms is None:
        return dict(field)
    merged = {rule: limit for form in forms for rule, limit in form.items()}
    return {**merged, "type": [form["type"] for form in forms]}


def _path(error: Finding) -> str:
    text = ""
    for part in error.absolute_path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _shown(name: str) -> str:
    """Return a name somebody else made up, short and printable."""
    plain = name if name.isprintable() else json.dumps(name)
    return plain if len(plain) <= 40 else f"{plain[:40]}…"


def _what(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case str():
            return f'the text "{_shown(value)}"'
        case int() | float():
            return f"the number {_shown(str(value))}"
        case list():
            return "a list"
    return "an object"


def _texts(arguments: Mapping[str, Any], *, had_surrogates: bool) -> Iterator[Violation]:
    """Find characters that no store takes, and values nested without end. Not recursive: the input is."""
    for name, argument in arguments.items():
        pending = [(argument, 0)]
        while pending:
            value, depth = pending.pop()
            if depth > MAX_DEPTH:
                yield _shown(name), f"nested deeper than {MAX_DEPTH} levels; flatten it"
                break
            if isinstance(value, str):
                if "\0" in value:
                    yield _shown(name), _BROKEN if had_surrogates else _NUL
                    break
            elif isinstance(value, list):
                pending.extend((item, depth + 1) for item in value)
            elif isinstance(value, dict):
                pending.extend((item, depth + 1) for item in value.values())
                pending.extend((key, depth + 1) for key in value)


_NUL: Final = "contains a NUL character (U+0000); remove it"
_BROKEN: Final = "contains a lone surrogate (half of a character, U+D800 to U+DFFF); remove it"


def _sizes(arguments: Mapping[str, Any]) -> Iterator[Violation]:
    for name, limit in _BYTES.items():
        text = arguments.get(name)
        # No character takes more than four bytes: most texts need no counting.
        if isinstance(text, str) and len(text) * 4 > limit:
            size = len(text.encode())
            if size > limit:
                yield (
                    name,
                    f"{size} bytes; the limit is {limit} ({limit // 1024} KiB); shorten or split it",
                )


def _ids(arguments: Mapping[str, Any]) -> Iterator[Violation]:
    """Name an id that is of another kind than the argument wants: models mix them up."""
    request_id = arguments.get("request_id")
    if request_id is not None and not is_uuid(request_id):
        yield "request_id", "must be a UUID such as 6f1c1c2e-8d0b-4c55-9d0e-0b6f6f0a1a11; or leave it out"
    for name, wanted in _WANTED.items():
        value = arguments.get(name)
        if isinstance(value, str):
            prefix = value.partition("_")[0]
            if prefix != wanted and prefix in _IDS:
                yield name, f"{value} is {_IDS[prefix]} id; {_IDS[wanted]} id begins with {wanted}_"
