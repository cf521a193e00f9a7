"""Names that people choose, and the slugs made of them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Final

Former = tuple[tuple[str, float], ...]

MAX_SLUG: Final = 63
# How long a deleted agent's slug is kept, and a former name is told.
RESERVED_SECONDS: Final = 30 * 86_400.0
_MAX_FORMER: Final = 10
_NOT_SLUG: Final = re.compile(r"[^a-z0-9]+")
# Categories that end lines or are halves of characters, and the marks that make text run backwards: with
# them a name could pass itself off as something else wherever it is shown.
_UNSHOWABLE: Final = {
    "Cc": "the control character",
    "Cs": "the lone surrogate",
    "Zl": "the line break",
    "Zp": "the line break",
}
_BIDI: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
# Characters without a shape that are no format characters (Cf) by their category: fillers, blanks, joiners.
_SHAPELESS: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
# What follows a picture and makes one of several, or gives it its colour.
_PICTURE: Final = frozenset({"So", "Sk", "Me"})
_OF_PICTURES: Final = frozenset("\u200d\ufe0f")
# What the mesh's own addresses begin with; an agent's begins with its slug.
_OWN: Final = frozenset({"console", "endpoints", "healthz", "mcp", "metrics", "readyz", "v1"})
# Letters of a slug that a reader takes for one another, and the one that stands for them.
_ALIKE: Final = (("0", "o"), ("1", "l"), ("i", "l"), ("rn", "m"), ("vv", "w"))


def name_problem(name: str) -> str | None:
    """Say what is wrong with a name; None when nothing is."""
    if not name.strip():
        return "must not be blank"
    if name != name.strip():
        return "must not begin or end with blank space"
    before = ""
    for each in name:
        if what := _bad(each, before):
            return f"must not contain {what} U+{ord(each):04X}"
        before = each
    return None


def _bad(each: str, before: str) -> str | None:
    """Say what a character is that must not stand in a name; None for any other."""
    category = unicodedata.category(each)
    if category in _UNSHOWABLE:
        return _UNSHOWABLE[category]
    if each in _BIDI:
        return "the mark of writing direction"
    if each in _OF_PICTURES and before and (unicodedata.category(before) in _PICTURE or before == "\ufe0f"):
        return None
    shapeless = category == "Cf" or each in _SHAPELESS or 0xFE00 <= ord(each) <= 0xFE0F
    if shapeless or 0xE0000 <= ord(each) <= 0xE0FFF:
        return "the invisible character"
    return None


def look(slug: str) -> str:
    """Return what a slug looks like: two that a reader takes for each other look the same."""
    for alike, one in _ALIKE:
        slug = slug.replace(alike, one)
    return slug


def is_own(slug: str) -> bool:
    """Tell whether a slug is a word of the mesh's own addresses, which `/<slug>/…` could be taken for."""
    return slug in _OWN


def slug_problem(text: str) -> str | None:
    """Say why a slug that somebody chose would not be what they wrote; None when it is."""
    for each in _plain(text):
        if each.isalnum() and not each.isascii():
            return f"is made of the letters a-z, digits and hyphens, not of {each!r} (U+{ord(each):04X})"
    return None if slugify(text) else "needs at least one letter a-z or digit"


def renamed(former: Former, old: str, new: str, now: float) -> Former:
    """Return an agent's former names once it is called `new`: the newest ones, while they are told."""
    kept = [(name, until) for name, until in former if until > now and name not in (old, new)]
    return tuple([*kept, (old, now + RESERVED_SECONDS)][-_MAX_FORMER:])


def slugify(text: str) -> str:
    """Return the slug of a name, without its case and accents; empty when nothing is left."""
    return _NOT_SLUG.sub("-", _plain(text)).strip("-")[:MAX_SLUG].rstrip("-")


def _plain(text: str) -> str:
    folded = unicodedata.normalize("NFKC", text).casefold()
    return "".join(each for each in unicodedata.normalize("NFKD", folded) if not unicodedata.combining(each))


def free_slug(name: str, taken: Callable[[str], bool]) -> str:
    """Derive a slug from a name: the first of `planner`, `planner-2`, `planner-3`, ... that is not taken."""
    base = slugify(name) or "agent"
    candidate, number = base, 1
    while taken(candidate):
        number += 1
        tail = f"-{number}"
        candidate = base[: MAX_SLUG - len(tail)].rstrip("-") + tail
    return candidate
