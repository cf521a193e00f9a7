"""Batches: turns of one session that a worker runs as one, over all that waits there.

A batch is named after its first turn, the one that the worker holds: it has the lease, the run slot and the
end. The others ride along, and end or go back to the queue with it. Pulled turns form groups too; those run
in the session of the call that took them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

from hopline_relay.domain.values import MAX_ATTEMPTS, QUESTIONS

# What one worker gets at once at most: turns, and characters of their messages.
MAX_BATCH: Final = 50
MAX_BATCH_TEXT: Final = 256 * 1024


class Grouped(Protocol):
    """A turn as far as groups go."""

    @property
    def id(self) -> str:
        """The turn."""
        ...

    @property
    def batch_id(self) -> str:
        """The first turn of its group, if it is in one."""
        ...

    @property
    def run_session_id(self) -> str:
        """The session of the call that pulled it, if one did."""
        ...


class Waiting(Protocol):
    """A queued turn that may join a batch."""

    @property
    def cause(self) -> str:
        """What it serves."""
        ...

    @property
    def attempt(self) -> int:
        """How often it was tried."""
        ...

    @property
    def size(self) -> int:
        """How many characters its message has."""
        ...


W = TypeVar("W", bound=Waiting)


def held_by_worker(turn: Grouped) -> bool:
    """Tell whether it is, when it runs, a turn that a worker knows by its id."""
    return not turn.run_session_id and turn.batch_id in ("", turn.id)


def leads(turn: Grouped) -> bool:
    """Tell whether others ride along with it."""
    return not turn.run_session_id and turn.batch_id == turn.id


def rides(turn: Grouped) -> bool:
    """Tell whether it rides along with another."""
    return not turn.run_session_id and turn.batch_id not in ("", turn.id)


def gather(waiting: Sequence[W], *, final_answers: bool) -> list[W]:
    """Return how many of a session's queued turns, oldest first, are run as one.

    With `final_answers` the worker's final message is the answer to what it was asked: then at most one of
    them asks, since one text cannot answer two. What was tried so often that this is its last attempt runs
    alone, so that what ends workers takes nothing else with it.
    """
    batch: list[W] = []
    asks = size = 0
    for turn in waiting[:MAX_BATCH]:
        asks += turn.cause in QUESTIONS
        size += turn.size
        last_attempt = turn.attempt >= MAX_ATTEMPTS - 1
        if batch and (size > MAX_BATCH_TEXT or last_attempt or (final_answers and asks > 1)):
            break
        batch.append(turn)
        if last_attempt:
            break
    return batch
