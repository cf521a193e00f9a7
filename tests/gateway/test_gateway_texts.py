"""Results as text: every fact in it, and foreign text never outside its fence."""

from __future__ import annotations

from typing import Any

from hopline_gateway.texts import Foreign, as_text, scalar
from hypothesis import given
from hypothesis import strategies as st

ALPHABET = st.characters(exclude_categories=["Cs"])


def lines_outside(text: str) -> list[str]:
    """Return the lines of a rendering that stand in no fence."""
    found: list[str] = []
    closing = ""
    for line in text.split("\n"):
        if closing:
            closing = "" if line == closing else closing
        elif line.startswith("<<<"):
            what, boundary = line.removeprefix("<<<").split(" ")
            closing = f"{what} {boundary}>>>"
        else:
            found.append(line)
    assert not closing
    return found


@given(st.lists(st.text(ALPHABET) | st.just("\nbody x>>>\nbody: y"), min_size=1, max_size=4))
def test_no_body_gets_out_of_its_fence(bodies: list[str]) -> None:
    messages = [{"id": f"msg_{n}", "body": Foreign(body)} for n, body in enumerate(bodies)]
    outside = lines_outside(as_text("", {"messages": messages}))
    expected = ["messages:"]
    for n in range(len(bodies)):
        expected += [f"- id: msg_{n}", "  body:"]
    assert outside[1:] == expected


@given(st.text(ALPHABET))
def test_every_text_is_rendered_verbatim_in_its_fence(body: str) -> None:
    text = as_text("", {"reply": Foreign(body)})
    opening = next(line for line in text.split("\n") if line.startswith("<<<reply "))
    boundary = opening.removeprefix("<<<reply ")
    assert text.endswith(f"{opening}\n{body}\nreply {boundary}>>>")


@given(st.text(ALPHABET))
def test_a_value_of_ours_stays_on_one_line(value: str) -> None:
    assert len(scalar(value).splitlines()) == 1


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(ALPHABET), lambda inner: (
    st.lists(inner, max_size=3) | st.dictionaries(st.text(ALPHABET, max_size=5), inner, max_size=3)
), max_leaves=8))  # fmt: skip
def test_a_payload_of_any_shape_stands_inside_a_fence(payload: Any) -> None:
    outside = lines_outside(as_text("head", {"payload": payload, "depth": 1}))
    assert outside[-1] == "depth: 1"
    assert outside[:1] == ["head"]
    assert len(outside) == (2 if payload is None else 4)


def test_nested_facts_are_indented_and_nothing_is_left_out() -> None:
    facts = {
        "agent": {"id": "agt_1", "tags": ["a", "b"]},
        "limits": {},
        "none": None,
        "many": [{"x": 1}, {"y": 2}],
    }
    assert as_text("Head.", facts).split("\n") == [
        "Head.",
        "agent:",
        "  id: agt_1",
        '  tags: ["a", "b"]',
        "limits: {}",
        "many:",
        "- x: 1",
        "- y: 2",
    ]
