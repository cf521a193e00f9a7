"""What is wrong with a file of settings: all of it at once, each with its line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hopline_rpc.errors import HoplineError


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A line of a file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """Something that is wrong there, and what to do."""

    place: Place
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


def raise_all(problems: Sequence[Problem]) -> None:
    """Refuse to go on where something is wrong; everything is said, in order of lines."""
    if not problems:
        return
    said = list(dict.fromkeys(sorted(problems)))
    listed = [{"file": each.place.file, "line": each.place.line, "message": each.text} for each in said]
    raise HoplineError("invalid_argument", "\n".join(map(str, said)), details={"problems": listed})
