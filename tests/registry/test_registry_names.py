"""Slugs and names, for any text."""

from __future__ import annotations

import re

import pytest
from hopline_registry.domain.names import (
    MAX_SLUG,
    RESERVED_SECONDS,
    Former,
    free_slug,
    look,
    name_problem,
    renamed,
    slug_problem,
    slugify,
)
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.both_stores

SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@settings(deadline=None)
@given(st.text())
def test_a_slug_is_plain_or_empty_whatever_it_is_made_of(text: str) -> None:
    slug = slugify(text)
    assert len(slug) <= MAX_SLUG
    assert slug == "" or SLUG.fullmatch(slug)


@settings(deadline=None)
@given(st.text())
def test_the_slug_of_a_slug_is_itself(text: str) -> None:
    assert slugify(slugify(text)) == slugify(text)


@settings(deadline=None)
@given(st.text(), st.integers(0, 120))
def test_a_derived_slug_is_free_and_within_its_length(name: str, others: int) -> None:
    taken: set[str] = set()
    for _ in range(others):
        taken.add(free_slug(name, taken.__contains__))
    assert len(taken) == others
    assert all(SLUG.fullmatch(slug) and len(slug) <= MAX_SLUG for slug in taken)


@settings(deadline=None)
@given(st.text(min_size=1))
def test_a_good_name_is_one_line_in_one_direction_that_can_be_seen(name: str) -> None:
    if name_problem(name) is None:
        assert name.splitlines() == [name]
        assert name == name.strip() != ""
        assert not any(each in name for each in "\u202e\u2066\u200b\u200c\u2060\ufeff\u00ad\u3164\x00\x1b")


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "blank"),
        ("\u3000", "blank"),
        (" planner", "begin or end"),
        ("planner\u00a0", "begin or end"),
        ("plan\nner", "control character U+000A"),
        ("plan\x7fner", "control character U+007F"),
        ("plan\u2028ner", "line break U+2028"),
        ("plan\u202ener", "writing direction U+202E"),
        ("plan\u2069ner", "writing direction U+2069"),
        ("plan\u200bner", "invisible character U+200B"),
        ("plan\u00adner", "invisible character U+00AD"),
        ("plan\u200dner", "invisible character U+200D"),
        ("\ufeffplanner", "invisible character U+FEFF"),
        ("plan\u3164ner", "invisible character U+3164"),
        ("plan\ufe0fner", "invisible character U+FE0F"),
        ("plan\U000e0041ner", "invisible character U+E0041"),
    ],
)
def test_what_could_hide_in_a_name_is_refused_by_name(name: str, problem: str) -> None:
    assert problem in (name_problem(name) or "")


@pytest.mark.parametrize(
    "name", ["Zoë", "計画", "Ünï cödé", "مخطط", "\u2764\ufe0f bot", "\U0001f469\u200d\U0001f680", "O'Neil-2"]
)
def test_names_of_all_scripts_and_pictures_are_good(name: str) -> None:
    assert name_problem(name) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("planner", "p1anner"),
        ("bill", "b1ll"),
        ("ai", "al"),
        ("bot", "b0t"),
        ("modern", "modem"),
        ("wow", "vvow"),
    ],
)
def test_slugs_that_a_reader_takes_for_each_other_look_alike(one: str, other: str) -> None:
    assert look(one) == look(other)
    assert look(look(one)) == look(one)


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("Chief Planner", True),
        ("Zoë", True),
        ("ﬁle", True),
        ("a--b", True),
        ("\u0440lanner", False),
        ("\u8a08", False),
        ("--", False),
        ("\u0660", False),
    ],
)
def test_a_chosen_slug_is_what_was_written_or_is_refused(text: str, good: bool) -> None:
    assert (slug_problem(text) is None) == good


def test_the_newest_former_names_are_kept_while_they_are_told() -> None:
    former: Former = ()
    for number in range(15):
        former = renamed(former, f"n{number}", f"n{number + 1}", float(number))
    assert [name for name, _ in former] == [f"n{number}" for number in range(5, 15)]
    assert renamed(former, "n15", "n9", RESERVED_SECONDS + 12.5) == (
        ("n13", 13 + RESERVED_SECONDS),
        ("n14", 14 + RESERVED_SECONDS),
        ("n15", 2 * RESERVED_SECONDS + 12.5),
    )
