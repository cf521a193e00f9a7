"""Forms as data: how fields are read, held to the contract, compared with what was seen, and refused."""

from __future__ import annotations

import pytest
from hopline.registry.v1 import agent_pb2, workspace_pb2
from hopline_console.forms import Choice, Field, Form, choices_of
from hopline_console.forms.once import Once
from hopline_rpc.errors import HoplineError
from hypothesis import given
from hypothesis import strategies as st


def _form(*fields: Field) -> Form:
    return Form("/x", "X", "Send", fields, sees=True)


@pytest.mark.parametrize(
    ("field", "typed", "value"),
    [
        (Field("a", "A"), "  text ", "text"),
        (Field("a", "A", "area"), " one\r\ntwo\rthree ", " one\ntwo\nthree "),
        (Field("a", "A", "number", least=1, most=9), " 9 ", 9),
        (Field("a", "A", "number"), "", 0),
        (Field("a", "A", "lines"), "b\r\n\n a \nb", ["b", "a"]),
        (Field("a", "A", "pairs"), "x=1\n\ny = a=b", {"x": "1", "y": "a=b"}),
        (Field("a", "A", "choice", choices=(Choice("1", "one"),)), "1", "1"),
        (Field("a", "A", "moment"), "2027-01-31T08:00", "2027-01-31T08:00:00Z"),
        (Field("a", "A", "moment"), "2027-01-31T08:00:05+02:00", "2027-01-31T06:00:05Z"),
        (Field("a", "A", "secret"), " kept as it is ", " kept as it is "),
    ],
)
def test_what_is_typed_is_read_as_what_the_field_is_for(field: Field, typed: str, value: object) -> None:
    filled = _form(field).read({"a": typed})
    assert (filled.mistakes, filled.values) == ({}, {"a": value})


@pytest.mark.parametrize(
    ("field", "typed", "said"),
    [
        (Field("a", "A", required=True), " \t", "is needed"),
        (Field("a", "A", longest=3), "four", "may have 3 characters and has 4"),
        (Field("a", "A", "number", least=1, most=9), "10", "must be a whole number from 1 to 9"),
        (Field("a", "A", "number"), "1e3", "must be a whole number"),
        (Field("a", "A", "number"), "٣", "must be a whole number"),
        (Field("a", "A", "pairs"), "x=1\nx=2", "line 2: the name 'x' stands twice"),
        (Field("a", "A", "pairs"), "=1", "line 1 must be NAME=VALUE"),
        (Field("a", "A", "choice", choices=(Choice("1", "one"),)), "2", "must be one of one"),
        (Field("a", "A", "moment"), "soon", "must be a time"),
    ],
)
def test_what_cannot_be_is_said_at_the_field(field: Field, typed: str, said: str) -> None:
    filled = _form(field).read({"a": typed})
    assert said in filled.mistakes["a"]
    assert not filled.good
    assert filled.typed["a"] == typed


def test_a_field_takes_its_limits_from_the_contract() -> None:
    name = Field("name", "Name").within(agent_pb2.Agent.DESCRIPTOR)
    assert (name.required, name.longest) == (True, 200)
    depth = Field("max_depth", "Depth", "number").within(workspace_pb2.Policy.DESCRIPTOR)
    assert (depth.least, depth.most) == (0, 32)


def test_choices_are_the_values_of_the_contract_in_words() -> None:
    found = choices_of(agent_pb2.AgentKind.DESCRIPTOR, "any")
    assert found == (Choice("0", "any"), Choice("1", "standard"), Choice("2", "receive only"))


_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


def _returned(field: Field, shown: str) -> str:
    """Return what a browser sends back of what it was shown."""
    if field.kind in ("area", "lines"):
        return shown.replace("\n", "\r\n")
    return shown.replace("\n", "").replace("\r", "")


@given(_TEXTS, st.sampled_from(["text", "area"]))
def test_what_comes_back_as_it_was_shown_is_no_change(text: str, kind: str) -> None:
    field = Field("a", "A", kind)  # type: ignore[arg-type]
    shown = _form(field).empty(a=text)
    back = _form(field).read({"a": _returned(field, shown.typed["a"]), "seen": shown.seen})
    assert back.changed() == []


@given(st.lists(_TEXTS.filter(lambda text: text.strip() != ""), max_size=4, unique=True))
def test_lines_that_come_back_as_they_were_shown_are_no_change(texts: list[str]) -> None:
    field = Field("a", "A", "lines")
    values = list(dict.fromkeys(" ".join(text.split()) for text in texts if " ".join(text.split())))
    shown = _form(field).empty(a=values)
    back = _form(field).read({"a": _returned(field, shown.typed["a"]), "seen": shown.seen})
    assert back.changed() == []


def test_what_was_changed_is_told_and_nothing_else() -> None:
    form = _form(Field("a", "A"), Field("b", "B", "flag"), Field("c", "C", "number"))
    shown = form.empty(a="x", b=True, c=3)
    back = form.read({"a": "x", "c": "4", "seen": shown.seen})
    assert back.changed() == ["b", "c"]


@pytest.mark.parametrize("seen", ["", "{", "[]", '{"a": 1}', "x" * 10_000, '{"a": "other"}'])
def test_a_form_that_does_not_say_what_was_seen_counts_as_changed(seen: str) -> None:
    form = _form(Field("a", "A"))
    assert form.read({"a": "x", "seen": seen}).changed() == ["a"]


@pytest.mark.parametrize(
    ("path", "at"),
    [
        ("a", "a"),
        ("agent.a", "a"),
        ('agent.labels["x"].a', "a"),
        ("update_mask: a", ""),
        ("holder_of", "b"),
        ("agent.other", ""),
        ("", ""),
    ],
)
def test_a_refusal_stands_at_the_field_that_it_names_else_above_the_form(path: str, at: str) -> None:
    form = _form(Field("a", "A"), Field("b", "B", paths=("holder_of",)))
    filled = form.read({"a": "x", "b": "y"})
    filled.refuse(HoplineError("invalid_argument", "no", violations=((path, "is wrong"),)))
    assert filled.mistakes == ({at: "is wrong"} if at else {})
    assert ("is wrong" in filled.problem) == (not at)


def test_a_form_goes_through_once_unless_it_failed() -> None:
    once = Once()
    with pytest.raises(HoplineError, match="gone"), once.first("ada", "1"):
        raise HoplineError("unavailable", "gone")
    with once.first("ada", "1"):
        pass
    with once.first("bob", "1"):
        pass
    with pytest.raises(HoplineError, match="was sent before"), once.first("ada", "1"):
        pass


def test_two_sendings_at_the_same_time_are_one() -> None:
    once = Once()
    with once.first("ada", "1"), pytest.raises(HoplineError, match="was sent before"), once.first("ada", "1"):
        pass


def test_of_forms_that_were_sent_so_many_are_known() -> None:
    once = Once()
    for number in range(10_001):
        with once.first("ada", str(number)):
            pass
    with once.first("ada", "0"):
        pass
    with pytest.raises(HoplineError, match="was sent before"), once.first("ada", "10000"):
        pass
