"""Words of people for values of the contract: `receive-only`."""

from __future__ import annotations

from typing import Any


def words_of(kind: Any) -> dict[str, int]:
    """Return the words for an enum's values, as people write them: `receive-only`."""
    prefix = kind.values_by_number[0].name.removesuffix("UNSPECIFIED")
    return {
        each.name.removeprefix(prefix).lower().replace("_", "-"): each.number
        for each in kind.values
        if each.number
    }


def number_of(kind: Any, word: str) -> int | None:
    """Return an enum's value for a word, in either way of writing it; None for one that there is not."""
    return words_of(kind).get(word.lower().replace("_", "-"))
