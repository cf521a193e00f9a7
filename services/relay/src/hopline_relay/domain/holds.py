"""When an answer to a person is held, and what becomes of it.

A session that a person has prompted does not answer early: while there are reasons, the newest text is
kept as a draft and the prompt stays unanswered. Once there are none, the draft goes out if it was written
without any; else the agent is woken with it first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

# A draft that waits; one with which its agent was woken; one that is to be sent as it is.
HELD: Final = "held"
WOKEN: Final = "woken"
GOING: Final = "going"

Step = Literal["wait", "wake", "send"]


@dataclass(frozen=True, slots=True)
class Waited:
    """A subagent that owes a report, or whose report has not been read."""

    agent_id: str
    session_id: str
    turn_id: str


@dataclass(frozen=True, slots=True)
class Reasons:
    """What an answer is held for."""

    waited: tuple[Waited, ...] = ()
    open_todos: int = 0

    def __bool__(self) -> bool:
        return bool(self.waited or self.open_todos)


@dataclass(frozen=True, slots=True)
class Kept:
    """A draft as it is kept: its text (empty: none was written yet) and its state."""

    text: str
    state: str
    # The turn that was woken with it.
    wake_turn_id: str = ""


@dataclass(frozen=True, slots=True)
class TurnOver:
    """How a turn ends: its state, and its final message where that is delivered.

    `silent`: its agent pulled the prompt, or said that no answer will come: without words nothing is held.
    """

    id: str
    state: str
    text: str = ""
    silent: bool = False


def kept_by_debtor(over: TurnOver, kept: Kept | None, reasons: Reasons) -> Kept | None:
    """Return what is kept when a turn ends that owes the answer itself; None: its debt ends with it."""
    before = kept.text if kept is not None else ""
    if over.state == "canceled":
        return None
    if over.state != "completed":
        return Kept(before, HELD) if before else None
    if reasons:
        text = over.text or before
        return Kept(text, HELD) if text or not over.silent else None
    return Kept(before, HELD) if before and not over.text else None


def kept_by_later_turn(over: TurnOver, kept: Kept, reasons: Reasons) -> Kept:
    """Return what is kept when a later turn ends that goes on with what is held."""
    if over.text:
        return Kept(over.text, HELD if reasons else GOING)
    if kept.wake_turn_id == over.id:
        # It said nothing new. What it has started meanwhile is waited for first.
        return Kept(kept.text, HELD if reasons else GOING)
    return kept


def next_step(kept: Kept, reasons: Reasons, *, at_work: bool) -> Step:
    """Return what is to be done with a draft now; `at_work`: turns are to come that go on with it."""
    if kept.state == GOING:
        return "send"  # nothing held it when it was written, and what came later does not
    if reasons:
        return "wait"
    if at_work:
        return "wait"
    # A turn that was woken with it and is no more has died in a way that nobody has said.
    return "send" if kept.state == WOKEN else "wake"


def wake_text(draft: str, prompter: str) -> str:
    """Return the note with which an agent is woken when nothing holds its answer any more."""
    if not draft:
        return (
            f"Nothing holds your answer to {prompter} now, and it is not written yet. End this turn with it."
        )
    return (
        f"Nothing holds your answer to {prompter} now. End this turn with the final answer; if you end it "
        f"without one, your draft is sent as it is:\n\n{draft}"
    )
