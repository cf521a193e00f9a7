"""What a check has found, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Grade = Literal["ok", "note", "problem"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the page. A `note` may be meant so; a `problem` keeps something from working."""

    check: str
    grade: Grade
    text: str
    todo: str = ""


def good(check: str, text: str) -> Finding:
    """Return that all is well."""
    return Finding(check, "ok", text)


def note(check: str, text: str, todo: str = "") -> Finding:
    """Return what may be meant so."""
    return Finding(check, "note", text, todo)


def problem(check: str, text: str, todo: str) -> Finding:
    """Return what keeps something from working."""
    return Finding(check, "problem", text, todo)
