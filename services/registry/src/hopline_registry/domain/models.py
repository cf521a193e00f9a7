"""Which model of a catalogue is meant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from hopline_directory import ModelRecord

MAX_MODELS: Final = 200


def named(catalogue: Sequence[ModelRecord], ref: str) -> ModelRecord | None:
    """Return the model of this id, else of this identifier."""
    by_id = next((each for each in catalogue if each.id == ref), None)
    return by_id or next((each for each in catalogue if each.model_identifier == ref), None)


def preferred(catalogue: Sequence[ModelRecord], patterns: Sequence[str]) -> ModelRecord | None:
    """Return the model that the first matching pattern means; None when none matches.

    Of several that it matches, the one that it names in full, else the first of the catalogue.
    """
    for pattern in patterns:
        found = [each for each in catalogue if any(occurs(pattern, text) for text in _texts(each))]
        if found:
            full = pattern.casefold()
            return next((each for each in found if full in map(str.casefold, _texts(each))), found[0])
    return None


def occurs(pattern: str, text: str) -> bool:
    """Tell whether a pattern occurs in a text, whatever its case; `*` is anything, or nothing, in between.

    In one pass over the text, whatever the pattern.
    """
    place, folded = 0, text.casefold()
    for piece in pattern.casefold().split("*"):
        found = folded.find(piece, place)
        if found < 0:
            return False
        place = found + len(piece)
    return True


def _texts(model: ModelRecord) -> tuple[str, str]:
    return model.model_identifier, model.display_name
