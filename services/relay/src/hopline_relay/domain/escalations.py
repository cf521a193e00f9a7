"""Questions to owners: what is the same question, and what is said of one that nobody has answered."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Final, Literal

EscalationState = Literal["pending", "answered", "expired", "withdrawn"]

KIND_QUESTION: Final = "question"
KIND_ANSWER: Final = "owner_answer"

_HOUR: Final = 3600


def digest_of(question: str, options: Sequence[str]) -> bytes:
    """Return what tells the same question from another."""
    # No part holds a NUL.
    content = "\0".join((KIND_QUESTION, question, *options))
    return hashlib.blake2b(content.encode(), digest_size=16).digest()


def payload_of(identifier: str, state: str, question: str, options: Sequence[str]) -> str:
    """Return the JSON that goes with an answer: it may come when the question is long forgotten."""
    about = {"escalation_id": identifier, "status": state, "question": question, "options": list(options)}
    return json.dumps(about, ensure_ascii=False)


def expired_text(seconds: float) -> str:
    """Return what an agent is told whose question nobody has answered in time."""
    return (
        f"No answer: your owner did not answer within {_span(seconds)} and the question has expired. "
        "Decide yourself what is safe, say what is missing, or ask again."
    )


def withdrawn_text(reason: str) -> str:
    """Return what an agent is told whose question was taken back."""
    return f"No answer: the question was withdrawn ({reason or 'no reason was given'})."


def option_problem(text: str, options: Sequence[str]) -> str | None:
    """Say why a text is no answer to a question that gives options; None when it is."""
    if not options or text in options:
        return None
    return f"must be one of the options, in its very letters: {', '.join(repr(each) for each in options)}"


def _span(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // _HOUR} h" if whole >= _HOUR and whole % _HOUR == 0 else f"{whole} s"
