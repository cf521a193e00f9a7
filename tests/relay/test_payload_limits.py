"""What a payload may hold: whatever one agent is allowed to send, another one can read."""

from __future__ import annotations

import json
import string

import pytest
from hopline_relay.domain.payloads import MAX_DEPTH, MAX_DIGITS, payload_problem
from hypothesis import given, settings
from hypothesis import strategies as st

_TEXTS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"))
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4),
    max_leaves=20,
)


@settings(deadline=None)
@given(_VALUES, st.booleans())
def test_any_json_value_may_be_a_payload(value: object, ascii_only: bool) -> None:
    assert payload_problem(json.dumps(value, ensure_ascii=ascii_only)) is None


@settings(deadline=None)
@given(st.text(string.printable))
def test_what_is_accepted_can_be_parsed_strictly(text: str) -> None:
    if payload_problem(text) is None:
        json.dumps(json.loads(text), allow_nan=False).encode()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * MAX_DEPTH + "]" * MAX_DEPTH, None),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), None),
        ("[" * (MAX_DEPTH + 2) + "]" * (MAX_DEPTH + 2), "nested deeper than 64"),
        ('{"a":' * 900 + "1" + "}" * 900, "nested deeper than 64"),
        ("[" * 8000 + "]" * 8000, "nested deeper than 64"),
        ("9" * MAX_DIGITS, None),
        ("-" + "9" * MAX_DIGITS, None),
        ("9" * (MAX_DIGITS + 1), "more than 4300 digits"),
        ("1e308", None),
        ("[-1e309]", "number too large"),
        ("NaN", "NaN is no JSON value"),
        ("[-Infinity]", "-Infinity is no JSON value"),
        (r'"\ud83d\ude00"', None),
        (r'["\ud83d"]', "lone surrogate"),
        (r'{"\udc00": 1}', "lone surrogate"),
        (r'{"a": {"b\u0000": 1}}', "NUL character"),
        (r'"\\u0000"', None),
        ("", "is not JSON"),
        ("1 2", "is not JSON"),
        ("{'a': 1}", "is not JSON"),
        ("[" * 100, "is not JSON"),
    ],
)
def test_what_is_wrong_with_a_payload_is_said(text: str, words: str | None) -> None:
    problem = payload_problem(text)
    assert (problem is None) if words is None else (problem is not None and words in problem)
