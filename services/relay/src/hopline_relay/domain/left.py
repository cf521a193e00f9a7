"""What sessions leave to themselves: todos and timers, and the words in which the mesh brings them back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

MAX_TODOS: Final = 100
MAX_TIMERS: Final = 20
# Of those that have ended so many are kept for the session to read.
KEPT_TODOS: Final = 100
# So many wakes in a row that nothing comes of, then the list sleeps.
MAX_WAKES: Final = 3
# A note names as many todos as fit into so many characters, and says how many more there are.
MAX_NOTE: Final = 64 * 1024

TODO: Final = "todo"
TIMER: Final = "timer"
DRAFT: Final = "draft"
# What open todos bring about themselves: their wakes, and a draft that comes back when they sleep. Any other
# turn of the session is as good as a new todo.
OWN_WAKES: Final = frozenset({TODO, DRAFT})

# Why a list sleeps.
Reason = Literal["", "no_progress", "root_exhausted", "canceled"]
NO_PROGRESS: Final = "no_progress"
ROOT_EXHAUSTED: Final = "root_exhausted"
CANCELED: Final = "canceled"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where something was left: what brings it back runs at this depth, under this root."""

    turn_id: str
    depth: int
    root_id: str
    traceparent: str = ""
    # How many reactions of plugins it is away from what began it.
    hook_generation: int = 0


class Noted(Protocol):
    """A todo as far as notes go."""

    @property
    def id(self) -> str:
        """Its id."""
        ...

    @property
    def body(self) -> str:
        """Its text."""
        ...


def todo_note(todos: Sequence[Noted], wakes: int) -> str:
    """Return what a session is told of its open todos, after so many wakes that nothing has come of."""
    count = len(todos)
    lines = ["1 todo of this session is open:" if count == 1 else f"{count} todos of this session are open:"]
    size = 0
    for shown, todo in enumerate(todos):
        size += len(todo.body)
        if shown and size > MAX_NOTE:
            lines.append(f"… and {count - shown} more: todo_list shows them.")
            break
        lines.append(f"- {todo.id}: " + "\n  ".join(todo.body.splitlines() or [""]))
    lines.append(
        "Go on with them. todo_complete what is done, todo_remove what is void, todo_snooze what has to "
        "wait: while one is open you are woken again."
    )
    if wakes:
        times = "the last wake" if wakes == 1 else f"the last {wakes} wakes"
        lines.append(
            f"Nothing was completed or added in {times}; after {MAX_WAKES} in a row the list goes to sleep "
            "and your owner is told."
        )
    return "\n".join(lines)


def todo_payload(todos: Sequence[Noted]) -> str:
    """Return the same for programs."""
    return json.dumps({"todo_ids": [todo.id for todo in todos]})


def timer_payload(timer_id: str, late_seconds: int) -> str:
    """Return which timer it is, and by how much it is late."""
    return json.dumps({"timer_id": timer_id, "late_seconds": late_seconds})
