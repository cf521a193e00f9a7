"""The life of a turn: claimed, accepted, ended, queued again. Every method batches through the writer.

What a turn is to a worker are `Held` pairs: its id and the attempt. Frames of an older attempt, or of an
older attachment (`epoch`), change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hopline.relay.v1 import message_pb2 as pb


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


@dataclass(frozen=True, slots=True)
class CancelOutcome:
    """The state of the turn afterwards, and how many turns it ended."""

    state: str
    canceled: int


class Turns:
    """What the tunnels may do with turns."""

    # Registered by the dispatcher; called on the event loop after the commit that is their cause.
    # `{(workspace_id, agent_id)}` whose queue may have something to claim; agent_id "" is all of them.
    on_claimable: Callable[[set[tuple[str, str]]], None]
    # `[(workspace_id, agent_id, held, reason)]` that their workers must stop.
    on_cancel: Callable[[list[tuple[str, str, Held, str]]], None]
    # `(workspace_id, agent_id, token_id, code, message)`: end these attachments; token_id "" is all.
    on_agent_gone: Callable[[str, str, str, str, str], None]
    # `busy` or `idle` where a tunnel of the agent is open here, else None.
    presence_source: Callable[[str, str], str | None]
    # `none`, `user` or "" when nothing is attached.
    isolation_source: Callable[[str, str], str]
    # How many turns at once the tunnels of the agent that are open here take; 0 without any.
    places_source: Callable[[str, str], int]

    async def attach(self, workspace_id: str, agent_id: str) -> int:
        """Count one more attachment of the agent and return its epoch."""
        ...

    async def resume(
        self, workspace_id: str, agent_id: str, held: Sequence[Held], epoch: int
    ) -> list[Held]:
        """Move turns that a worker still holds to its new attachment; returns those that are still its own."""
        ...

    async def claim(self, wishes: Sequence[ClaimWish]) -> list[ClaimedTurn]:
        """Claim queued turns, oldest first, at most one a session, as far as there are run slots."""
        ...

    async def accepted(self, workspace_id: str, agent_id: str, held: Sequence[Held], epoch: int) -> None:
        """Note that the worker has taken these turns."""
        ...

    async def end(self, end: TurnEnd) -> bool:
        """Record the end of a turn. False: the frame was stale. Commits before it returns."""
        ...

    async def renew(self, workspace_id: str, agent_id: str, held: Sequence[Held], epoch: int) -> list[Held]:
        """Renew leases; returns the turns that are no longer this worker's."""
        ...

    async def tunnel_lost(self, workspace_id: str, agent_id: str, held: Sequence[Held], epoch: int) -> None:
        """Give a worker whose stream broke 30 s to come back for these turns."""
        ...

    async def give_back(self, workspace_id: str, agent_id: str, held: Sequence[Held], epoch: int) -> None:
        """Queue turns again that were claimed but never reached a worker; costs them no attempt."""
        ...

    async def cancel(self, workspace_id: str, turn_id: str, reason: str) -> CancelOutcome:
        """End a turn and what only it waits for."""
        ...
