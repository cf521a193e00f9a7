"""Text of others as it is shown to people: nothing in it moves a cursor, hides, or reads other than it is."""

from __future__ import annotations

import unicodedata


def visible(text: str) -> str:
    """Replace control characters, which could move a terminal's cursor or hide text, by what shows them."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    if character in "\n\t":
        return character
    # Escapes, line ends of their own, halves of characters, and what makes text read other than it is stored.
    category = unicodedata.category(character)
    if category in {"Cc", "Cs", "Zl", "Zp"} or unicodedata.bidirectional(character) in _DIRECTIONS:
        return f"\\x{ord(character):02x}" if ord(character) < 0x100 else f"\\u{ord(character):04x}"
    return character


_DIRECTIONS = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})
