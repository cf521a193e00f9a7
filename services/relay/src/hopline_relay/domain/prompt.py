"""The prompt of a turn: what a person wrote as it is, what an agent wrote as data behind a fence.

A model cannot tell the text of a message from the words around it. So whatever did not come from a person
stands, verbatim, between two marks with a random boundary, drawn anew for each message; a body that does
not know the boundary cannot write the closing mark and go on as if it were its owner. The line before the
marks says who wrote it, in whose name, and how old it is; it is made by the mesh and nothing in it is the
sender's choice but the name, which cannot break out of its line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from hopline_rpc.fence import (
    NOTE_MARK,
    NOTE_NOTICE,
    NOTICE,
    OUTSIDE_MARK,
    OUTSIDE_NOTICE,
    OWNERS_MARK,
    OWNERS_NOTICE,
    draw_boundary,
    fence,
)

from hopline_relay.domain.sources import SCHEDULE, WEBHOOK

# Whose words are a person's own: a schedule says what its author has set.
_PEOPLE: Final = frozenset({"user", SCHEDULE})


@dataclass(frozen=True, slots=True)
class Inbound:
    """One message that a turn works on. `written_at` is in unix seconds, `payload` is JSON text or empty."""

    kind: str
    display: str
    body: str
    payload: str
    message_id: str
    thread_id: str
    depth: int
    written_at: float
    reply_expected: bool = False
    # How many newer ones of the same sender wait behind it.
    newer: int = 0
    # Set where it ends a question to the agent's owner; the payload then holds the question.
    escalation_id: str = ""
    # Set where it is a note by which the mesh itself wakes the session: of what kind.
    note: str = ""


def prompt(messages: Sequence[Inbound], now: float, draw: Callable[[], str] | None = None) -> str:
    """Return the text for the model: the messages in order, a blank line between them.

    Where there are several, a line of the mesh's own says so first, and whose answer the final message is.
    `draw` returns a random word; only tests give one.
    """
    texts = [_shown(message, now, draw) for message in messages]
    if len(messages) > 1:
        texts.insert(0, _headline(messages))
    return "\n\n".join(texts)


def _shown(message: Inbound, now: float, draw: Callable[[], str] | None) -> str:
    if message.escalation_id:
        return _owners(message, now, draw)
    return _person(message) if message.kind in _PEOPLE else _fenced(message, now, draw)


def _owners(message: Inbound, now: float, draw: Callable[[], str] | None) -> str:
    """Show an owner's answer beside the question: whoever asked may have forgotten what it was."""
    question = str(json.loads(message.payload)["question"])
    texts = (message.body, question)
    boundary = draw_boundary(texts) if draw is None else draw_boundary(texts, draw)
    answered = message.kind == "user"
    parts = [provenance(message, now), "You asked your owner:", fence(question, boundary, "your-question")]
    if answered:
        parts.append(OWNERS_NOTICE)
    parts.append(fence(message.body, boundary, OWNERS_MARK if answered else "message"))
    return "\n".join(parts)


def _headline(messages: Sequence[Inbound]) -> str:
    said = f"{len(messages)} messages are waiting for you, oldest first; read them all before you act."
    asked = [message.message_id for message in messages if message.reply_expected]
    if not asked:
        return f"{said} Nobody waits for a final message; where an answer is wanted, use reply with its id."
    if len(asked) == 1:
        return (
            f"{said} Your final message answers {asked[0]}; for others, where wanted, use reply with its id."
        )
    return f"{said} Answers are waited for by {', '.join(asked)}: answer each by reply with its id."


def _person(message: Inbound) -> str:
    return f"{message.body}\n\n{message.payload}" if message.payload else message.body


def _fenced(message: Inbound, now: float, draw: Callable[[], str] | None) -> str:
    texts = (message.body, message.payload)
    boundary = draw_boundary(texts) if draw is None else draw_boundary(texts, draw)
    notice, mark = (OUTSIDE_NOTICE, OUTSIDE_MARK) if message.kind == WEBHOOK else (NOTICE, "message")
    if message.note:
        notice, mark = NOTE_NOTICE, NOTE_MARK
    parts = [provenance(message, now), notice, fence(message.body, boundary, mark)]
    if message.payload:
        parts.append(fence(message.payload, boundary, "payload"))
    return "\n".join(parts)


def provenance(message: Inbound, now: float) -> str:
    """Return the line that says where a message comes from."""
    written = datetime.fromtimestamp(message.written_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    line = (
        f"Message from {message.kind} {_one_line(message.display)}, depth {message.depth}, "
        f"thread {message.thread_id}, message {message.message_id}, "
        f"written {written} ({_age(now - message.written_at)} ago)."
    )
    if message.newer:
        line += f" {message.newer} newer of the same sender follow{'s' if message.newer == 1 else ''}."
    if message.escalation_id:
        return f"{line} It ends your question {message.escalation_id}."
    return f"{line} Your answer is its reply." if message.reply_expected else line


def _one_line(name: str) -> str:
    """Keep a name from looking like anything but a name: no line breaks, no invisible characters."""
    visible = "".join(c if c.isprintable() else " " for c in name)
    return " ".join(visible.split())


def _age(seconds: float) -> str:
    whole = max(int(seconds), 0)
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if whole >= length:
            return f"{whole // length} {unit}"
    return f"{whole} s"
