"""What people write to search for: words, "phrases" and beginn*; read alike for every database."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Final

_TERM: Final = re.compile(r'"([^"]*)"?|(\S+)')
_WORD: Final = re.compile(r"[^\W_]+")
_MOST: Final = 20


@dataclass(frozen=True, slots=True)
class Term:
    """Words that follow one another; `begins`: the last of them goes on."""

    words: tuple[str, ...]
    begins: bool = False


def terms(query: str) -> list[Term]:
    """Return what all has to be there; nothing where no word is left."""
    found: list[Term] = []
    for phrase, plain in _TERM.findall(query):
        words = tuple(_WORD.findall((phrase or plain).lower()))
        if words:
            found.append(Term(words, begins=bool(plain) and plain.endswith("*")))
    return found[:_MOST]


def bare(text: str) -> list[str]:
    """Return the words of a text as they are compared, without capitals and accents."""
    return _WORD.findall(_bare(text))


def matches(wanted: list[Term], text: str) -> bool:
    """Tell whether all of it is in a text."""
    said = _WORD.findall(_bare(text))
    bare = [Term(tuple(map(_bare, term.words)), term.begins) for term in wanted]
    return all(any(_at(term, said, start) for start in range(len(said))) for term in bare)


def _at(term: Term, said: list[str], start: int) -> bool:
    here = said[start : start + len(term.words)]
    if len(here) < len(term.words) or here[:-1] != list(term.words[:-1]):
        return False
    return here[-1].startswith(term.words[-1]) if term.begins else here[-1] == term.words[-1]


def _bare(text: str) -> str:
    """Return a text without capitals and accents, as SQLite's index has it."""
    plain = unicodedata.normalize("NFKD", text.lower())
    return "".join(character for character in plain if not unicodedata.combining(character))
