"""What a payload may hold: any JSON value that everyone who is to receive it can read."""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final, NoReturn

# Readers parse recursively, and a payload travels inside other JSON.
MAX_DEPTH: Final = 64
# More is more than common parsers take for a number.
MAX_DIGITS: Final = 4300
_NOT_JSON: Final = "is not JSON; give the text of one JSON value"
_TOO_DEEP: Final = f"is nested deeper than {MAX_DEPTH} levels; flatten it"
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class _Problem(ValueError):  # noqa: N818 - what it is
    """Something that no payload may hold, in words."""


def payload_problem(text: str) -> str | None:
    """Say what is wrong with the JSON text of a payload; None when nothing is."""
    try:
        value = json.loads(text, parse_constant=_constant, parse_float=_number, parse_int=_whole)
        # Only these can nest, and only an escape can spell what a text of ours cannot hold.
        if "\\u" in text or text.count("[") + text.count("{") > MAX_DEPTH:
            _walk(value)
    except _Problem as problem:
        return str(problem)
    except RecursionError:
        return _TOO_DEEP
    except ValueError:
        return _NOT_JSON
    return None


def _constant(name: str) -> NoReturn:
    raise _Problem(f"is not JSON: {name} is no JSON value")


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _Problem("holds a number too large for JSON's readers")
    return value


def _whole(text: str) -> int:
    if len(text.lstrip("-")) > MAX_DIGITS:
        raise _Problem(f"holds a number of more than {MAX_DIGITS} digits")
    return 0  # which one does not matter here


def _walk(value: Any) -> None:
    """Look at every text and the depth; not recursive, since the input is."""
    pending = [(value, 0)]
    while pending:
        each, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise _Problem(_TOO_DEEP)
        if isinstance(each, str):
            _check_text(each)
        elif isinstance(each, list):
            pending.extend((item, depth + 1) for item in each)
        elif isinstance(each, dict):
            for key, item in each.items():
                _check_text(key)
                pending.append((item, depth + 1))


def _check_text(text: str) -> None:
    if "\0" in text:
        raise _Problem("must not contain the NUL character (U+0000)")
    if _SURROGATE.search(text):
        raise _Problem("must not contain a lone surrogate (half of a character, U+D800 to U+DFFF)")
