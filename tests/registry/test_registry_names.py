"""Slugs and names, for any text."""

from __future__ import annotations

import re

from hopline_registry.domain.names import MAX_SLUG, free_slug, name_problem, slugify
from hypothesis import given, settings
from hypothesis import strategies as st

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
def test_a_good_name_is_one_line_in_one_direction(name: str) -> None:
    if name_problem(name) is None:
        assert name.splitlines() == [name]
        assert name == name.strip() != ""
