"""What a start goes back to: the depth it runs at and the root it is charged to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Standing(NamedTuple):
    """Where a sender stands: in a turn it runs, in one that ended within the window, or in none."""

    # Of the deepest turn that counts; 0 in none.
    depth: int
    turn_id: str
    # Of the cause named, else the most used among those that count; empty in none.
    root_id: str


NOWHERE = Standing(0, "", "")


def depth_of_start(standing: Standing) -> int:
    """Return the depth of what is started there."""
    return standing.depth + 1


def most_used(roots: Iterable[tuple[int, str]]) -> str:
    """Return the id of the root that has started most turns, of `(turns, id)`; the oldest on a tie."""
    best_turns, best_id = -1, ""
    for turns, root_id in roots:
        if turns > best_turns or (turns == best_turns and root_id < best_id):
            best_turns, best_id = turns, root_id
    return best_id
