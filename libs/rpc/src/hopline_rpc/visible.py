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
    # Escapes, line ends of their own, halves of characters, what has no shape, and what makes text read other
    # than it is stored.
    category = unicodedata.category(character)
    if category in {"Cc", "Cs", "Zl", "Zp"} or (category == "Cf" and character not in _SHOWN):
        code = ord(character)
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    return character


# Format characters that words and pictures are made with: they join letters, or are signs themselves.
_SHOWN = frozenset(
    "\u200c\u200d\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
)
