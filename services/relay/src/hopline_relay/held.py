"""What tunnels and turns say to each other.

What a turn is to a worker are `Held` pairs: its id and the attempt. Frames of an older attempt, or of an
older attachment (`epoch`), change nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from hopline.relay.v1 import message_pb2 as pb

from hopline_relay.store.sql import Record


@dataclass(frozen=True, slots=True)
class Held:
    """A turn as a worker holds it."""

    turn_id: str
    attempt: int


@dataclass(frozen=True, slots=True)
class ClaimWish:
    """Room for `capacity` turns of one agent; `attachment` and `epoch` say on which tunnel."""

    workspace_id: str
    agent_id: str
    capacity: int
    epoch: int
    attachment: Any = None


@dataclass(slots=True, eq=False)
class Pull:
    """A call of an agent that waits in a session for the first message of its inbox."""

    workspace_id: str
    agent_id: str
    session_id: str
    # Done when there may be something to take.
    news: asyncio.Future[None]
    # While a message on its way may be its: done when that is decided.
    decided: asyncio.Future[None] | None = None
    # What it was given; what is given to a call that is gone is put back.
    taken: pb.TakeInboxResponse | None = None
    gone: bool = False


@dataclass(slots=True, eq=False)
class ToolRun:
    """The call of a tool at a worker: a place that is kept for it, then the turn that runs there."""

    workspace_id: str
    agent_id: str
    turn_id: str
    epoch: int
    attachment: Any
    # Set once it runs.
    call_id: int = 0
    known: Known | None = None
    # Somebody has ended it: what the worker says of it counts no more.
    stopped: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """A place that is kept for one turn, which may start in the transaction that queues it."""

    place: ClaimWish | Pull | ToolRun
    instance_id: str
    span: str
    lease_seconds: float
    turn_seconds: float


@dataclass(frozen=True, slots=True)
class Known:
    """A turn as it was started, the debt it had then, and the message that asked; they stay as they are.

    But for their states: those are looked at when the turn ends.
    """

    turn: Record
    debt: Record | None
    asked: Record


@dataclass(frozen=True, slots=True)
class ClaimedTurn:
    """A turn that was just claimed for a tunnel, with all that its worker has to know.

    `messages` are as the agent may see them, oldest first. Times are unix seconds. `traceparent` is the
    context under which the worker's own spans belong.
    """

    turn_id: str
    workspace_id: str
    agent_id: str
    attempt: int
    session_id: str
    session_title: str
    channel: str
    root_id: str
    depth: int
    cause: str
    continued: bool
    deadline: float
    traceparent: str
    sender_display: str
    sender_kind: str
    messages: list[pb.Message] = field(hash=False)
    attachment: Any = None
    # What the record says of it: its end need not look again.
    known: Known | None = field(default=None, hash=False)

    @property
    def held(self) -> Held:
        """The turn as the worker will name it."""
        return Held(self.turn_id, self.attempt)


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """How a worker says that a turn ended: by an answer (may be empty), a failure, or as cancelled."""

    workspace_id: str
    agent_id: str
    held: Held
    epoch: int
    answer: str | None = None
    failure: str | None = None
    canceled: bool = False
    known: Known | None = None
    # It was being written for others to see (reply mode `all`).
    wrote: bool = False


@dataclass(frozen=True, slots=True)
class CancelOutcome:
    """The state of the turn afterwards, and how many turns it ended."""

    state: str
    canceled: int
