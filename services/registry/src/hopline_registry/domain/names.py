"""Names that people choose, and the slugs made of them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Final

MAX_SLUG: Final = 63
_NOT_SLUG: Final = re.compile(r"[^a-z0-9]+")
# Categories that end lines, and the marks that make text run backwards: with them a name could pass
# itself off as something else wherever it is shown.
_UNSHOWABLE: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
_BIDI: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def name_problem(name: str) -> str | None:
    """Say what is wrong with a name; None when nothing is."""
    if not name.strip():
        return "must not be blank"
    if name != name.strip():
        return "must not begin or end with blank space"
    if any(unicodedata.category(each) in _UNSHOWABLE or each in _BIDI for each in name):
        return "must not contain control characters, line breaks or marks of writing direction"
    return None


def slugify(text: str) -> str:
    """Return the slug of a name, without its case and accents; empty when nothing is left."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    plain = "".join(each for each in unicodedata.normalize("NFKD", folded) if not unicodedata.combining(each))
    return _NOT_SLUG.sub("-", plain).strip("-")[:MAX_SLUG].rstrip("-")


def free_slug(name: str, taken: Callable[[str], bool]) -> str:
    """Derive a slug from a name: the first of `planner`, `planner-2`, `planner-3`, ... that is not taken."""
    base = slugify(name) or "agent"
    candidate, number = base, 1
    while taken(candidate):
        number += 1
        tail = f"-{number}"
        candidate = base[: MAX_SLUG - len(tail)].rstrip("-") + tail
    return candidate
