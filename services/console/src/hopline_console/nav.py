"""The menu."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

GROUPS: Final = ("See", "Answer", "Set up")


@dataclass(frozen=True, slots=True)
class Item:
    """An entry of the menu; `path` also tells which entry the page at hand belongs to."""

    group: str
    title: str
    path: str


def menu() -> list[tuple[str, list[Item]]]:
    """Return the entries by group, in the order of the families."""
    from hopline_console.pages import FAMILIES

    items = [item for family in FAMILIES for item in family.NAV]
    return [(group, found) for group in GROUPS if (found := [each for each in items if each.group == group])]
