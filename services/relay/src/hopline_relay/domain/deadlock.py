"""Waits that could never end: turns that wait for each other, or for a place that one of them holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Runs:
    """A turn as far as waiting goes. `waits_for`: the turns for which calls from it wait; `since` when."""

    id: str
    agent: str
    session: str
    queued: bool
    waits_for: tuple[str, ...] = ()
    since: float = 0.0


def beside(turn: Runs) -> Runs:
    """Return the call of a tool: it runs at places of its own, beside the turns of its session."""
    return replace(turn, agent=f"{turn.agent}/tools", session=turn.id)


def stuck(turns: Sequence[Runs], places: Mapping[str, int]) -> list[Runs]:
    """Return the running turns that can never go on.

    `places`: how many turns at once the workers of an agent take. An agent that is not in it has no
    worker just now; one may come, so nothing that waits for it is stuck.
    """
    blocked = {turn.id: turn for turn in turns if turn.queued or turn.waits_for}
    running = [turn for turn in turns if not turn.queued]
    while True:
        free = [turn.id for turn in blocked.values() if _can_move(turn, blocked, running, places)]
        if not free:
            return [turn for turn in blocked.values() if not turn.queued]
        for turn_id in free:
            del blocked[turn_id]


def _can_move(
    turn: Runs, blocked: Mapping[str, Runs], running: Sequence[Runs], places: Mapping[str, int]
) -> bool:
    if not turn.queued:
        # One answer is enough to wake it: a turn may wait for several at once.
        return any(target not in blocked for target in turn.waits_for)
    if turn.agent not in places:
        return True
    if any(other.session == turn.session and other.id in blocked for other in running):
        return False
    holding = [other for other in running if other.agent == turn.agent]
    return len(holding) < places[turn.agent] or any(other.id not in blocked for other in holding)
